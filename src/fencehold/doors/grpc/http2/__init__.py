"""gRPC over HTTP/2, the server's side: on the event loop alone, and for peers that nobody trusts.

`heads` reads what a call begins with, `conversation` is the law of one connection, fed with bytes and asked for
bytes, and `connection` has the socket and the clock. What is called, and by whom it is answered, is in
`doors/grpc/calls`. Decision 23 says why this is not gRPC's own library, and what it saves.
"""
