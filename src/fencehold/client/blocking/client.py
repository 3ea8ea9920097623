"""The blocking client: one session on one thread of its own, and all kinds of locks."""

import atexit
import os
import threading
import warnings
from contextlib import ExitStack, suppress
from time import time
from types import TracebackType
from typing import Self, Unpack
from weakref import WeakSet

from fencehold.client.aio.carriers import channel_of
from fencehold.client.blocking.portal import Portal, portal_to
from fencehold.client.blocking.routes import Route
from fencehold.client.blocking.verbs import Verbs
from fencehold.client.blocking.watch import Watch
from fencehold.client.config import configured
from fencehold.client.connect import Plan, Source, plan_of
from fencehold.client.info_pages import check_limit
from fencehold.client.options import BlockingOnly, ConnectOptions, by_name
from fencehold.client.rules import tier_of
from fencehold.drivers.resp.wire import command
from fencehold.errors import Unsupported, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks import history, views
from fencehold.locks.history import History, When
from fencehold.locks.terms import one
from fencehold.types import Tier


class Client(BlockingOnly, Verbs):
    """A client for threads. Made by `connect`; closed by `close` or at the end of `with`.

    Any number of threads may use it at once. A child process that inherits it by a fork gets a session of its own
    when it first uses it, and none of the parent's holds.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan
        self._closed = False
        self._starting = threading.Lock()
        self._portals: dict[Source, Portal] = {}
        self._routes: dict[Tier, Route] = {}
        self._first = self._route_to(plan.first)
        _clients.add(self)

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
        """What happens to names with a prefix, as an iterator of `Event`.

        Args:
            after: begin after these places, the `places` of a watch; with one shard also the `place` of an event,
                or a position; None: from now on. What the service no longer knows is reported as an event of kind
                `gap`, in each shard.
            tier: in which tier; by default CORRECTNESS, if this client has a source for it.
        """
        return Watch(self._route_of(tier), prefix, after)

    def explain(self, name: str, *, limit: int | None = 100, tier: Tier | str | None = None) -> views.Explanation:
        """Who holds a name, since when, and who waits for it.

        Args:
            limit: how many holders, and how many waiters, it lists at most; it counts all. None lists all.
            tier: in which tier; by default CORRECTNESS, if this client has a source for it.
        """
        check_limit(limit)
        return self._route_of(tier).portal().explain(one(name)[0], limit=limit)

    def history(
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
        portal = self._route_of(None).portal()
        channel = channel_of(portal.channel)
        if channel is None:
            raise Unsupported(f"{self.guarantees.backend}:// keeps no history; the Fencehold service does")
        words = history.words_of(one(name)[0], at, since, until, limit, time())
        return history.history_of(portal.run(channel.read(command(*words))))

    def break_hold(self, name: str, *, fence: int = 0, tier: Tier | str | None = None) -> int:
        """Force-release a name: take it from its holders. Returns a fence above every holder's, or 0.

        Args:
            fence: take it only from holders up to this fence, so that doing it twice cannot hit the next one.
            tier: in which tier; by default CORRECTNESS, if this client has a source for it.
        """
        return self._route_of(tier).portal().break_hold(one(name)[0], fence)

    def ready(self) -> None:
        """Wait until a session is open. `connect` has done so once, unless it was lazy.

        Raises:
            Unavailable: no node was reached within the connect timeout.
            PermissionDenied: the service rejects this client.
        """
        self.portal().ready()

    def close(self) -> None:
        """End the session: all it holds is free at once. Then no thread and no socket is left."""
        self._closed = True
        portals, self._portals = self._portals, {}
        with ExitStack() as stack:
            # Taken out one by one: a portal that is started meanwhile is closed by the thread that takes it out.
            while portals:
                stack.callback(portals.popitem()[1].close)

    def portal(self) -> Portal:
        """The thread that talks to the service; started when it is first needed, in each process."""
        return self._first.portal()

    def _is_closed(self) -> bool:
        return self._closed

    def _route(self, names: tuple[str, ...], tier: Tier) -> Route:
        if self._plan.rules.rules:
            self._plan.rules.check(names, tier)
        route = self._routes.get(tier)
        if route is None:
            route = self._routes[tier] = self._route_to(self._plan.source(tier))
        return route

    def _route_of(self, tier: Tier | str | None) -> Route:
        return self._first if tier is None else self._route((), tier_of(tier))

    def _route_to(self, source: Source) -> Route:
        return Route(lambda: self._portals.get(source) or self._start(source), source.guarantees)

    def _start(self, source: Source) -> Portal:
        with self._starting:
            if self._closed:
                raise UsageError("the client is closed")
            portals = self._portals
            portal = portals.get(source)
            if portal is None:
                portal = portals[source] = portal_to(source)
        self._end_if_closed(portals, source)
        return portal

    def _end_if_closed(self, portals: dict[Source, Portal], source: Source) -> None:
        """End what was started while another thread closed the client, unless that one has."""
        if not self._closed:
            return
        portal = portals.pop(source, None)
        if portal is not None:
            portal.close()
        raise UsageError("the client is closed")

    def _on_forked(self) -> None:
        """In a child: the parent's threads are not here, nor is the one that held this lock."""
        self._starting = threading.Lock()
        self._portals = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_portals", None):
            warnings.warn("a Fencehold client was not closed", ResourceWarning, 2, source=self)


@by_name
def connect(
    url: str | None = None,
    *,
    lazy: bool = False,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Connect to a service: ``with connect(…) as client`` or ``client = connect(…)``, to be closed.

    Options that are not given are read from the file, and have a default otherwise. Durations are seconds, a
    `timedelta`, or a text such as "30s".

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
        lazy: connect when it is first used; what `connect` would raise is raised then. For a client that a module
            makes when it is imported: processes that are forked later each have a session of their own. It is
            closed when the interpreter ends, if not before.

    Raises:
        UsageError: an argument is wrong.
        Unavailable: no node was reached in time.
    """
    client = Client(plan_of(configured(url, **options)))
    if lazy:
        _lazy_clients.add(client)
        return client
    try:
        client.ready()
    except BaseException:
        client.close()
        raise
    return client


_clients: WeakSet[Client] = WeakSet()
_lazy_clients: WeakSet[Client] = WeakSet()
"""Those that live as long as the module that made them."""


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client._on_forked()


os.register_at_fork(after_in_child=_after_fork_in_child)


@atexit.register
def _at_exit() -> None:
    for client in list(_lazy_clients):
        # Whatever fails now, what it held is free when the connection is: with the process.
        with suppress(Exception):
            client.close()
