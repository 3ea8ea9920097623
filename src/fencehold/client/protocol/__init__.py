"""The session protocol: one object, in files that are parts of it. Sans I/O: see `session` for its laws."""
