"""The portal: one thread with an event loop, on which the session protocol lives, and the way in and out of it.

1. Callers hand over what they want and sleep on a plain lock; no task and no future is made for it.
2. What several threads hand over at once wakes the loop once.
3. A caller that stops waiting (a KeyboardInterrupt) has what it asked for withdrawn.
4. A child process has no portal: threads do not survive a fork. It starts its own.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fencehold.client.aio.channel import Channel
from fencehold.client.aio.watch import Watches
from fencehold.client.clock import clock
from fencehold.client.driver import Driver
from fencehold.client.identity import Owners
from fencehold.client.making import Making
from fencehold.client.requests import Acquire
from fencehold.client.terms import Terms
from fencehold.client.trust import Grant
from fencehold.errors import FenceholdError, UsageError

Result = TypeVar("Result")


class Slip:
    """A promise that a thread sleeps on."""

    __slots__ = ("_done", "_error", "_lock", "_result", "request")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.request: Acquire | None = None
        """What is to be withdrawn if nobody waits any more."""

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        self._result, self._done = result, True
        self._lock.release()

    def set_exception(self, error: BaseException, /) -> None:
        self._error, self._done = error, True
        self._lock.release()

    def wait(self) -> Any:
        """Sleep until it is kept. An interrupt ends the sleep, not what was asked."""
        self._lock.acquire()
        if self._error is not None:
            raise self._error
        return self._result


class Portal:
    """The thread, its loop, and what lives on it."""

    def __init__(self, making: Making) -> None:
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._awake = self._closing = self._over = False
        self.owners = Owners()
        self._loop = asyncio.new_event_loop()
        self.protocol = making.protocol()
        started = Slip()
        self._thread = threading.Thread(target=self._run, args=(making, started), name="fencehold", daemon=True)
        self._thread.start()
        self._driver, self.channel, self.watches = started.wait()

    # Called by any thread.

    def acquire(self, terms: Terms, owner: bytes | None = None) -> Grant | None:
        """Acquire for the calling thread, or for an owner made `anew`."""
        slip = Slip()
        try:
            # Inside: an interrupt may come when it is handed over, and this thread not yet asleep.
            self._post(self._acquire, slip, terms, owner or self.owners.of(threading.current_thread()))
            return slip.wait()  # type: ignore[no-any-return]
        except BaseException:
            self._post(self._abandon, slip)
            raise

    def release(self, grant: Grant) -> None:
        """Give a grant back. Once handed over it is done, whoever stops waiting."""
        slip = Slip()
        self._post(self._call, slip, self.protocol.release, grant, slip)
        slip.wait()

    def extend(self, grant: Grant, ttl_ms: int) -> None:
        """Move the end of a grant."""
        slip = Slip()
        self._post(self._call, slip, self.protocol.extend, grant, ttl_ms, slip)
        slip.wait()

    def read(self, words: bytes) -> Any:
        """Send a command that may be sent twice, and return the reply as it came."""
        slip = Slip()
        self._post(self._call, slip, self.protocol.read, words, slip)
        return slip.wait()

    def ready(self) -> None:
        """Wait until a session is open."""
        slip = Slip()
        self._post(self._call, slip, self.protocol.ready, slip)
        slip.wait()

    def forget(self, grant: Grant) -> None:
        """Trust a grant no longer, and leave it to run out at the server."""
        # At once: whoever looks at it next must not find it trusted.
        grant.ending = "released"
        self._post(self.protocol.forget, grant)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop; for verbs that are not called often."""
        slip = Slip()
        tasks: list[asyncio.Task[Result]] = []
        try:
            self._post(self._start, slip, coroutine, tasks)
            return slip.wait()  # type: ignore[no-any-return]
        except BaseException:
            self._post(lambda: [task.cancel() for task in tasks])
            raise

    def run_soon(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Have a coroutine run on the loop, whatever becomes of it; not at all if the client is closed."""
        try:
            self._post(self._start, Slip(), coroutine, [])
        except UsageError:
            coroutine.close()

    def is_closed(self) -> bool:
        """Whether the client is closed, or being closed."""
        return self._closing

    def close(self) -> None:
        """End the session, then the loop and the thread."""
        if self._loop.is_closed():
            return
        self._closing = True
        try:
            self.run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    # On the loop's thread.

    def _run(self, making: Making, started: Slip) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._begin(making, started))
            self._loop.run_forever()
            self._loop.run_until_complete(self._end_tasks())
        finally:
            self._loop.close()
            self._refuse_posted()

    async def _begin(self, making: Making, started: Slip) -> None:
        driver = Driver(self.protocol, self._loop, making.tls)
        channel = Channel(self.protocol, driver)
        started.set_result((driver, channel, Watches(channel)))

    def _stop(self) -> None:
        self._over = True
        self._loop.stop()

    async def _end_tasks(self) -> None:
        """End what was begun too late to see that the client is closed."""
        late = asyncio.all_tasks() - {asyncio.current_task()}
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _refuse_posted(self) -> None:
        """What was handed over when nobody looked any more: whoever sleeps on it is to hear so."""
        while self._posted:
            _, args = self._posted.popleft()
            for arg in args:
                if isinstance(arg, Slip) and not arg.done():
                    arg.set_exception(_closed())
                elif isinstance(arg, Coroutine):
                    arg.close()

    async def _close(self) -> None:
        self.watches.end()
        await self.channel.close()

    def _post(self, call: Callable[..., object], *args: Any) -> None:
        if self._loop.is_closed():
            raise _closed()
        try:
            self._posted.append((call, args))
            if self._loop.is_closed():
                # After the append: either this is seen here, or what was appended is seen there and refused.
                raise _closed()
            if not self._awake:
                self._awake = True
                self._loop.call_soon_threadsafe(self._drain)
        except BaseException:
            # Interrupted halfway: nobody may take the loop for awake that was not woken.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)
            raise

    def _drain(self) -> None:
        # Before the first look: what is posted from here on wakes the loop again.
        self._awake = False
        posted = self._posted
        while posted:
            call, args = posted.popleft()
            call(*args)
        self._driver.act()

    def _acquire(self, slip: Slip, terms: Terms, owner: bytes) -> None:
        try:
            slip.request = self.protocol.acquire(terms, owner, slip, clock())
        except FenceholdError as error:
            slip.set_exception(error)

    def _abandon(self, slip: Slip) -> None:
        if slip.request is not None:
            self.protocol.abandon(slip.request, clock())

    def _call(self, slip: Slip, verb: Callable[..., object], *args: Any) -> None:
        try:
            verb(*args, clock())
        except FenceholdError as error:
            slip.set_exception(error)

    def _start(
        self, slip: Slip, coroutine: Coroutine[Any, Any, Result], tasks: "list[asyncio.Task[Result]]"
    ) -> None:
        if self._over:
            coroutine.close()
            slip.set_exception(_closed())
            return
        task = self._loop.create_task(coroutine)
        tasks.append(task)
        task.add_done_callback(lambda done: _keep(slip, done))


def _closed() -> UsageError:
    return UsageError("the client is closed")


def _keep(slip: Slip, task: "asyncio.Task[Any]") -> None:
    if task.cancelled():
        slip.set_exception(_closed())
    elif (error := task.exception()) is not None:
        slip.set_exception(error)
    else:
        slip.set_result(task.result())
