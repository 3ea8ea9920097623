"""Backends used directly, without the service: a Redis, a ZooKeeper, an etcd, a database.

They are independent of one another; each declares what it guarantees, and is found by the scheme of a URL.
"""
