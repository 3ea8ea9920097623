"""Leases that are records: what every backend over a store of such records shares.

- `store`: the port of stores: each step atomic, and what each failure means
- `backend`: a backend over a store: waiting, trust, withdrawal
- `keeper`: the leases of a client: renewed, extended, lost
- `thread_path`: how a thread of a blocking client asks a store by itself
- `background`: what is retried after everybody has stopped waiting for it
- `queue_order`: who is next, for stores that keep holders and a queue as rows
- `explanation`: what a record says, in the words of `explain`
"""
