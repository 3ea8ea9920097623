"""A process that burns processor time and never talks to any server: what a neighbour costs by being there at
all.

It burns in slices of a few milliseconds, and sleeps between them just as long as makes the share of a core
that it was told to burn. If the machine has not that much to give, it burns what it gets.
"""

import os
import time

from bench.children import Talk

SLICE_S = 0.005
SHARE_MIN = 0.02
"""Of a core. A process that burned less has had no measurable cost for others."""


async def burn(talk: Talk, share: float, nice: int = 0) -> None:
    """Burn that share of a core until killed, as nice as that."""
    os.nice(nice)
    talk.say(burning=share, pid=os.getpid())
    begun_s, burned_s = time.perf_counter(), 0.0
    while True:
        until_s = time.process_time() + SLICE_S
        while time.process_time() < until_s:
            sum(range(500))
        burned_s += SLICE_S
        late_s = burned_s / share - (time.perf_counter() - begun_s)
        if late_s > 0:
            time.sleep(late_s)  # noqa: ASYNC251 - nothing else runs here
