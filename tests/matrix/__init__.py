"""Clients in other languages, made of the description: `make matrix`. They need npm and the Go module proxy."""
