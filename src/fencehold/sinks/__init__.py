"""Sinks: where events go besides those who watch: Kafka, Redis, NATS, databases, files, a URL.

A sink is a follower like any other: it watches, from a standby if there is one, and writes what it is told into
its target. It runs in a process of its own, and nothing of the service waits for it.
"""
