"""Leases that are records: what all backends over a store of such records share.

- `store`: the port of stores: each step atomic, and what each failure means
- `backend`: a backend over a store: waiting, trust, withdrawal
- `keeper`: the leases of a client: renewed, extended, lost
- `thread_path`: how a thread of a blocking client calls a store by itself
- `background`: what is retried after its caller has stopped waiting
- `queue_order`: who is next, for stores that keep holders and a queue as rows
- `explanation`: records as `explain` shows them
"""
