"""The service for tests on an event loop: the same verbs, as coroutines. See `Service` for what they do."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, overload

from fencehold.client.aio.client import Connecting, connect
from fencehold.durations import Duration, seconds_of
from fencehold.testing.background import background
from fencehold.testing.clients import AnyClient
from fencehold.testing.inspection import AnyHold, Seen
from fencehold.testing.stage import Drivers, Stage
from fencehold.testing.timeline import NEVER_TRUE, PATIENCE_S, until


class AsyncService(Seen):
    """A service whose clients may run on the loop of the test. Made by ``async with Service()``."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def _here(self) -> Stage:
        return self._stage

    def connect(
        self,
        *,
        ttl: Duration = 30,
        grace: Duration = 1,
        name: str | None = None,
        meta: Mapping[str, object] | None = None,
        connect_timeout: Duration = 5.0,
    ) -> Connecting:
        """A client to be, as `fencehold.aio.connect` makes it: await it, or use it in `async with`."""
        return connect(self.url, ttl=ttl, grace=grace, name=name, meta=meta, connect_timeout=connect_timeout)

    async def advance(self, seconds: Duration) -> None:
        """Let this much time pass, at once, for all services and clients of this process."""
        await background.wait(background.timeline.advance(seconds_of("seconds", seconds)))

    async def until(self, true: Callable[[], object]) -> None:
        """Wait, in real time, until something is true: for the effects of the test's own tasks."""
        if not await until(true, PATIENCE_S):
            raise TimeoutError(NEVER_TRUE)

    async def expire(self, hold: AnyHold) -> None:
        """Have the server end a hold as if it had expired. Its holder is notified."""
        await background.wait(self._stage.expire(hold.names, hold.fence))

    async def break_hold(self, name: str) -> int:
        """Force-release a name, as an operator does. Returns a fence above every holder's."""
        return await background.wait(self._stage.break_hold(name))

    @overload
    def pause(self, client: AnyClient | str) -> AbstractAsyncContextManager[None]: ...
    @overload
    def pause(self, client: AnyClient | str, *, for_: Duration) -> Coroutine[Any, Any, None]: ...
    def pause(
        self, client: AnyClient | str, *, for_: Duration | None = None
    ) -> AbstractAsyncContextManager[None] | Coroutine[Any, Any, None]:
        """Stop a client: ``async with service.pause(client)``, or ``await service.pause(client, for_=40)``.

        The tasks that use it keep running: only the client's own timers and all its traffic stop.
        """
        pausing = self._cut(frozenset({self._driver(client)}), asleep=True)
        return pausing if for_ is None else self._within(pausing, for_)

    def partition(self, *clients: AnyClient | str) -> AbstractAsyncContextManager[None]:
        """Cut some clients, or all, off from the service while the body of the `async with` runs."""
        return self._cut(self._drivers(clients))

    async def drop_connections(self, *clients: AnyClient | str) -> None:
        """Close the connections of some clients, or all. They reconnect, and nothing is lost."""
        await background.wait(self._stage.drop(self._drivers(clients)))

    async def restart(self) -> None:
        """Stop the server and start it again on its journal. Sessions continue, and with them all holds."""
        await background.wait(self._stage.restart())

    async def kill(self, client: AnyClient | str) -> None:
        """End a client as `kill -9` ends its process: its holds are released when its grace is over."""
        await background.wait(self._stage.kill(self._driver(client)))

    async def _within(self, pausing: AbstractAsyncContextManager[None], seconds: Duration) -> None:
        async with pausing:
            await self.advance(seconds)

    @asynccontextmanager
    async def _cut(self, drivers: Drivers, *, asleep: bool = False) -> AsyncIterator[None]:
        cut = await background.wait(self._stage.cut(drivers, asleep=asleep))
        try:
            yield
        finally:
            await background.wait(self._stage.repair(cut))
