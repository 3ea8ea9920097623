"""Turns: the appends of one server's shards go one after the other, while more commands are expected.

Eight shards that append whenever they can make eight small entries where one shard makes a large one, and an
entry costs the same whatever it carries. So a shard lets the append of another end before it makes its own entry,
and gathers commands meanwhile:

1. Only a crowd waits for its turn, and only while some of it are still to come (`group_commit`).
2. The turn is that of the append which was begun last. One that is slow or stuck keeps the others waiting once,
   for `TURN_S_MAX`; then one of them goes before it, and the turn is with that one.
3. The shard that waits longest is next. If it does not append then, as its entry was made elsewhere or it is at
   its end, the one behind it is.
"""

import asyncio
from collections import deque

TURN_S_MAX = 0.01


class Turns:
    """The append that is under way, and those that wait for its end."""

    __slots__ = ("_holder", "_waiting")

    def __init__(self) -> None:
        self._holder: object = None
        self._waiting: deque[asyncio.Event] = deque()

    @property
    def is_taken(self) -> bool:
        return self._holder is not None

    def begin(self, holder: object) -> None:
        """It appends, whether or not it was its turn."""
        self._holder = holder

    def end(self, holder: object) -> None:
        """Its append has ended, well or not."""
        if self._holder is holder:
            self._holder = None
            self.pass_on()

    def pass_on(self) -> None:
        """A shard whose turn may have come does not append: let the next one, unless an append is under way."""
        if self._holder is None and self._waiting:
            self._waiting[0].set()

    def line_up(self, come: asyncio.Event) -> None:
        """Have an event set when its turn has come."""
        self._waiting.append(come)

    def leave(self, come: asyncio.Event) -> None:
        """It waits no longer, for whatever reason."""
        self._waiting.remove(come)
