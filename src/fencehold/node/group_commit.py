"""Group commit: whether to wait a moment for the clients that were just answered, before the next append.

Clients that send the next request when they are answered fall into two halves, one in flight while the other is
appended, and every entry carries half a crowd. An append across a network costs the same for half as for all of
them. So a crowd is given as much time as an append takes to come together:

1. Only where appends take long; a file is written before any client could send again. What counts is the quickest
   of the last few: after one that the disk or the processor delayed, all would wait as long once more.
2. Only for a crowd. A client that is alone, or one of few, never waits, even if one of them sends much.
3. No longer than an append, nor than 10 ms, whatever delayed that append; and not at all once all have come. A
   client that does not come is not expected the next time.

Where a server has several shards, the smaller crowd of each also uses the time in which others append (`turns`).
"""

APPEND_S_MIN = 0.001
_CROWD_MIN = 16
_WAIT_S_MAX = 0.01
_CROWD_OF_SHARD_MIN = 4
_ENOUGH = 0.9
"""Of those that came the last time: some have left for good."""


class Company:
    """How many commands are expected, and for how long to wait for them."""

    __slots__ = ("_took_s", "expected")

    def __init__(self) -> None:
        self.expected = 0
        self._took_s = 0.0

    def on_append(self, crowd: int, took_s: float) -> None:
        """An append was made, and one takes so long; so many commands were answered by it or came meanwhile."""
        self.expected = int(crowd * _ENOUGH)
        self._took_s = took_s

    def wait_s(self, here: int) -> float:
        """How long to wait, with so many here already."""
        if here >= self.expected or self.expected < _CROWD_MIN or self._took_s < APPEND_S_MIN:
            return 0.0
        return min(self._took_s, _WAIT_S_MAX)

    def lacks(self, here: int) -> bool:
        """Whether some of a shard's crowd have not come yet, with so many here already."""
        return here < self.expected and self.expected >= _CROWD_OF_SHARD_MIN
