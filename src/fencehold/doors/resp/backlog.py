"""The backlog: connections that sent more than is done for one of them at a time, in turn.

1. What comes in over a connection is handled at once, up to a *quantum*. So whoever sends little is served as
   soon as it is heard of, whatever others do.
2. Who sends more is read from no further, and goes to the end of the backlog. In each turn of the event loop
   those in it share a *slice* of time, round robin; then the sockets are looked at again.
3. Who has been alone for a while may take longer: nobody waits for it.
4. A connection whose lane at the leader is full, or whose client does not read, is not in the backlog: it comes
   back when there is room. A flood waits for itself.
"""

import asyncio
from collections import deque
from typing import Protocol

QUANTUM = 16
"""Commands that are handled at once."""
SLICE_S = 0.0005
"""How long those in the backlog may take in one turn of the event loop, all together."""
ALONE_COMMANDS = 1_024
ALONE_S = 0.004
"""How many, and for how long, one may have handled at once that is alone."""
ALONE_AFTER_S = 0.1


class Sender(Protocol):
    """A connection that may have more to handle than it may at once."""

    def go_on(self, until: float) -> bool:
        """Handle a quantum, or until the time is over; says whether it wants another turn."""
        ...


class Backlog:
    """Who goes on when, at one door."""

    def __init__(self) -> None:
        self._waiting: deque[Sender] = deque()
        self.last: Sender | None = None
        """Who was heard last."""
        self._others_came = False
        self._shared_until = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def hear(self, sender: Sender) -> None:
        """Something came from another sender than last time."""
        self.last = sender
        self._others_came = True

    def allowance(self, sender: Sender) -> tuple[int, float]:
        """How many more commands a sender may have handled that was heard just now, and until when."""
        now = asyncio.get_running_loop().time()
        if self._others_came:
            self._others_came = False
            self._shared_until = now + ALONE_AFTER_S
        if now >= self._shared_until and not self._waiting:
            return ALONE_COMMANDS, now + ALONE_S
        return QUANTUM, now + SLICE_S

    def join(self, sender: Sender) -> None:
        """Let a sender go on when it is its turn."""
        self._waiting.append(sender)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        loop, waiting = asyncio.get_running_loop(), self._waiting
        until = loop.time() + SLICE_S
        while waiting:
            sender = waiting.popleft()
            if sender.go_on(until):
                waiting.append(sender)
            if loop.time() >= until:
                break
        if waiting:
            loop.call_soon(self._serve)
