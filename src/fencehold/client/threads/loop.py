"""A thread with an event loop, for the connections of a blocking client, and how callers hand over to it.

1. Callers hand over a call and wait at a gate; no task and no future is made for it.
2. What several threads hand over at once wakes the loop once.
3. A child process has no such thread: threads do not survive a fork. It starts its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from fencehold.client.protocol.requests import Acquire
from fencehold.client.threads.detection import threads
from fencehold.client.threads.gates import Gate
from fencehold.errors import UsageError

Result = TypeVar("Result")


class Slip:
    """A promise that a thread waits for."""

    __slots__ = ("_error", "_gate", "is_done", "request", "result")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.is_done = False
        self.result: Any = None
        self._error: BaseException | None = None
        self.request: Acquire | None = None
        """What is to be withdrawn if the caller stops waiting."""

    def done(self) -> bool:
        return self.is_done

    def set_result(self, result: Any, /) -> None:
        self.result, self.is_done = result, True
        self._gate.open()

    def set_exception(self, error: BaseException, /) -> None:
        self._error, self.is_done = error, True
        self._gate.open()

    def wait(self) -> Any:
        """Wait until it is resolved. An interrupt ends the waiting, not the request."""
        self._gate.wait()
        if self._error is not None:
            raise self._error
        return self.result


class LoopThread:
    """The thread and its loop."""

    def __init__(self) -> None:
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._awake = self._closing = self._over = False
        self.threads = threads()
        started = self.slip()
        self._join = self.threads.start(partial(self._run, started))
        try:
            # Made on its own thread: gevent's loops belong to the thread that makes them.
            self.loop: asyncio.AbstractEventLoop = started.wait()
        except BaseException:
            # Seen there when the loop is made, or it is made and can be stopped.
            self._over = True
            if hasattr(self, "_made"):
                self._made.call_soon_threadsafe(self._made.stop)
            raise

    def slip(self) -> "Slip":
        """Something for the calling thread to wait for."""
        return Slip(self.threads.gate())

    # Called by any thread.

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Have something called on the loop."""
        if self.loop.is_closed():
            raise closed()
        try:
            self._posted.append((call, args))
            if self.loop.is_closed():
                # After the append: either this is seen here, or what was appended is seen there and refused.
                raise closed()
            if not self._awake:
                self._awake = True
                self.loop.call_soon_threadsafe(self._drain)
        except BaseException:
            # Interrupted halfway: `_awake` may be set without the loop being woken.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._drain)
            raise

    def run(
        self, coroutine: Coroutine[Any, Any, Result], undo: Callable[[Result], object] | None = None
    ) -> Result:
        """Run a coroutine on the loop; a caller that stops waiting has it cancelled, or undone if it is over."""
        if self.loop.is_closed():
            coroutine.close()
            raise closed()
        slip = self.slip()
        tasks: list[asyncio.Task[Result]] = []
        try:
            self.post(self._start, slip, coroutine, tasks)
            return slip.wait()  # type: ignore[no-any-return]
        except BaseException:
            with suppress(UsageError):
                self.post(_stop_waiting_for, tasks, undo)
            raise

    def run_soon(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Have a coroutine run on the loop, ignoring its outcome; not at all if the client is closed."""
        try:
            self.post(self._start, self.slip(), coroutine, [])
        except UsageError:
            coroutine.close()

    def is_closed(self) -> bool:
        """Whether the client is closed, or being closed."""
        return self._closing

    def close(self) -> None:
        """Close what runs here, then the loop and the thread."""
        if self.loop.is_closed():
            return
        self._closing = True
        try:
            self.run(self.end())
        finally:
            self.loop.call_soon_threadsafe(self._stop)
            self._join()

    # On the loop's thread.

    async def end(self) -> None:
        """Close what runs here."""
        raise NotImplementedError

    def act(self) -> None:
        """Called after all calls that were handed over together."""

    def _run(self, started: Slip) -> None:
        try:
            loop = self._made = self.threads.new_loop()
        except BaseException as error:
            started.set_exception(error)
            return
        asyncio.set_event_loop(loop)
        started.set_result(loop)
        try:
            if not self._over:
                loop.run_forever()
            loop.run_until_complete(self._end_tasks())
        finally:
            loop.close()
            self._refuse_posted()

    def _stop(self) -> None:
        self._over = True
        self.loop.stop()

    async def _end_tasks(self) -> None:
        """Cancel tasks that were started too late to notice that the client is closed."""
        late = asyncio.all_tasks() - {asyncio.current_task()}
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _refuse_posted(self) -> None:
        """Refuse what was handed over after the last `_drain`: wake up the waiting callers with an error."""
        while self._posted:
            _, args = self._posted.popleft()
            for arg in args:
                if isinstance(arg, Slip) and not arg.done():
                    arg.set_exception(closed())
                elif isinstance(arg, Coroutine):
                    arg.close()

    def _drain(self) -> None:
        # Before the first read: what is posted from now on wakes the loop again.
        self._awake = False
        posted = self._posted
        while posted:
            call, args = posted.popleft()
            call(*args)
        self.act()

    def _start(
        self, slip: Slip, coroutine: Coroutine[Any, Any, Result], tasks: "list[asyncio.Task[Result]]"
    ) -> None:
        if self._over:
            coroutine.close()
            slip.set_exception(closed())
            return
        task = self.loop.create_task(coroutine)
        tasks.append(task)
        task.add_done_callback(lambda done: _keep(slip, done))


def _stop_waiting_for(tasks: "list[asyncio.Task[Result]]", undo: Callable[[Result], object] | None) -> None:
    for task in tasks:
        if not task.done():
            task.cancel()
        elif undo is not None and not task.cancelled() and task.exception() is None:
            undo(task.result())


def closed() -> UsageError:
    """The error of calls on a closed client."""
    return UsageError("the client is closed")


def _keep(slip: Slip, task: "asyncio.Task[Any]") -> None:
    if task.cancelled():
        slip.set_exception(closed())
    elif (error := task.exception()) is not None:
        slip.set_exception(error)
    else:
        slip.set_result(task.result())
