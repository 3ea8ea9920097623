"""The simulation: the real node, door and SDK on virtual time, over a simulated journal, network and clocks.

1. *One seed, one history.* Everything is drawn from the seed and runs in one thread on one heap of events. No
   real clock, socket, thread, hash order or address of an object decides anything: a failing seed replays exactly.
2. *The real code runs.* `server.Server` with its node and its door, and the SDK's async client. What is simulated
   is what they are given from outside: the event loop, the journal, the clock, the dice.
3. *Only what the world can do.* A fault is one that the journal's port, TCP or an operating system allows; clocks
   drift less than the client's margin. So whatever breaks a guarantee here is a bug.
4. *Judged from outside.* The history is what clients saw and trusted, what went over the wire, and what was
   stored, each with the one true time. The checks are pure functions over it (`checking`).
5. *A run without traffic or without faults proves nothing* and says so: it is void.

`python -m tests.simulation --seeds 1000` runs many, `--moves` only those in which slots move
between shards, `--seed 4711 --trace` replays one and tells what happens.
"""
