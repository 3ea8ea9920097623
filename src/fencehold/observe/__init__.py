"""What operators see of a service: the history of holds, metrics, and what is worth a line in the log.

All of it is derived from durable entries, by a process beside the node (`observer`) that the node feeds (`feed`).
"""
