"""gRPC over HTTP/2, the server's side: on the event loop alone, and for untrusted peers.

`heads` reads what a call begins with, `conversation` is the law of one connection, fed with bytes and asked for
bytes, and `connection` has the socket and the clock. Methods and their handlers are in `doors/grpc/calls`.
Decision 23 says why this is not gRPC's own library, and what it saves.
"""
