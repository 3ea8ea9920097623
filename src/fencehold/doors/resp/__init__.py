"""The RESP listener: the Redis protocol, for the SDK and for every Redis client. See
docs/reference/protocol.md."""
