"""Quiet: the next one is not measured before the servers are done with what the last one asked of them.

A server answers, and there is still something to do: its observer, a process of its own and nicer than it, writes
the history of what happened, for seconds after a flood. Where cores are few, the next one in turn would pay for
that.
"""

import asyncio
import contextlib
import os

from bench.procfs import cpu_seconds, family

LOOK_S = 0.3
SHARE_MAX = 0.1
"""Of a core, above what all processes use that have nothing to do."""
WAIT_S_MAX = 20.0


class Quiet:
    """What the processes that a benchmark has started use of the processors when they have nothing to do."""

    def __init__(self) -> None:
        self._idle = 0.0

    async def learn(self) -> None:
        """See what they use at the least: everything is set up, and there was no request yet."""
        self._idle = min([await _share() for _ in range(3)])

    async def come(self) -> None:
        """Wait until they use no more than that; not for ever, as some may always have something to do."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S_MAX):
                while await _share() > self._idle + SHARE_MAX:
                    pass


async def _share() -> float:
    """Of a core, what all processes below this one use now."""
    before = _used_s()
    if not before:
        return 0.0
    await asyncio.sleep(LOOK_S)
    after = _used_s()
    return sum(after[pid] - before[pid] for pid in before.keys() & after.keys()) / LOOK_S


def _used_s() -> dict[int, float]:
    used = {}
    for pid in family(os.getpid())[1:]:
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            used[pid] = cpu_seconds(pid)
    return used
