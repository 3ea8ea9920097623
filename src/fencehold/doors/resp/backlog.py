"""The backlog: connections that sent more than is handled for one of them at a time, in turn.

1. What arrives on a connection is handled at once, up to a *quantum*; its first commands only, while others wait.
   So a client that sends little is served as soon as its command arrives, whatever others do.
2. A connection that sends more is not read any further, and goes to the end of the backlog. In each turn of the
   event loop those in it share a *slice* of time, round robin; then the sockets are polled again. The connections
   of one principal share one turn: a principal with a thousand has no more turns than one with a single
   connection.
3. A connection that sends a few commands now and then has them handled at once though others wait, within a bound
   for all such connections together: it keeps its place before those that send again meanwhile. Only a flood loses
   it.
4. A connection that has been alone for a while may take longer: no other waits for it.
5. A connection whose lane at the leader is full, or whose client does not read, is not in the backlog: it returns
   when there is room. A flood waits for itself.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

from fencehold.runtime.clock import Clock

QUANTUM: Final = 16
"""Commands that are handled at once."""
SLICE_MS = 0.25
"""How long those in the backlog may take in one turn of the event loop, all together."""
ALONE_COMMANDS = 1_024
ALONE_MS = 4.0
"""How many commands, and for how long, a connection that is alone may have handled at once."""
ALONE_AFTER_MS = 100.0
BURST_EVERY_MS = 1_000.0
BURSTS_MAX = 32
"""How many connections may have a quantum handled before those that wait, in that time; each of them once."""


class Turns:
    """The senders of one principal that are in the backlog, in turn; or one of no principal."""

    __slots__ = ("burst_at_ms", "is_waiting", "senders")

    def __init__(self) -> None:
        self.burst_at_ms = -BURST_EVERY_MS
        """When one of them was handled before others that waited."""
        self.senders: deque[Sender] = deque()
        self.is_waiting = False


class Sender(Protocol):
    """A connection that may have more to handle than it may at once."""

    turns: Turns

    def go_on(self, until_ms: float) -> bool:
        """Handle a quantum, or until a time; returns whether it wants another turn."""
        ...


class Backlog:
    """Which connection continues when, at one listener."""

    def __init__(self, clock: Clock) -> None:
        # Not the event loop's own clock: uvloop looks at it once in a turn.
        self.now_ms = clock.now_ms
        self._waiting: deque[Turns] = deque()
        self.last: Sender | None = None
        """The connection that was read last, and whether that was another than before. Both are set by the reader:
        most input is one short command, and a call for it would cost too much."""
        self.others_came = False
        self._shared_until_ms = 0.0
        self._bursts = 0
        """Since then."""
        self._bursts_since_ms = -BURST_EVERY_MS

    def __len__(self) -> int:
        return sum(len(turns.senders) for turns in self._waiting)

    def allowance(self, sender: Sender) -> tuple[int, float]:
        """How many more commands a sender that was just read may have handled, and until when."""
        now_ms = self.now_ms()
        if self.others_came:
            self.others_came = False
            self._shared_until_ms = now_ms + ALONE_AFTER_MS
        if self._waiting and not self._may_burst(sender.turns, now_ms):
            # It goes to the end: hundreds that arrive at once must not have a quantum each before the next turn.
            return 0, now_ms
        if now_ms >= self._shared_until_ms:
            return ALONE_COMMANDS, now_ms + ALONE_MS
        return QUANTUM, now_ms + SLICE_MS

    def _may_burst(self, turns: Turns, now_ms: float) -> bool:
        """Whether one that was quiet lately may be handled before those that wait. A yes is counted."""
        if now_ms - self._bursts_since_ms >= BURST_EVERY_MS:
            self._bursts_since_ms, self._bursts = now_ms, 0
        if turns.senders or self._bursts >= BURSTS_MAX or now_ms - turns.burst_at_ms < BURST_EVERY_MS:
            return False
        turns.burst_at_ms = now_ms
        self._bursts += 1
        return True

    def join(self, sender: Sender) -> None:
        """Let a sender continue when it is its turn."""
        was_empty = not self._waiting
        sender.turns.senders.append(sender)
        self._wait(sender.turns)
        if was_empty:
            asyncio.get_running_loop().call_soon(self._serve)

    def _wait(self, turns: Turns) -> None:
        if turns.senders and not turns.is_waiting:
            turns.is_waiting = True
            self._waiting.append(turns)

    def _serve(self) -> None:
        waiting, now_ms = self._waiting, self.now_ms
        until_ms = now_ms() + SLICE_MS
        while waiting:
            turns = waiting.popleft()
            turns.is_waiting = False
            sender = turns.senders.popleft()
            if sender.go_on(until_ms):
                # Its principal may be another one by now.
                sender.turns.senders.append(sender)
                self._wait(sender.turns)
            self._wait(turns)
            if now_ms() >= until_ms:
                break
        if waiting:
            asyncio.get_running_loop().call_soon(self._serve)
