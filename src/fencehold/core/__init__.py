"""The lock machine: pure and deterministic. Fed entries, it returns outcomes; it never reaches out.

`machine` holds the laws. Nothing here knows a clock, a network, randomness, threads or logging.
"""
