"""Pace: whether an append is made on the event loop itself, or handed to the appender's thread.

Handing over costs two switches between threads, which on a quick disk is as much as the sync itself: a lone client
waits for them, and a crowd of small batches pays them over and over. So while the disk is quick, small entries are
written and synced where they are; nobody could be answered meanwhile anyway. Large ones go to the thread, since
the loop has much to do while they are synced. One sync that is not quick sends the next few hundred to the
thread, too: a slow or stuck disk holds up the loop only now and then, for one sync.

Figures: docs/decisions/0005-the-hot-path.md.
"""

SMALL_BYTES_MAX = 4 << 10
QUICK_S_MAX = 0.002
THREADED_AFTER_SLOW = 500


class Pace:
    """What the last syncs were like."""

    __slots__ = ("_threaded",)

    def __init__(self) -> None:
        self._threaded = 0

    def allows(self, size_bytes: int) -> bool:
        """Whether an entry of this size may be appended on the event loop now."""
        if self._threaded:
            self._threaded -= 1
            return False
        return size_bytes <= SMALL_BYTES_MAX

    def took(self, seconds: float) -> None:
        """An append on the event loop took so long."""
        if seconds > QUICK_S_MAX:
            self._threaded = THREADED_AFTER_SLOW


class Threaded(Pace):
    """Never on the event loop."""

    def allows(self, size_bytes: int) -> bool:
        return False
