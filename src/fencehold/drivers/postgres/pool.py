"""Pools of pipelines, and the one connection on which a client is notified.

1. A statement goes on the pipeline with the least under way. If all are busy, one more is made meanwhile, up to a
   maximum: a server commits for several connections at once, but for one only one after the other.
2. A caller that can use an existing connection does not wait for a new one; those that must, wait for the same
   one.
3. After a failure the next attempt is delayed, by exponential back-off up to a second; callers that come meanwhile
   get that failure.
4. The listener connects when a caller first waits, and reconnects when the connection is lost, with back-off.
5. Notifications sent while it did not listen are lost, so all waiters try again as soon as it listens.
6. Where it cannot listen, nothing is wrong: waiters poll.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fencehold.drivers.postgres.failures import Rejected
from fencehold.drivers.postgres.pipeline import Pipeline
from fencehold.errors import FenceholdError, Unavailable

_PAUSE_S = 0.05
_PAUSE_S_MAX = 1.0
_LISTEN_PAUSE_S = 0.05
_LISTEN_PAUSE_S_MAX = 5.0


class Reconnect:
    """Makes pipelines, one at a time, for all callers that wait for one, with back-off after failures.

    Belongs to the event loop it is used on.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Pipeline]]) -> None:
        self._make = make
        self._task: asyncio.Task[Pipeline] | None = None
        self._pause_s = 0.0
        self._not_before = 0.0
        self._failure: FenceholdError = Unavailable("the client is closed")
        """Why the last attempt failed."""
        self._is_closed = False

    async def pipeline(self) -> Pipeline:
        """The pipeline that is made next.

        Raises:
            Unavailable, PermissionDenied, …: there is none, as `make` says, or said when it was last tried.
        """
        task = self.begin()
        if task is None:
            raise type(self._failure)(str(self._failure))
        # Others wait for the same one, and go on if this one is cancelled.
        return await asyncio.shield(task)

    def begin(self) -> "asyncio.Task[Pipeline] | None":
        """Begin to make one, unless that is under way; None while there is a pause."""
        if self._task is None and not self._is_closed and asyncio.get_running_loop().time() >= self._not_before:
            self._task = asyncio.create_task(self._make())
            self._task.add_done_callback(self._on_made)
        return self._task

    async def close(self) -> None:
        """Make no more."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_made(self, task: "asyncio.Task[Pipeline]") -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._pause_s = 0.0
            return
        self._failure = error if isinstance(error, FenceholdError) else Unavailable(str(error))
        self._pause_s = min(max(_PAUSE_S, 2 * self._pause_s), _PAUSE_S_MAX)
        self._not_before = asyncio.get_running_loop().time() + self._pause_s


class PipelinePool:
    """The pipelines of one client. Belongs to the event loop it was made on."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Pipeline]], count_max: int, first: Pipeline) -> None:
        self._make = make
        self._count_max = count_max
        self._pipelines = [first]
        self._reconnect = Reconnect(self._made)

    async def pick(self) -> Pipeline:
        """A pipeline to send something on, now.

        Raises:
            Unavailable, PermissionDenied, …: there is none, as `make` says.
        """
        best = self._best()
        if best is None:
            return await self._reconnect.pipeline()
        if best.load and len(self._pipelines) < self._count_max:
            self._reconnect.begin()
        return best

    async def close(self) -> None:
        """End all."""
        await self._reconnect.close()
        for pipeline in tuple(self._pipelines):
            pipeline.end("the client was closed")

    def _best(self) -> Pipeline | None:
        self._pipelines = [each for each in self._pipelines if not each.ended.is_set()]
        return min(self._pipelines, key=lambda each: each.load, default=None)

    async def _made(self) -> Pipeline:
        pipeline = await self._make()
        self._pipelines.append(pipeline)
        return pipeline


class Listener:
    """Belongs to the event loop it was made on."""

    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, Pipeline]],
        channel: str,
        on_word: Callable[[str], None],
        on_listening: Callable[[], None],
    ) -> None:
        self._make = make
        self._channel = channel
        self._on_word = on_word
        self._on_listening = on_listening
        self._task: asyncio.Task[None] | None = None
        self._listens = False

    @property
    def channel(self) -> str:
        """The channel for notifications; empty while it does not listen."""
        return self._channel if self._listens else ""

    def begin(self) -> None:
        """Listen from now on. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        pause_s = _LISTEN_PAUSE_S
        while True:
            with suppress(FenceholdError, Rejected):
                await self._listen()
                pause_s = _LISTEN_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LISTEN_PAUSE_S_MAX)

    async def _listen(self) -> None:
        pipeline = await self._make()
        try:
            pipeline.on_notify = self._on_word
            await pipeline.ask(f'LISTEN "{self._channel}"'.encode())
            self._listens = True
            self._on_listening()
            await pipeline.ended.wait()
        finally:
            self._listens = False
            pipeline.end("the listener has ended")
