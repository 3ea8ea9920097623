"""Robustness: real nodes on a real etcd, killed, paused and cut off under load, and what clients saw checked.

`load` is clients at work, `history` what they saw, `checker` what of it must not be. `stage` starts the servers.
Each kind of fault is a module that can be run by itself for as long as one likes; a test runs it briefly::

    python -m tests.robustness.failover 30 --fault kill
    python -m tests.robustness.members
    python -m tests.robustness.partition 4
    python -m tests.robustness.storm 50 --seed 7
"""
