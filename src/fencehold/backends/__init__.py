"""Backends used directly, with no service between: a Redis, a ZooKeeper, an etcd, a database.

They are strangers to one another; each declares what it guarantees, and is found by the scheme of a URL.
"""
