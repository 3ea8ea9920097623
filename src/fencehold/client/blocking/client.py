"""The blocking client: one session on one thread of its own, and the verbs."""

import os
import ssl
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import ParamSpec, Self, TypeVar
from weakref import WeakSet

from fencehold.client import views
from fencehold.client.blocking.hold import Hold
from fencehold.client.blocking.lock import Lock
from fencehold.client.blocking.portal import Portal
from fencehold.client.blocking.recipes import Election, RLock, RWLock, Watch, once
from fencehold.client.jobs import Busy, wait_when
from fencehold.client.made import Levels
from fencehold.client.making import Making, where
from fencehold.client.terms import Meta, Terms, one, permits, several
from fencehold.client.wire import command
from fencehold.errors import UsageError

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Client:
    """A client for threads. Made by `connect`; closed by `close` or at the end of `with`.

    Any number of threads may use it at once. A child process that inherits it by a fork gets a session of its own
    when it first uses it, and none of the parent's holds.
    """

    def __init__(self, making: Making) -> None:
        self._making = making
        self._closed = False
        self._starting = threading.Lock()
        self._portal: Portal | None = None
        self._levels: Levels[Hold] = Levels()
        _clients.add(self)

    def lock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        shared: bool = False,
        meta: Meta = None,
        delay: float = 0,
    ) -> Lock:
        """A lock on a name.

        Args:
            ttl: seconds after which the hold ends unless extended; None: it lives as long as the session.
            timeout: seconds to wait for it; None or -1: for ever; 0: not at all.
            shared: hold it together with others who share it.
            meta: shown to whoever asks who holds it. Put a trace id under `trace`.
            delay: seconds the name stays ungranted after an unclean end, for resources that check no fence.
        """
        return Lock(self, Terms(one(name), ttl=ttl, timeout=timeout, shared=shared, meta=meta, delay=delay))

    def multi(
        self,
        names: Iterable[str],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        shared: bool = False,
        meta: Meta = None,
    ) -> Lock:
        """A lock on several names: all or nothing, in one step, with one fence. Waiting for them holds none."""
        return Lock(self, Terms(several(names), ttl=ttl, timeout=timeout, shared=shared, meta=meta))

    def rwlock(
        self, name: str, *, ttl: float | None = None, timeout: float | None = None, meta: Meta = None
    ) -> RWLock:
        """A lock for readers and a writer: `.read()` and `.write()` are locks."""
        return RWLock(self, one(name)[0], {"ttl": ttl, "timeout": timeout, "meta": meta})

    def semaphore(
        self, name: str, limit: int, *, ttl: float | None = None, timeout: float | None = None, meta: Meta = None
    ) -> Lock:
        """A lock that `limit` may have at once. All who use the name must give the same limit."""
        return Lock(self, Terms(one(name), limit=permits(limit), ttl=ttl, timeout=timeout, meta=meta))

    def rlock(
        self, name: str, *, ttl: float | None = None, timeout: float | None = None, meta: Meta = None
    ) -> RLock:
        """A lock that the thread which has it may take again."""
        return RLock(self.lock(name, ttl=ttl, timeout=timeout, meta=meta), self._levels)

    def election(self, name: str, *, meta: Meta = None) -> Election:
        """An election: campaign, observe, resign."""
        return Election(self, Terms(one(name), meta=meta))

    def once(
        self, name: str, *, at_most: float, at_least: float = 0, busy: Busy = "skip", meta: Meta = None
    ) -> Callable[[Callable[Given, Result]], Callable[Given, Result | None]]:
        """Decorate a job so that it runs in one place at a time.

        Args:
            at_most: seconds after which its hold ends, come what may; the run is told by `HoldLost` at its end.
            at_least: seconds for which the name is kept even if the run is quicker, while this client lives.
            busy: skip the run when another is under way (it returns None), wait for it, or raise `LockTimeout`.
        """
        timeout = wait_when(busy, at_most, at_least)
        return once(self.lock(name, ttl=at_most, timeout=timeout, meta=meta), at_least, busy)

    def watch(self, prefix: str = "") -> Watch:
        """What happens to names with a prefix, as an iterator of `Event`."""
        return Watch(self, prefix)

    def explain(self, name: str) -> views.Explanation:
        """Who has a name, since when, and who waits for it."""
        return views.explanation(self.portal().read(command("LOCK.INFO", *one(name))))

    def break_hold(self, name: str, *, fence: int = 0) -> int:
        """By an operator: take a name from whoever holds it. Returns a fence above every holder's.

        Args:
            fence: take it only from holders up to this fence, so that doing it twice cannot hit the next one.
        """
        words: list[str | int] = ["LOCK.BREAK", *one(name), "FENCE", fence]
        return int(self.portal().read(command(*(words if fence else words[:2])))[b"fence"])

    def ready(self) -> None:
        """Wait until a session is open. `connect` has done so once.

        Raises:
            Unavailable: no node was reached within the connect timeout.
            PermissionDenied: the service does not want this client.
        """
        self.portal().ready()

    def close(self) -> None:
        """End the session: all it holds is free at once. Then no thread and no socket is left."""
        self._closed = True
        portal, self._portal = self._portal, None
        if portal is not None:
            portal.close()

    def portal(self) -> Portal:
        """The thread that talks to the service; started when it is first needed, in each process."""
        portal = self._portal
        return portal if portal is not None else self._start()

    def _start(self) -> Portal:
        with self._starting:
            if self._closed:
                raise UsageError("the client is closed")
            if self._portal is None:
                self._portal = Portal(self._making)
            return self._portal

    def _on_forked(self) -> None:
        """In a child: the parent's thread is not here, and whoever held this lock neither."""
        self._starting = threading.Lock()
        self._portal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_portal", None) is not None:
            warnings.warn("a Fencehold client was not closed", ResourceWarning, 2, source=self)


def connect(
    url: str | None = None,
    *,
    ttl: float = 30,
    grace: float = 1,
    name: str | None = None,
    meta: Mapping[str, object] | None = None,
    connect_timeout: float = 5.0,
    tls: ssl.SSLContext | None = None,
) -> Client:
    """Connect to a service: ``with connect(…) as client`` or ``client = connect(…)``, to be closed.

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
        Unavailable: no node was reached in time.
    """
    client = Client(Making(where(url), ttl, grace, name or "", meta, connect_timeout, tls).checked())
    try:
        client.ready()
    except BaseException:
        client.close()
        raise
    return client


_clients: WeakSet[Client] = WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client._on_forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
