"""One thread that does all work on one client's file, so that the event loop never waits for a disk.

1. Work is done in the order it was given. What is pending is done together: one transaction, one sync.
2. Nothing is written for an answer that can be read: an ask for a busy name costs others nothing.
3. Work whose caller stopped waiting is not begun. What was begun is done.
4. A call has a bound: when its time is over and it was not begun, it never is (`Unavailable`); else its outcome
   is unknown.
5. During a fork no thread is at work, and no file is open: SQLite must not be carried into a child. The child has
   no worker; its parent's continues.
6. After `end` the thread is gone.
"""

import asyncio
import contextlib
import os
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any
from weakref import WeakSet

from fencehold.backends.sqlite.file import LeaseFile, Part
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable

_TOGETHER_MAX = 128
_WAITING_MAX = 10_000
_ENDING_S = 2.0


class _Work:
    """One call."""

    __slots__ = ("_unclaimed", "future", "glance", "part")

    def __init__(self, future: "asyncio.Future[Any]", glance: Part | None, part: Part | None) -> None:
        self.future = future
        self.glance = glance
        """Reads; its answer is the answer, unless it is None."""
        self.part = part
        """Writes."""
        self._unclaimed = [True]

    def claim(self) -> bool:
        """The first to claim it decides: the thread, that it is done; or the caller, that it never is."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False


class SqliteWorker:
    """Belongs to the event loop it was made on."""

    def __init__(self, file: LeaseFile, bound_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._bound_s = bound_s
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._resting = Lock()
        self._ended = self._loop.create_future()
        # A daemon: a client that was not closed must not keep the process from ending.
        self._thread = Thread(target=self._run, name="fencehold sqlite", daemon=True)
        _workers.add(self)
        self._thread.start()

    async def do(self, part: Part | None = None, *, glance: Part | None = None) -> Any:
        """The answer of a glance, or, if it has none, of a part that writes.

        Raises:
            FenceholdError: the error of the part, or see `file.failure`.
        """
        if self._queue.qsize() >= _WAITING_MAX:
            raise Unavailable(f"{_WAITING_MAX} calls wait for the disk already")
        work = _Work(self._loop.create_future(), glance, part)
        self._queue.put(work)
        try:
            async with asyncio.timeout(self._bound_s):
                return await work.future
        except asyncio.CancelledError:
            work.claim()
            raise
        except TimeoutError as error:
            if work.claim():
                raise Unavailable(f"the disk did not get to it within {self._bound_s:g} s") from error
            raise OutcomeUnknown(f"the disk did not answer within {self._bound_s:g} s") from error

    async def end(self) -> None:
        """Finish what was given, then end."""
        self._queue.put(None)
        done, _ = await asyncio.wait([self._ended], timeout=_ENDING_S + self._bound_s)
        if done:
            # This was the last thing the thread did: its end is immediate.
            self._thread.join()
            _workers.remove(self)

    def rest(self) -> None:
        """Pause until `go_on`."""
        self._resting.acquire()
        self._file.close()

    def go_on(self) -> None:
        self._resting.release()

    # On the thread.

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            works = [first, *self._waiting()]
            with self._resting:
                self._do([work for work in works if work is not None and work.claim()])
            if works[-1] is None:
                break
        with self._resting:
            self._file.close()
        self._tell(self._ended, None, None)

    def _waiting(self) -> list[_Work | None]:
        works: list[_Work | None] = []
        with contextlib.suppress(Empty):
            while len(works) < _TOGETHER_MAX and (not works or works[-1] is not None):
                works.append(self._queue.get_nowait())
        return works

    def _do(self, works: list[_Work]) -> None:
        to_write = [work for work in works if not self._is_answered(work)]
        if not to_write:
            return
        try:
            outcomes = self._file.write([work.part for work in to_write if work.part is not None])
        except FenceholdError as error:
            outcomes = [(None, error)] * len(to_write)
        for work, outcome in zip(to_write, outcomes, strict=True):
            self._tell(work.future, *outcome)

    def _is_answered(self, work: _Work) -> bool:
        if work.glance is None:
            return False
        try:
            answer = self._file.read(work.glance)
        except FenceholdError as error:
            self._tell(work.future, None, error)
            return True
        if answer is None and work.part is not None:
            return False
        self._tell(work.future, answer, None)
        return True

    def _tell(self, future: "asyncio.Future[Any]", answer: object, error: BaseException | None) -> None:
        # A closed loop has no waiting callers.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_settle, future, answer, error)


def _settle(future: "asyncio.Future[Any]", answer: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


class _Workers:
    """All of this process, paused while it forks."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._workers: WeakSet[SqliteWorker] = WeakSet()
        self._at_rest: list[SqliteWorker] = []

    def add(self, worker: SqliteWorker) -> None:
        with self._changing:
            self._workers.add(worker)

    def remove(self, worker: SqliteWorker) -> None:
        with self._changing:
            self._workers.discard(worker)

    def before_fork(self) -> None:
        self._changing.acquire()
        self._at_rest.extend(self._workers)
        for worker in self._at_rest:
            worker.rest()

    def after_fork(self) -> None:
        for worker in self._at_rest:
            worker.go_on()
        self._at_rest.clear()
        self._changing.release()

    def in_child(self) -> None:
        # Their threads are not here.
        self._workers.clear()
        self.after_fork()


_workers = _Workers()

os.register_at_fork(
    before=_workers.before_fork, after_in_parent=_workers.after_fork, after_in_child=_workers.in_child
)
