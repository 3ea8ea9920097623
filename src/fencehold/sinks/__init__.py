"""Sinks: targets of events besides watchers: Kafka, Redis, NATS, databases, files, a URL.

A sink is a follower like any other: it watches, from a standby if there is one, and writes the events into its
target. It runs in its own process, and nothing in the service waits for it.
"""
