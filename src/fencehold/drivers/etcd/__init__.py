"""etcd: calls to any of its members, over HTTP/2.

- `address`: the URL
- `client`: calls, sent again to another member until one answers or the deadline passes
- `member`: the connection to one member, and its stream of lease renewals
- `transactions`, `services`, `messages`: requests and replies
- `failures`: what a failed call means
- `survey`: which members there are, which one leads, how full each is
- `http2`: gRPC on the event loop
"""
