"""One thread that does one journal's blocking work, one piece after the other.

An executor would do, but the hand-over is on the path of every append: this one is a queue and a callback, and
costs 290 µs with a sync inside where `ThreadPoolExecutor` costs 350. The rules it obeys:

1. Work is done in the order it was given. What a cancelled caller had asked for is done all the same, unless it
   was not begun yet.
2. After each piece of work `on_done` is called on the event loop, whether or not a caller still waits.
3. `end` lets all work given before it be done. Then the thread is gone.

`AppendPace` decides whether an append is made on the event loop itself, or handed to the thread. Handing over
costs two switches between threads, which on a quick disk is as much as the sync itself: a lone client waits for
them, and a crowd of small batches pays them over and over. So while the disk is quick, small entries are written
and synced on the loop; no client could be answered meanwhile anyway. Large ones go to the thread, since the loop
has much to do while they are synced: unless they are of the only client, which has nobody beside it to be read
meanwhile, and the disk is quicker still. The last dozen appends decide, by how long they took on the loop or on
the thread, without the hand-over (or a busy loop would never get them back): one that was slow because a neighbour
used the disk changes nothing; where several are, the thread makes them until they are quick again. So a slow disk
holds up the loop for a few syncs, and a stuck one for one.

Figures: docs/decisions/0005-the-hot-path.md.
"""

import asyncio
import contextlib
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_Work = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
SMALL_BYTES_MAX = 4 << 10
QUICK_S_MAX = 0.001
"""What appends may take on the average, so that the loop makes them."""
LONE_BYTES_MAX = 64 << 10
LONE_QUICK_S_MAX = 0.0005
"""The same, of large ones whose client is the only one."""
_COUNTED_S_MAX = 0.008
"""What one append counts for at the most: two of them at a time are too slow on the average, one is not."""
_LEARN = 1 / 12


class FileWorker:
    """A thread that belongs to the event loop it was made on."""

    def __init__(self, name: str, on_done: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._on_done = on_done
        self._given = 0
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # Set as the last thing the thread does, so there is nothing to wait for but its end.
        self._ended.add_done_callback(lambda _: self._thread.join())
        # A daemon: a journal that was not closed must not keep the process from ending, and loses nothing by it.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Have `work` done on the thread; the future is its outcome."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._given += 1
        self._queue.put((future, work, args))
        return future

    @property
    def is_idle(self) -> bool:
        """Whether all work given is done: then what the thread owns may be touched from the loop."""
        return not self._given

    def do_here(self, work: Callable[..., T], *args: Any) -> T:
        """Do `work` on the loop, in the thread's place. Only while it is idle."""
        try:
            return work(*args)
        finally:
            self._on_done()

    def end(self) -> "asyncio.Future[None]":
        """Take no more work; the future is done when all work is, and the thread with it."""
        self._queue.put(None)
        return asyncio.shield(self._ended)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work, args = item
            # Read from this thread it may be a moment old: then the work is done and no caller waits for it.
            outcome = (None, None) if future.cancelled() else _outcome(work, args)
            self._tell(future, *outcome)
        self._tell(self._ended, None, None)

    def _tell(self, future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
        # A loop that is closed has no caller left to notify.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, future, result, error)

    def _settle(self, future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
        self._given -= 1
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._on_done()


def _outcome(work: Callable[..., T], args: tuple[Any, ...]) -> tuple[T | None, BaseException | None]:
    try:
        return work(*args), None
    # Everything is the caller's: nothing may end the thread before its time.
    except BaseException as error:
        return None, error


class AppendPace:
    """How quick the last syncs were."""

    __slots__ = ("_average_s",)

    def __init__(self) -> None:
        self._average_s = 0.0

    def allows(self, size_bytes: int, *, is_lone: bool) -> bool:
        """Whether an entry of this size may be appended on the event loop now, of the only client or of any."""
        if size_bytes <= SMALL_BYTES_MAX:
            return self._average_s <= QUICK_S_MAX
        return is_lone and size_bytes <= LONE_BYTES_MAX and self._average_s <= LONE_QUICK_S_MAX

    def took(self, seconds: float) -> None:
        """An append took so long, wherever it was made."""
        self._average_s += _LEARN * (min(seconds, _COUNTED_S_MAX) - self._average_s)


class ThreadedPace(AppendPace):
    """Never on the event loop."""

    def allows(self, size_bytes: int, *, is_lone: bool) -> bool:
        return False
