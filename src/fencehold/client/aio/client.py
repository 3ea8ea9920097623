"""The async client: one connection, one session, and the verbs."""

import asyncio
import ssl
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from fencehold.client import views
from fencehold.client.aio.channel import Channel
from fencehold.client.aio.hold import Hold
from fencehold.client.aio.lock import Job, Lock, OnLost
from fencehold.client.aio.once import once
from fencehold.client.aio.recipes import Election, RLock, RWLock
from fencehold.client.aio.watch import Watch, Watches
from fencehold.client.driver import Driver
from fencehold.client.jobs import Busy, wait_when
from fencehold.client.made import Levels
from fencehold.client.making import Making, where
from fencehold.client.terms import Meta, Terms, one, permits, several
from fencehold.client.wire import command

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Client:
    """A client on one event loop. Made by `connect`; closed by `close` or at the end of `async with`.

    Any number of tasks may use it at once. It keeps its session alive by itself, reconnects by itself, and opens a
    new session when the old one has ended.
    """

    def __init__(self, making: Making) -> None:
        protocol = making.protocol()
        self._channel = Channel(
            protocol, Driver(protocol, asyncio.get_running_loop(), making.tls, clock=making.clock)
        )
        self._watches = Watches(self._channel)
        self._levels: Levels[Hold] = Levels()

    def lock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        shared: bool = False,
        meta: Meta = None,
        delay: float = 0,
        on_lost: OnLost = "cancel",
    ) -> Lock:
        """A lock on a name.

        Args:
            ttl: seconds after which the hold ends unless extended; None: it lives as long as the session.
            timeout: seconds to wait for it; None or -1: for ever; 0: not at all.
            shared: hold it together with others who share it.
            meta: shown to whoever asks who holds it. Put a trace id under `trace`.
            delay: seconds the name stays ungranted after an unclean end, for resources that check no fence.
            on_lost: cancel the body of an `async with` when the hold is lost, or only raise at its end.
        """
        terms = Terms(one(name), ttl=ttl, timeout=timeout, shared=shared, meta=meta, delay=delay)
        return Lock(self._channel, terms, on_lost)

    def multi(
        self,
        names: Iterable[str],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        shared: bool = False,
        meta: Meta = None,
        on_lost: OnLost = "cancel",
    ) -> Lock:
        """A lock on several names: all or nothing, in one step, with one fence. Waiting for them holds none."""
        terms = Terms(several(names), ttl=ttl, timeout=timeout, shared=shared, meta=meta)
        return Lock(self._channel, terms, on_lost)

    def rwlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        meta: Meta = None,
        on_lost: OnLost = "cancel",
    ) -> RWLock:
        """A lock for readers and a writer: `.read()` and `.write()` are locks."""
        options = {"ttl": ttl, "timeout": timeout, "meta": meta}
        return RWLock(self._channel, one(name)[0], on_lost, options)

    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        meta: Meta = None,
        on_lost: OnLost = "cancel",
    ) -> Lock:
        """A lock that `limit` may have at once. All who use the name must give the same limit."""
        terms = Terms(one(name), limit=permits(limit), ttl=ttl, timeout=timeout, meta=meta)
        return Lock(self._channel, terms, on_lost)

    def rlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        meta: Meta = None,
        on_lost: OnLost = "cancel",
    ) -> RLock:
        """A lock that the task which has it may take again."""
        return RLock(self.lock(name, ttl=ttl, timeout=timeout, meta=meta, on_lost=on_lost), self._levels)

    def election(self, name: str, *, meta: Meta = None) -> Election:
        """An election: campaign, observe, resign."""
        return Election(self._channel, self._watches, Terms(one(name), meta=meta))

    def once(
        self, name: str, *, at_most: float, at_least: float = 0, busy: Busy = "skip", meta: Meta = None
    ) -> Callable[[Callable[Given, Awaitable[Result]]], Job[Given, Result | None]]:
        """Decorate a job so that it runs in one place at a time.

        Args:
            at_most: seconds after which a run is ended, come what may.
            at_least: seconds for which the name is kept even if the run is quicker, while this client lives.
            busy: skip the run when another is under way (it returns None), wait for it, or raise `LockTimeout`.
        """
        timeout = wait_when(busy, at_most, at_least)
        return once(self.lock(name, ttl=at_most, timeout=timeout, meta=meta), at_least, busy)

    def watch(self, prefix: str = "") -> Watch:
        """What happens to names with a prefix, as an async iterator of `Event`."""
        return Watch(self._channel, self._watches, prefix)

    async def explain(self, name: str) -> views.Explanation:
        """Who has a name, since when, and who waits for it."""
        return views.explanation(await self._channel.read(command("LOCK.INFO", *one(name))))

    async def break_hold(self, name: str, *, fence: int = 0) -> int:
        """By an operator: take a name from whoever holds it. Returns a fence above every holder's.

        Args:
            fence: take it only from holders up to this fence, so that doing it twice cannot hit the next one.
        """
        words: list[str | int] = ["LOCK.BREAK", *one(name), "FENCE", fence]
        reply = await self._channel.read(command(*(words if fence else words[:2])))
        return int(reply[b"fence"])

    async def ready(self) -> None:
        """Wait until a session is open. `connect` has done so once.

        Raises:
            Unavailable: no node was reached within the connect timeout.
            PermissionDenied: the service does not want this client.
        """
        await self._channel.ready()

    async def close(self) -> None:
        """End the session: all it holds is free at once. Then no task, timer or socket is left."""
        self._watches.end()
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if hasattr(self, "_channel") and not self._channel.protocol.unusable:
            warnings.warn("a Fencehold client was not closed", ResourceWarning, 2, source=self)


class Connecting:
    """A client to be: `await` it, or enter it with `async with`."""

    def __init__(self, making: Making) -> None:
        self._making = making
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Client:
        self._client = client = Client(self._making)
        try:
            await client.ready()
        except BaseException:
            await client.close()
            raise
        return client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()


def connect(
    url: str | None = None,
    *,
    ttl: float = 30,
    grace: float = 1,
    name: str | None = None,
    meta: Mapping[str, object] | None = None,
    connect_timeout: float = 5.0,
    tls: ssl.SSLContext | None = None,
) -> Connecting:
    """Connect to a service: ``async with connect(…) as client`` or ``client = await connect(…)``.

    Args:
        url: ``fencehold://host[:port][,host…]``, all nodes of the service; ``fenceholds://`` for TLS.
            None: what ``$FENCEHOLD_URL`` says, or this machine.
        ttl: seconds a session lives without a keep-alive: how long a holder that hangs keeps others waiting.
        grace: seconds a session lives after its connection was closed: how soon a crash is seen.
        name: what this client is called when others ask who holds something.
        meta: more to be said of it.
        connect_timeout: seconds a call waits for the service to be reached.
        tls: the TLS context to connect with.

    Raises:
        UsageError: what was given makes no sense.
        Unavailable: on entering; no node was reached in time.
    """
    return Connecting(Making(where(url), ttl, grace, name or "", meta, connect_timeout, tls).checked())
