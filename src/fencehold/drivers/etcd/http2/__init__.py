"""gRPC calls over HTTP/2, on the event loop alone: no thread, no task for a call, nothing that a fork breaks.

An append is one small call, and all clients wait for it, so what a call costs here is what an acquire costs;
decision 9 has the figures. How HTTP/2 looks is in `drivers/http2`; `status` says how calls end, `conversation` is
the sans-I/O protocol, bytes in and bytes out; `connection` is a conversation with a socket and a clock, and
`channel` has the verbs of services.
"""
