"""All that speak Redis's protocol.

- `address`: the URLs of one Redis, of sentinels, of several Redises
- `connection`: one connection, many commands under way; `client`: made again when it was lost, and scripts
- `failures`: what an error of Redis means
- `wire`: the commands and errors of a Fencehold server
"""
