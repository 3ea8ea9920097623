"""The blocking client: what applications on threads call. The same API, without await."""
