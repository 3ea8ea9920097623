"""Spinning: a caller looks for its reply for a moment before it sleeps until there is one.

To put a thread to sleep and wake it up again takes longer than a server nearby takes to answer: on a virtual
machine with two processors, 44 µs an operation in the place of 77 (decision 17). Laws:

1. *No longer than `SPIN_S`*, after which it sleeps as any other.
2. *Learned.* After a reply that was not there by then, the next `SKIPPED_MIN` callers sleep at once; twice as many
   each time, up to `SKIPPED_MAX`, and half as many after each reply that was. So a server far away, a slow disk or
   a busy machine costs one such moment in a thousand calls.
3. *Others come first.* Between two looks the processor is offered to whatever waits for it. A thread that had to
   wait for the interpreter meanwhile counts as one whose reply was late: each look has to get it back.
4. *Not where there is one processor only*, or a quota of no more: the server may need it.
"""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

SPIN_S = 0.000_25
SKIPPED_MIN, SKIPPED_MAX = 16, 1_024

NOW = getattr(socket, "MSG_DONTWAIT", 0)
"""The flag for calls that do not block."""
NOT_NOW = (errno.EAGAIN, errno.EWOULDBLOCK)
"""What those fail with that would have blocked, and those that block after their timeout: nothing was done."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of version 2, as a container sees its own."""
_YIELD: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


def processors() -> float:
    """How many this process may use: those it may run on, and no more than the quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text().split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else min(count, int(quota) / int(period))


class Spin:
    """What one connection's callers have learned."""

    __slots__ = ("_give_way", "_now", "_receive", "_skipped", "_to_skip")

    def __init__(
        self,
        receive: Callable[..., bytes],
        *,
        now: Callable[[], float] = perf_counter,
        give_way: Callable[[], None] = _YIELD,
    ) -> None:
        """`receive`: of the socket; it blocks, unless it is given NOW."""
        self._receive, self._now, self._give_way = receive, now, give_way
        self._to_skip = 0
        """How many more calls sleep at once."""
        self._skipped = SKIPPED_MIN
        """How many do after the next late reply."""

    def receive(self, size: int) -> bytes:
        """The bytes of a reply, when there are some; raises what the socket raises."""
        if self._to_skip:
            self._to_skip -= 1
            return self._receive(size)
        receive, now, give_way = self._receive, self._now, self._give_way
        until = now() + SPIN_S
        while True:
            try:
                data = receive(size, NOW)
                break
            except BlockingIOError as error:
                if error.errno not in NOT_NOW:
                    # A signal handler's, and the bytes may be taken.
                    raise
                if now() >= until:
                    self._learn(False)
                    return receive(size)
            give_way()
        self._learn(now() < until)
        return data

    def _learn(self, is_in_time: bool) -> None:
        skipped = self._skipped
        if is_in_time:
            self._skipped = max(SKIPPED_MIN, skipped // 2)
        else:
            self._to_skip, self._skipped = skipped, min(SKIPPED_MAX, 2 * skipped)


def spinning(receive: Callable[..., bytes]) -> Callable[[int], bytes]:
    """How callers of a connection receive: a socket's `recv`, spinning where that makes sense."""
    return Spin(receive).receive if NOW and processors() > 1 else receive
