"""The verbs of an async client: every kind of lock, each for either tier.

With the default tier an acquire makes a `Hold`, which has a fence; for EFFICIENCY a `Claim`, which has none.
Durations are seconds, a `timedelta`, or a text such as "30s".
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from fencehold.client.aio.election import Election, Leadership
from fencehold.client.aio.hold import Claim, Hold
from fencehold.client.aio.lock import Job, Lock, OnLost, UntimedLock, lock_on
from fencehold.client.aio.once import once
from fencehold.client.aio.recipes import RLock, RWLock, UntimedRLock, UntimedRWLock
from fencehold.client.calls import by_name
from fencehold.client.jobs import Busy, Runs
from fencehold.client.ownership import Levels
from fencehold.client.rules import tier_of
from fencehold.durations import Duration
from fencehold.locks.carrier import Carrier
from fencehold.locks.terms import Meta, Terms, one, permits, several, wait_of
from fencehold.types import CORRECTNESS, Tier

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Options(TypedDict, total=False):
    """What can be said of every lock, but for its timeout and its tier, which decide what comes of it."""

    ttl: Duration | None
    meta: Meta
    on_lost: OnLost


class MultiOptions(Options, total=False):
    """What can be said of a lock on several names."""

    shared: bool


class LockOptions(MultiOptions, total=False):
    """What can be said of a lock on one name."""

    delay: Duration


class Verbs:
    """What a client can be asked for."""

    def __init__(self) -> None:
        self._levels: dict[Tier, Levels[Any]] = {tier: Levels() for tier in Tier}
        """By tier: having a name to avoid work is not having it to protect state."""

    def _carrier(self, names: tuple[str, ...], tier: Tier) -> Carrier:
        """The carrier for names in a tier.

        Raises:
            Unsupported, UsageError: they cannot be had in it.
        """
        raise NotImplementedError

    def _is_closed(self) -> bool:
        """Whether the client is closed, or being closed."""
        raise NotImplementedError

    @overload
    def lock(
        self,
        name: str,
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[LockOptions],
    ) -> UntimedLock[Hold]: ...

    @overload
    def lock(
        self, name: str, *, timeout: None = None, tier: Tier | str, **options: Unpack[LockOptions]
    ) -> UntimedLock[Claim]: ...

    @overload
    def lock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[LockOptions],
    ) -> Lock[Hold]: ...

    @overload
    def lock(
        self, name: str, *, timeout: Duration, tier: Tier | str, **options: Unpack[LockOptions]
    ) -> Lock[Claim]: ...

    @by_name
    def lock(
        self,
        name: str,
        *,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
        shared: bool = False,
        meta: Meta = None,
        delay: Duration = 0,
        on_lost: OnLost = "cancel",
        tier: Tier | str = CORRECTNESS,
    ) -> Lock[Any]:
        """A lock on a name.

        Args:
            ttl: after how long the hold ends unless extended; None: it lives as long as the session.
            timeout: how long to wait for it; None or -1: for ever; 0: not at all.
            shared: hold it together with others who share it.
            meta: shown to whoever asks who holds it. Put a trace id under `trace`.
            delay: how long the name stays ungranted after an unclean end, for resources that check no fence.
            on_lost: cancel the body of an `async with` when the hold is lost, or only raise at its end.
            tier: CORRECTNESS to protect state, EFFICIENCY to avoid doing work twice.
        """
        terms = Terms(one(name), ttl=ttl, timeout=timeout, shared=shared, meta=meta, delay=delay)
        return self._lock(terms, tier, on_lost)

    @overload
    def multi(
        self,
        names: Iterable[str],
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[MultiOptions],
    ) -> UntimedLock[Hold]: ...

    @overload
    def multi(
        self, names: Iterable[str], *, timeout: None = None, tier: Tier | str, **options: Unpack[MultiOptions]
    ) -> UntimedLock[Claim]: ...

    @overload
    def multi(
        self,
        names: Iterable[str],
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[MultiOptions],
    ) -> Lock[Hold]: ...

    @overload
    def multi(
        self, names: Iterable[str], *, timeout: Duration, tier: Tier | str, **options: Unpack[MultiOptions]
    ) -> Lock[Claim]: ...

    @by_name
    def multi(
        self,
        names: Iterable[str],
        *,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
        shared: bool = False,
        meta: Meta = None,
        on_lost: OnLost = "cancel",
        tier: Tier | str = CORRECTNESS,
    ) -> Lock[Any]:
        """A lock on several names: all or nothing, in one step, with one fence. Waiting for them holds none."""
        terms = Terms(several(names), ttl=ttl, timeout=timeout, shared=shared, meta=meta)
        return self._lock(terms, tier, on_lost)

    @overload
    def rwlock(
        self,
        name: str,
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[Options],
    ) -> UntimedRWLock[Hold]: ...

    @overload
    def rwlock(
        self, name: str, *, timeout: None = None, tier: Tier | str, **options: Unpack[Options]
    ) -> UntimedRWLock[Claim]: ...

    @overload
    def rwlock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[Options],
    ) -> RWLock[Hold]: ...

    @overload
    def rwlock(
        self, name: str, *, timeout: Duration, tier: Tier | str, **options: Unpack[Options]
    ) -> RWLock[Claim]: ...

    @by_name
    def rwlock(
        self,
        name: str,
        *,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
        meta: Meta = None,
        on_lost: OnLost = "cancel",
        tier: Tier | str = CORRECTNESS,
    ) -> RWLock[Any]:
        """A lock for readers and a writer: `.read()` and `.write()` are locks."""
        names = one(name)
        carrier = self._carrier(names, tier := tier_of(tier))
        options = {"ttl": ttl, "timeout": timeout, "meta": meta}
        kind = UntimedRWLock if wait_of(timeout) is None else RWLock
        return kind(carrier, name, _held(carrier, tier), on_lost, options)

    @overload
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[Options],
    ) -> UntimedLock[Hold]: ...

    @overload
    def semaphore(
        self, name: str, limit: int, *, timeout: None = None, tier: Tier | str, **options: Unpack[Options]
    ) -> UntimedLock[Claim]: ...

    @overload
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[Options],
    ) -> Lock[Hold]: ...

    @overload
    def semaphore(
        self, name: str, limit: int, *, timeout: Duration, tier: Tier | str, **options: Unpack[Options]
    ) -> Lock[Claim]: ...

    @by_name
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
        meta: Meta = None,
        on_lost: OnLost = "cancel",
        tier: Tier | str = CORRECTNESS,
    ) -> Lock[Any]:
        """A lock that `limit` may have at once. All who use the name must give the same limit."""
        terms = Terms(one(name), limit=permits(limit), ttl=ttl, timeout=timeout, meta=meta)
        return self._lock(terms, tier, on_lost)

    @overload
    def rlock(
        self,
        name: str,
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[Options],
    ) -> UntimedRLock[Hold]: ...

    @overload
    def rlock(
        self, name: str, *, timeout: None = None, tier: Tier | str, **options: Unpack[Options]
    ) -> UntimedRLock[Claim]: ...

    @overload
    def rlock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        **options: Unpack[Options],
    ) -> RLock[Hold]: ...

    @overload
    def rlock(
        self, name: str, *, timeout: Duration, tier: Tier | str, **options: Unpack[Options]
    ) -> RLock[Claim]: ...

    @by_name
    def rlock(
        self,
        name: str,
        *,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
        meta: Meta = None,
        on_lost: OnLost = "cancel",
        tier: Tier | str = CORRECTNESS,
    ) -> RLock[Any]:
        """A lock that the task which has it may take again."""
        terms = Terms(one(name), ttl=ttl, timeout=timeout, meta=meta)
        kind = UntimedRLock if terms.timeout is None else RLock
        return kind(self._lock(terms, tier, on_lost), self._levels[tier_of(tier)])

    @overload
    def election(
        self,
        name: str,
        *,
        meta: Meta = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
    ) -> Election[Leadership]: ...

    @overload
    def election(
        self,
        name: str,
        *,
        meta: Meta = None,
        tier: Tier | str,
    ) -> Election[Claim]: ...

    @by_name
    def election(
        self,
        name: str,
        *,
        meta: Meta = None,
        tier: Tier | str = CORRECTNESS,
    ) -> Election[Any]:
        """An election: campaign, observe, resign."""
        terms = Terms(one(name), meta=meta)
        carrier = self._carrier(terms.names, tier := tier_of(tier))
        held = Leadership if _held(carrier, tier) is Hold else Claim
        return Election(carrier, terms, held, self._is_closed)

    @by_name
    def once(
        self,
        name: str,
        *,
        at_most: Duration,
        at_least: Duration = 0,
        busy: Busy = "skip",
        meta: Meta = None,
        tier: Tier | str = CORRECTNESS,
    ) -> Callable[[Callable[Given, Awaitable[Result]]], Job[Given, Result | None]]:
        """Decorate a job so that it runs in one place at a time.

        Args:
            at_most: the time after which a run is ended, come what may.
            at_least: the time from its start for which no other run begins, though this process may have ended.
            busy: skip the run when another is under way (it returns None), wait for it, or raise `LockTimeout`.
            tier: CORRECTNESS to protect state, EFFICIENCY to avoid doing work twice.
        """
        runs = Runs.checked(at_most, at_least, busy)
        terms = Terms(one(name), ttl=runs.at_most, timeout=runs.wait, meta=meta, at_least=runs.at_least)
        return once(self._lock(terms, tier), busy)

    def _lock(self, terms: Terms, tier: Tier | str, on_lost: OnLost = "cancel") -> Lock[Any]:
        carrier = self._carrier(terms.names, tier := tier_of(tier))
        return lock_on(carrier, terms, _held(carrier, tier), on_lost)


def _held(carrier: Carrier, tier: Tier) -> type[Claim]:
    """What an acquire makes: with a fence, if there is one."""
    return Hold if tier is CORRECTNESS or carrier.guarantees.fenced else Claim
