"""Portals: how a blocking client reaches its sources, each with a thread of its own, on which a loop runs.

1. To the service, the calling thread itself sends and receives the most frequent requests, acquire and release
   (`DirectPortal`). The loop's thread keeps the session alive, makes connections, and receives everything else.
2. Where an application's threads are greenlets, which must not block, or the system lacks what that needs, a
   thread's request is passed to the session protocol on the loop's thread, without a task (`ServicePortal`).
3. For anything else, and behind a circuit breaker, a task calls a carrier (`CarrierPortal`).
4. When a caller stops waiting (a KeyboardInterrupt), its request is withdrawn.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TypeVar, cast

from fencehold.client.aio.channel import Channel
from fencehold.client.connect import Source, carrier_of
from fencehold.client.direct.driver import LineDriver
from fencehold.client.direct.exchange import Exchange
from fencehold.client.direct.line import IS_KNOWN_HERE
from fencehold.client.direct.turns import Call
from fencehold.client.protocol.requests import Acquire, Release
from fencehold.client.threads.detection import are_real
from fencehold.client.threads.gates import Threads
from fencehold.client.threads.loop import LoopThread, Slip
from fencehold.drivers.resp.wire import Moved
from fencehold.errors import FenceholdError, UsageError
from fencehold.locks.carrier import Carrier
from fencehold.locks.clock import clock
from fencehold.locks.identity import Owners, Who
from fencehold.locks.terms import Terms, ms_of
from fencehold.locks.trust import Grant
from fencehold.locks.views import EXPLAIN_LIMIT, Explanation

Result = TypeVar("Result")


class Portal(Protocol):
    """What carries out the calls of a blocking client."""

    @property
    def owners(self) -> Owners: ...

    @property
    def channel(self) -> Carrier: ...

    @property
    def threads(self) -> Threads:
        """What the application's threads are."""

    def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        """Acquire for the calling thread, or for an owner made `anew`. An interrupt leaves nothing behind."""

    def release(self, grant: Grant) -> None:
        """Release a grant. Once handed over it is done, whether or not the caller waits."""

    def release_soon(self, grant: Grant) -> None:
        """Have a grant released that no caller has, unless that was done. It does not wait, nor raise."""

    def extend(self, grant: Grant, ttl: float | None) -> None:
        """Move the end of a grant."""

    def explain(self, name: str, *, stale: bool = False, limit: int | None = EXPLAIN_LIMIT) -> Explanation:
        """Who holds a name and who waits for it."""

    def break_hold(self, name: str, fence: int) -> int:
        """Force-release a name."""

    def changes(self, name: str) -> AbstractContextManager[Iterator[object]]:
        """Yields whenever a name may have changed hands, until the client is closed."""

    def ready(self) -> None:
        """Wait until it can be used."""

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop."""

    def run_soon(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Have a coroutine run on the loop, ignoring its outcome; not at all if the client is closed."""

    def is_closed(self) -> bool:
        """Whether the client is closed, or being closed."""

    def close(self) -> None:
        """Release everything, then end the loop and the thread."""


class CarrierPortal(LoopThread):
    """The portal to any source: each call is a task on the loop."""

    is_direct = False

    def __init__(self, source: Source) -> None:
        super().__init__()
        try:
            self.channel: Carrier = self.run(_made(source, self.is_direct))
        except BaseException:
            self.loop.call_soon_threadsafe(self._stop)
            self._join()
            raise
        self.owners = self.channel.owners

    def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        at_once = self.channel.at_once
        if at_once is not None and not self._closing:
            answer = at_once.acquire(terms, who)
            if answer.grant is not None or (answer.is_known and terms.timeout == 0):
                return answer.grant
        return self.run(self.channel.acquire(terms, who, owner), self._release_granted)

    def release(self, grant: Grant) -> None:
        at_once = self.channel.at_once
        if at_once is None or self._closing or not at_once.release(grant):
            self.run(_awaited(self.channel.release, grant))

    def release_soon(self, grant: Grant) -> None:
        with suppress(UsageError):
            self.post(self._release_granted, grant)

    def extend(self, grant: Grant, ttl: float | None) -> None:
        self.run(self.channel.extend(grant, ttl))

    def explain(self, name: str, *, stale: bool = False, limit: int | None = EXPLAIN_LIMIT) -> Explanation:
        return self.run(self.channel.explain(name, stale=stale, limit=limit))

    def break_hold(self, name: str, fence: int) -> int:
        return self.run(self.channel.break_hold(name, fence))

    @contextmanager
    def changes(self, name: str) -> Iterator[Iterator[object]]:
        context = self.channel.changes(name)
        changes = self.run(context.__aenter__())
        try:
            yield one_by_one(self, changes)
        finally:
            # Without waiting: this may be the loop's own thread, collecting an iterator that was not closed.
            self.run_soon(cast("Coroutine[Any, Any, Any]", context.__aexit__(None, None, None)))

    def ready(self) -> None:
        self.run(self.channel.ready())

    async def end(self) -> None:
        await self.channel.close()

    def _release_granted(self, grant: Grant | None) -> None:
        """On the loop's thread."""
        if grant is not None and not grant.ending:
            self._start(self.slip(), _awaited(self.channel.release, grant), [])


class ServicePortal(CarrierPortal):
    """The portal to the service: frequent requests go to the session protocol without a task."""

    channel: Channel

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.protocol = self.channel.protocol
        self._driver = self.channel.driver

    def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        if self.channel.shards is None:
            # Several shards are not known of: mostly there is one.
            with suppress(Moved):
                return self._acquire_here(terms, who, owner)
        return super().acquire(terms, who, owner)

    def _acquire_here(self, terms: Terms, who: Who, owner: bytes | None) -> Grant | None:
        slip = self.slip()
        try:
            # Inside: an interrupt may come when it is handed over, and this thread does not wait yet.
            self.post(self._acquire, slip, terms, owner or self.owners.of(who))
            return slip.wait()  # type: ignore[no-any-return]
        except BaseException:
            with suppress(UsageError):
                self.post(self._withdraw, slip)
            raise

    def release(self, grant: Grant) -> None:
        if self.channel.shards is not None:
            super().release(grant)
            return
        slip = self.slip()
        self.post(self._call, slip, self.protocol.release, grant, slip)
        slip.wait()

    def extend(self, grant: Grant, ttl: float | None) -> None:
        if self.channel.shards is not None:
            super().extend(grant, ttl)
            return
        slip = self.slip()
        self.post(self._call, slip, self.protocol.extend, grant, 0 if ttl is None else ms_of(ttl), slip)
        slip.wait()

    # On the loop's thread.

    def _release_granted(self, grant: Grant | None) -> None:
        if self.channel.shards is not None:
            super()._release_granted(grant)
        elif grant is not None and self.protocol.session.holds.get(grant.fence) is grant:
            self.protocol.release(grant, None, clock())

    def act(self) -> None:
        # Nothing, while it is being made.
        if hasattr(self, "_driver"):
            self._driver.act()

    def _acquire(self, slip: Slip, terms: Terms, owner: bytes) -> None:
        try:
            slip.request = self.protocol.acquire(terms, owner, slip, clock())
        except FenceholdError as error:
            slip.set_exception(error)

    def _withdraw(self, slip: Slip) -> None:
        if slip.request is not None:
            self.protocol.withdraw(slip.request, clock())

    def _call(self, slip: Slip, verb: Callable[..., object], *args: Any) -> None:
        try:
            verb(*args, clock())
        except FenceholdError as error:
            slip.set_exception(error)


class DirectPortal(ServicePortal):
    """The portal to the service for real threads: the calling thread acquires and releases by itself."""

    is_direct = True

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._turns = cast("LineDriver", self._driver).turns
        self._ask = Exchange(cast("LineDriver", self._driver), super().post).ask
        self._clock = self.channel.clock

    def post(self, call: Callable[..., object], *args: Any) -> None:
        if hasattr(self, "_turns"):
            # The thread that posts something may wait for it.
            self._turns.leave_own()
        super().post(call, *args)

    def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        if self.channel.shards is not None:
            # Each name goes to its shard, by the loop's thread.
            return super().acquire(terms, who, owner)
        call = Call()
        try:
            now = self._clock()
            call.request = Acquire(terms, owner or self.owners.of(who), call, now)
            self._ask(call, now)
            return call.wait()  # type: ignore[no-any-return]
        except BaseException as error:
            self._turns.leave(call)
            with suppress(UsageError):
                super().post(self._withdraw, call)
            if not isinstance(error, Moved):
                raise
        return super().acquire(terms, who, owner)

    def release(self, grant: Grant) -> None:
        if self.channel.shards is not None:
            super().release(grant)
            return
        call = Call()
        try:
            now = self._clock()
            call.request = Release(grant, call, now)
            self._ask(call, now)
            call.wait()
        except BaseException:
            self._turns.leave(call)
            with suppress(UsageError):
                super().post(self._look)
            raise

    def release_soon(self, grant: Grant) -> None:
        if self.channel.shards is not None:
            super().release_soon(grant)
            return
        # No code may rely on it, and no warning is due for it, until the loop's thread gets to it.
        grant.ending = grant.ending or "released"
        with suppress(UsageError):
            super().post(self._release_granted, grant)

    # On the loop's thread.

    def _withdraw(self, slip: Slip) -> None:
        # First, as a request that was left may be sent anew.
        self._look()
        if hasattr(slip, "request"):
            super()._withdraw(slip)

    def _drain(self) -> None:
        if not hasattr(self, "_turns"):
            super()._drain()
            return
        # One turn for all that was handed over at once.
        with self._turns:
            super()._drain()

    def _look(self) -> None:
        with self._turns:
            pass


def portal_to(source: Source) -> Portal:
    """The shortest portal to a source."""
    if not source.is_service:
        return CarrierPortal(source)
    return DirectPortal(source) if IS_KNOWN_HERE and are_real() else ServicePortal(source)


async def _made(source: Source, is_direct: bool) -> Carrier:
    return carrier_of(source, is_direct=is_direct)


async def _awaited(call: Callable[[Grant], Any], grant: Grant) -> None:
    await call(grant)


def one_by_one(portal: Portal, things: AsyncIterator[Any]) -> Iterator[Any]:
    """The items of an async iterator, until it ends or the client is closed."""
    while not portal.is_closed():
        try:
            thing = portal.run(cast("Coroutine[Any, Any, Any]", things.__anext__()))
        except (StopAsyncIteration, UsageError) as error:
            if isinstance(error, UsageError) and not portal.is_closed():
                raise
            return
        yield thing
