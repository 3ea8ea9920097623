"""HTTP/2 as both sides of gRPC need it: how frames and header blocks look, and the codes that calls end with.

The client's side is `drivers/etcd/http2`, the server's `doors/grpc/http2`.
"""
