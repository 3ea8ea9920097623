"""ZooKeeper, by kazoo, without its threads being noticed.

- `address`: the URL
- `kazoo_client`: kazoo's client made and ended our way, and its errors in kinds
- `handler`, `buffered`: the bridge between kazoo's thread and an event loop
- `client`: requests by kazoo's own calls, over one session after the other (for journals)
- `requests`: requests as kazoo carries them, and what an error means (for locks)
- `survey`: which servers answer, which one leads
"""
