"""The SDK: one sans-I/O session protocol, and the shells that drive it.

`protocol` is the truth; `requests`, `trust`, `wire`, `terms` and `endpoints` are its parts. `driver` carries it
over an asyncio loop; `aio` and `blocking` are what applications call. Nothing here knows the server's insides:
the wire protocol is the whole contract.
"""
