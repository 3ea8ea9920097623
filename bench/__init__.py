"""How Fencehold is measured: `python -m bench NAME`, and no other way.

A benchmark is a contest. Its contestants run interleaved in rounds, so that a noisy minute of the machine is
shared by all of them; its musts are judged on what the rounds gave.
"""
