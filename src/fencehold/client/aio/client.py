"""The async client: one connection, one session, and all kinds of locks."""

import warnings
from collections.abc import Generator
from contextlib import AsyncExitStack
from functools import partial
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from fencehold.client.aio.carriers import LazyCarrier, channel_of
from fencehold.client.aio.channel import Channel
from fencehold.client.aio.verbs import Verbs
from fencehold.client.aio.watch import Watch
from fencehold.client.config import configured
from fencehold.client.connect import Plan, Source, carrier_of, plan_of
from fencehold.client.info_pages import check_limit
from fencehold.client.options import AsyncOnly, ConnectOptions, by_name
from fencehold.client.rules import tier_of
from fencehold.drivers.resp.wire import command
from fencehold.errors import Unsupported, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks import history, views
from fencehold.locks.carrier import Carrier, check_loop
from fencehold.locks.history import History, When
from fencehold.locks.terms import one
from fencehold.types import Tier


class Client(AsyncOnly, Verbs):
    """A client on one event loop. Made by `connect`; closed by `close` or at the end of `async with`.

    Any number of tasks may use it at once. It keeps its session alive by itself, reconnects by itself, and opens a
    new session when the old one has ended.
    """

    def __init__(self, plan: Plan, *, lazy: bool = False) -> None:
        super().__init__()
        self._plan = plan
        self._lazy = lazy
        self._sources: dict[Source, Carrier] = {}
        self._carriers: dict[Tier, Carrier] = {}
        self._closed = False
        self._first = self._open(plan.first)

    @property
    def guarantees(self) -> Guarantees:
        """What is guaranteed for CORRECTNESS; or, if this client has no source for that, for EFFICIENCY."""
        return self._plan.first.guarantees

    def watch(
        self,
        prefix: str = "",
        *,
        after: str | tuple[int, int] | int | None = None,
        tier: Tier | str | None = None,
    ) -> Watch:
        """What happens to names with a prefix, as an async iterator of `Event`.

        Args:
            after: begin after these places, the `places` of a watch; with one shard also the `place` of an event,
                or a position; None: from now on. What the service no longer knows is reported as an event of kind
                `gap`, in each shard.
            tier: in which tier; by default CORRECTNESS, if this client has a source for it.
        """
        carrier = self._carrier_of(tier)
        channel = channel_of(carrier)
        if channel is None:
            raise Unsupported(f"{carrier.guarantees.backend}:// has no events; the Fencehold service does")
        return Watch(channel, prefix, after)

    async def explain(
        self, name: str, *, limit: int | None = 100, tier: Tier | str | None = None
    ) -> views.Explanation:
        """Who holds a name, since when, and who waits for it.

        Args:
            limit: how many holders, and how many waiters, it lists at most; it counts all. None lists all.
            tier: in which tier; by default CORRECTNESS, if this client has a source for it.
        """
        check_limit(limit)
        return await self._carrier_of(tier).explain(one(name)[0], limit=limit)

    async def history(
        self,
        name: str,
        *,
        at: When | None = None,
        since: When | None = None,
        until: When | None = None,
        limit: int = 100,
    ) -> History:
        """Who held a name, when, with which fence, how it ended, and who waited; the newest first.

        Times are a `datetime`, seconds since 1970 or ISO 8601 text; or how long ago: a `timedelta`, or "1h".

        Args:
            at: who held it, and who waited, at this instant.
            since: what had not ended by then.
            until: what had begun by then.
            limit: at most how many holds, and how many waits; up to 1000.

        Raises:
            Unsupported: this is no Fencehold service.
            UsageError: this server keeps no history.
        """
        channel = channel_of(self._first)
        if channel is None:
            raise Unsupported(f"{self._first.guarantees.backend}:// keeps no history; the Fencehold service does")
        words = history.words_of(one(name)[0], at, since, until, limit, time())
        return history.history_of(await channel.read(command(*words)))

    async def break_hold(self, name: str, *, fence: int = 0, tier: Tier | str | None = None) -> int:
        """Force-release a name: take it from its holders. Returns a fence above every holder's, or 0.

        Args:
            fence: take it only from holders up to this fence, so that doing it twice cannot hit the next one.
            tier: in which tier; by default CORRECTNESS, if this client has a source for it.
        """
        return await self._carrier_of(tier).break_hold(one(name)[0], fence)

    async def ready(self) -> None:
        """Wait until a session is open. `connect` has done so once, unless it was lazy.

        Raises:
            Unavailable: no node was reached within the connect timeout.
            PermissionDenied: the service rejects this client.
        """
        for carrier in tuple(self._sources.values()):
            await carrier.ready()

    async def close(self) -> None:
        """End the session: all it holds is free at once. Then no task, timer or socket is left.

        Raises:
            UsageError: the client belongs to another event loop, and cannot be closed on this one.
        """
        was_closed, self._closed = self._closed, True
        try:
            async with AsyncExitStack() as stack:
                for carrier in self._sources.values():
                    stack.push_async_callback(carrier.close)
        except UsageError:
            # Not here: it is still to be closed on its own loop.
            self._closed = was_closed
            raise

    @property
    def _channel(self) -> Channel:
        """The channel to the service, for tests."""
        assert isinstance(self._first, Channel)
        return self._first

    def _is_closed(self) -> bool:
        return self._closed

    def _route(self, names: tuple[str, ...], tier: Tier) -> Carrier:
        if self._plan.rules.rules:
            self._plan.rules.check(names, tier)
        carrier = self._carriers.get(tier)
        if carrier is None:
            carrier = self._carriers[tier] = self._open(self._plan.source(tier))
        return carrier

    def _carrier_of(self, tier: Tier | str | None) -> Carrier:
        return self._first if tier is None else self._route((), tier_of(tier))

    def _open(self, source: Source) -> Carrier:
        carrier = self._sources.get(source)
        if carrier is None:
            if self._closed:
                raise UsageError("the client is closed")
            carrier = self._sources[source] = self._lazily(source) if self._lazy else self._made(source)
        return carrier

    def _made(self, source: Source) -> Carrier:
        for other in self._sources.values():
            check_loop(other.loop)
        return carrier_of(source)

    def _lazily(self, source: Source) -> Carrier:
        return LazyCarrier(partial(carrier_of, source), source.guarantees)

    def _is_open(self) -> bool:
        first = getattr(self, "_first", None)
        if first is None or self._closed or (isinstance(first, LazyCarrier) and not first.is_made):
            return False
        channel = channel_of(first)
        return channel is None or not channel.protocol.unusable

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._is_open():
            warnings.warn("a Fencehold client was not closed", ResourceWarning, 2, source=self)


class Connecting(AsyncOnly):
    """A client to be: `await` it, or enter it with `async with`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self.__aenter__().__await__()

    # Not for type checkers, which know what this has.
    if not TYPE_CHECKING:

        def __getattr__(self, name):
            told = f"{type(self).__name__!r} object has no attribute {name!r}"
            if hasattr(Client, name):
                told = "not connected yet: `client = await connect(…)`, or `async with connect(…) as client`"
            raise AttributeError(told, name=name, obj=self)

    async def __aenter__(self) -> Client:
        self._client = client = Client(self.plan)
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


@overload
def connect(
    url: str | None = None, *, lazy: Literal[False] = False, **options: Unpack[ConnectOptions]
) -> Connecting: ...


@overload
def connect(url: str | None = None, *, lazy: Literal[True], **options: Unpack[ConnectOptions]) -> Client: ...


@by_name
def connect(
    url: str | None = None,
    *,
    lazy: bool = False,
    **options: Unpack[ConnectOptions],
) -> Connecting | Client:
    """Connect to a service: ``async with connect(…) as client`` or ``client = await connect(…)``.

    Options that are not given are read from the file, and have a default otherwise. Durations are seconds, a
    `timedelta`, or a text such as "30s".

    With ``lazy=True`` it is a client at once, without a loop: a module can make it when it is imported, and locks
    and decorators of it. It connects when it is first used, and belongs to the loop that runs then.

    Args:
        url: ``fencehold://host[:port][,host…]``, all nodes of the service; ``fenceholds://`` for TLS; or a backend
            to be used directly: ``memory://``, ``redis://…``, ``postgresql://…`` and others.
            None: what ``$FENCEHOLD_URL`` or the file says, or this machine.
        correctness: instead of one URL for both tiers, the one for what protects state…
        efficiency: …and the one for what only avoids doing work twice.
        rules: names, or prefixes of names with a ``*``, that are for one tier whatever a caller says.
        on_unavailable: ``"proceed"``: an acquire for EFFICIENCY whose backend is unavailable proceeds without a
            lock, and the claim says so. ``"raise"`` is the default, and CORRECTNESS never proceeds without.
        ttl: how long a session lives without a keep-alive: how long a holder that hangs keeps others waiting; 30.
        grace: the reconnect window: how long a session can be resumed after its connection was closed, and so how
            soon a crash is seen; 1.
        name: the name of this client, as `explain` shows it.
        meta: more about it, for `explain`.
        connect_timeout: how long a call waits for the service to be reached; 5.
        long_wait: how long an acquire waits before the log warns, saying who holds the name; 0: never; 60.
        tls: the TLS context to connect with.
        config: a TOML file with a table ``[client]``; None: the one that ``$FENCEHOLD_CONFIG`` names, if any.
        lazy: connect when it is first used; what `connect` would raise is raised then.

    Raises:
        UsageError: an argument is wrong.
        Unavailable: on entering; no node was reached in time.
    """
    plan = plan_of(configured(url, **options))
    return Client(plan, lazy=True) if lazy else Connecting(plan)
