"""The postgres engine."""
