"""Fencehold: locks as safe as consensus, as fast as Redis, that your database itself can enforce."""

__version__ = "0.1.0.dev0"
