"""What it takes to talk to ZooKeeper, for the journal's engine and the backend alike.

`address` reads the parts of a URL, `handler` brings kazoo's thread and an event loop together, and `denials` are
what servers say that do not let us in. Nothing here knows what the znodes are for.
"""
