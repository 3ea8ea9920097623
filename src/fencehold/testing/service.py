"""The service for tests: a server in the test's own process, virtual time, and failures on demand.

The verbs here block, for tests that do; `AsyncService` has the same ones for tests on an event loop.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Self, overload

from fencehold.client.aio.client import Connecting
from fencehold.client.aio.client import connect as aio_connect
from fencehold.client.blocking.client import Client, connect
from fencehold.durations import Duration, seconds_of
from fencehold.errors import UsageError
from fencehold.security.tls import ServerTls
from fencehold.testing.aio import AsyncService
from fencehold.testing.background import background
from fencehold.testing.clients import AnyClient
from fencehold.testing.inspection import AnyHold, Seen
from fencehold.testing.stage import Drivers, Stage
from fencehold.testing.timeline import NEVER_TRUE, PATIENCE_S


class Service(Seen):
    """A lock service inside this process; its state is lost when it is closed.

    ``with Service() as service`` is for tests that block; ``async with Service() as service`` gives an
    `AsyncService`, whose verbs are awaited. `aio` is that one for a service that is open already.

    Clients are made by `connect` and `aio_connect`, or by the code under test with `url`. Where a verb takes a
    client, the name it was given (``connect(name=…)``) does, too.

    Time is virtual: `advance` makes it pass for all services and all clients of the process at once. It is
    Fencehold's time only; `time.sleep` and `asyncio.sleep` wait as usual.

    Every verb returns when all its effects have happened, and all reachable clients know of them.
    """

    def __init__(self, *, tls: ServerTls | None = None) -> None:
        """Make one; with `tls` it speaks TLS, with a certificate for 127.0.0.1."""
        self._tls = tls
        self._stage: Stage | None = None
        self._clients: list[Client] = []

    # Its life.

    def open(self) -> None:
        """Start; the same as entering it."""
        if self._stage is not None:
            raise UsageError("the service is open already")
        background.enter()
        stage = Stage(background.timeline, self._tls)
        try:
            background.submit(stage.open()).result()
        except BaseException:
            background.leave()
            raise
        self._stage = stage

    def close(self) -> None:
        """Stop. Clients that are still connected are cut off for good; those made by `connect` are closed."""
        stage, self._stage = self._stage, None
        if stage is None:
            return
        try:
            background.submit(stage.close()).result()
        finally:
            background.leave()
        clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncService:
        self.open()
        return self.aio

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def aio(self) -> AsyncService:
        """The same service, with awaitable verbs."""
        return AsyncService(self._here())

    def _here(self) -> Stage:
        if self._stage is None:
            raise UsageError("the service is not open: use it in a `with` or an `async with`")
        return self._stage

    # Clients.

    def connect(
        self,
        *,
        ttl: Duration = 30,
        grace: Duration = 1,
        name: str | None = None,
        meta: Mapping[str, object] | None = None,
        connect_timeout: Duration = 5.0,
    ) -> Client:
        """A blocking client, as `fencehold.connect` makes it. It is closed with the service, if not before."""
        client = connect(self.url, ttl=ttl, grace=grace, name=name, meta=meta, connect_timeout=connect_timeout)
        self._clients.append(client)
        return client

    def aio_connect(
        self,
        *,
        ttl: Duration = 30,
        grace: Duration = 1,
        name: str | None = None,
        meta: Mapping[str, object] | None = None,
        connect_timeout: Duration = 5.0,
    ) -> Connecting:
        """An async client to be, as `fencehold.aio.connect` makes it: await it, or use it in `async with`."""
        return aio_connect(self.url, ttl=ttl, grace=grace, name=name, meta=meta, connect_timeout=connect_timeout)

    # Time.

    def advance(self, seconds: Duration) -> None:
        """Let this much time pass, at once, for all services and clients of this process.

        Healthy clients keep their sessions; holds with a ttl of their own run out, waits time out, and clients
        that are paused or cut off for longer than their ttl lose what they hold. Clients in other processes keep
        their own time: to them it seems that the server's runs away.
        """
        self._here()
        background.run(background.timeline.advance(seconds_of("seconds", seconds)))

    def until(self, true: Callable[[], object]) -> None:
        """Wait, in real time, until something is true: for the effects of the test's own threads.

        Raises:
            TimeoutError: it was not true within ten seconds.
        """
        limit = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > limit:
                raise TimeoutError(NEVER_TRUE)
            time.sleep(0.001)

    # Trouble.

    def expire(self, hold: AnyHold) -> None:
        """Have the server end a hold as if it had expired. Its holder is notified.

        Raises:
            UsageError: it is no longer held.
        """
        background.run(self._here().expire(hold.names, hold.fence))

    def break_hold(self, name: str) -> int:
        """Force-release a name, as an operator does. Returns a fence above every holder's."""
        return background.run(self._here().break_hold(name))

    @overload
    def pause(self, client: AnyClient | str) -> AbstractContextManager[None]: ...
    @overload
    def pause(self, client: AnyClient | str, *, for_: Duration) -> None: ...
    def pause(
        self, client: AnyClient | str, *, for_: Duration | None = None
    ) -> AbstractContextManager[None] | None:
        """Stop a client as if its process were stopped: nothing goes in or out, and it notices nothing.

        ``with service.pause(client):`` stops it for as long as the body takes; let time pass there with
        `advance`. With `for_`, it is stopped for that many seconds of virtual time, which have passed on return.
        Calls to the client meanwhile are executed when it wakes up.
        """
        pausing = self._cut(frozenset({self._driver(client)}), asleep=True)
        if for_ is None:
            return pausing
        with pausing:
            self.advance(for_)
        return None

    def partition(self, *clients: AnyClient | str) -> AbstractContextManager[None]:
        """Cut some clients, or all, off from the service while the body of the `with` runs.

        Nothing gets through, new connections hang, and neither side is notified. Afterwards, what was sent
        meanwhile arrives.
        """
        return self._cut(self._drivers(clients))

    def drop_connections(self, *clients: AnyClient | str) -> None:
        """Close the connections of some clients, or all. They reconnect, and nothing is lost."""
        background.run(self._here().drop(self._drivers(clients)))

    def restart(self) -> None:
        """Stop the server and start it again on its journal. Sessions continue, and with them all holds."""
        background.run(self._here().restart())

    def kill(self, client: AnyClient | str) -> None:
        """End a client as `kill -9` ends its process: its holds are released when its grace is over."""
        background.run(self._here().kill(self._driver(client)))
        if isinstance(client, Client):
            client.close()

    @contextmanager
    def _cut(self, drivers: Drivers, *, asleep: bool = False) -> Iterator[None]:
        cut = background.run(self._here().cut(drivers, asleep=asleep))
        try:
            yield
        finally:
            background.run(self._here().repair(cut))
