"""What a client offers: every kind of lock, each for either tier.

With the default tier an acquire makes a `Hold`, which has a fence; for EFFICIENCY a `Claim`, which has none.
Durations are seconds, a `timedelta`, or a text such as "30s".
"""

from collections.abc import Iterable
from typing import Any, Literal, Unpack, overload

from fencehold.client.aio.election import Election, Leadership
from fencehold.client.aio.hold import Claim, Hold
from fencehold.client.aio.lock import Lock, OnLost, UntimedLock
from fencehold.client.aio.once import Once
from fencehold.client.aio.recipes import RLock, RWLock, UntimedRLock, UntimedRWLock
from fencehold.client.aio.routes import Route
from fencehold.client.options import Busy, LockOptions, Options, Runs, SeveralOptions, by_name
from fencehold.client.ownership import Levels
from fencehold.client.rules import tier_of
from fencehold.durations import Duration
from fencehold.locks.terms import Meta, Terms, one, permits, several, wait_of
from fencehold.types import CORRECTNESS, Tier


class Verbs:
    """The methods of a client that make locks."""

    def __init__(self) -> None:
        self._levels: dict[Tier, Levels[Any]] = {tier: Levels() for tier in Tier}
        """By tier: holding a name to avoid work is not holding it to protect state."""

    def _route(self, names: tuple[str, ...], tier: Tier) -> Route:
        """The route to names in a tier.

        Raises:
            Unsupported, UsageError: they are not available in it.
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
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[LockOptions],
    ) -> UntimedLock[Hold]: ...

    @overload
    def lock(
        self,
        name: str,
        *,
        timeout: None = None,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[LockOptions],
    ) -> UntimedLock[Claim]: ...

    @overload
    def lock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[LockOptions],
    ) -> Lock[Hold]: ...

    @overload
    def lock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[LockOptions],
    ) -> Lock[Claim]: ...

    @by_name
    def lock(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        tier: Tier | str = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[LockOptions],
    ) -> Lock[Any]:
        """A lock on a name.

        Args:
            ttl: after how long the hold ends unless extended; None: it lives as long as the session.
            timeout: how long to wait for it; None or -1: for ever; 0: not at all.
            shared: hold it together with other shared holders.
            meta: shown by `explain`. Put a trace id under `trace`.
            delay: how long the name stays ungranted after an unclean end, for resources that check no fence.
            on_lost: cancel the body of an `async with` when the hold is lost, or only raise at its end.
            tier: CORRECTNESS to protect state, EFFICIENCY to avoid doing work twice.
        """
        terms = Terms(one(name), timeout=timeout, **options)
        return self._lock(terms, tier, on_lost)  # ASYNC
        # BLOCKING: return self._lock(terms, tier)

    @overload
    def multi(
        self,
        names: Iterable[str],
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[SeveralOptions],
    ) -> UntimedLock[Hold]: ...

    @overload
    def multi(
        self,
        names: Iterable[str],
        *,
        timeout: None = None,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[SeveralOptions],
    ) -> UntimedLock[Claim]: ...

    @overload
    def multi(
        self,
        names: Iterable[str],
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[SeveralOptions],
    ) -> Lock[Hold]: ...

    @overload
    def multi(
        self,
        names: Iterable[str],
        *,
        timeout: Duration,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[SeveralOptions],
    ) -> Lock[Claim]: ...

    @by_name
    def multi(
        self,
        names: Iterable[str],
        *,
        timeout: Duration | None = None,
        tier: Tier | str = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[SeveralOptions],
    ) -> Lock[Any]:
        """A lock on several names: all or nothing, in one step, with one fence. A waiter holds none of them.

        Args:
            across_shards: where a service has several shards, acquire names of more than one, shard by shard,
                within one timeout: all or nothing, but not in one step, and with a fence for each (`hold.fences`).
                Without it, they must have a common ``{tag}``.
        """
        terms = Terms(several(names), timeout=timeout, **options)
        return self._lock(terms, tier, on_lost)  # ASYNC
        # BLOCKING: return self._lock(terms, tier)

    @overload
    def rwlock(
        self,
        name: str,
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> UntimedRWLock[Hold]: ...

    @overload
    def rwlock(
        self,
        name: str,
        *,
        timeout: None = None,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> UntimedRWLock[Claim]: ...

    @overload
    def rwlock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> RWLock[Hold]: ...

    @overload
    def rwlock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> RWLock[Claim]: ...

    @by_name
    def rwlock(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        tier: Tier | str = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> RWLock[Any]:
        """A lock for readers and a writer: `.read()` and `.write()` are locks."""
        route = self._route(one(name), tier := tier_of(tier))
        kind = UntimedRWLock if wait_of(timeout) is None else RWLock
        return kind(route, name, _held(route, tier), on_lost, timeout, **options)  # ASYNC
        # BLOCKING: return kind(route, name, _held(route, tier), timeout, **options)

    @overload
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> UntimedLock[Hold]: ...

    @overload
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        timeout: None = None,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> UntimedLock[Claim]: ...

    @overload
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> Lock[Hold]: ...

    @overload
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        timeout: Duration,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> Lock[Claim]: ...

    @by_name
    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        timeout: Duration | None = None,
        tier: Tier | str = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> Lock[Any]:
        """A lock that `limit` owners may hold at once. All clients of the name must give the same limit."""
        terms = Terms(one(name), limit=permits(limit), timeout=timeout, **options)
        return self._lock(terms, tier, on_lost)  # ASYNC
        # BLOCKING: return self._lock(terms, tier)

    @overload
    def rlock(
        self,
        name: str,
        *,
        timeout: None = None,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> UntimedRLock[Hold]: ...

    @overload
    def rlock(
        self,
        name: str,
        *,
        timeout: None = None,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> UntimedRLock[Claim]: ...

    @overload
    def rlock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Literal[Tier.CORRECTNESS, "correctness"] = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> RLock[Hold]: ...

    @overload
    def rlock(
        self,
        name: str,
        *,
        timeout: Duration,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> RLock[Claim]: ...

    @by_name
    def rlock(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        tier: Tier | str = CORRECTNESS,
        on_lost: OnLost = "cancel",  # ASYNC
        **options: Unpack[Options],
    ) -> RLock[Any]:
        """A lock that the task which holds it may acquire again."""
        terms = Terms(one(name), timeout=timeout, **options)
        kind = UntimedRLock if terms.timeout is None else RLock
        lock = self._lock(terms, tier, on_lost)  # ASYNC
        # BLOCKING: lock = self._lock(terms, tier)
        return kind(lock, self._levels[tier_of(tier)])

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
        route = self._route(terms.names, tier := tier_of(tier))
        held = Leadership if _held(route, tier) is Hold else Claim
        return Election(route, terms, held, self._is_closed)

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
    ) -> Once:
        """Decorate a job so that it runs in one place at a time.

        Args:
            at_most: the time after which its hold ends in any case: an async run is cancelled then, a blocking one
                gets `HoldLost` at its end.
            at_least: the time from its start for which no other run begins, though this process may have ended.
            busy: skip the run when another is in progress (it returns None), wait for it, or raise `LockTimeout`.
            tier: CORRECTNESS to protect state, EFFICIENCY to avoid doing work twice.
        """
        runs = Runs.checked(at_most, at_least, busy)
        terms = Terms(one(name), ttl=runs.at_most, timeout=runs.wait, meta=meta, at_least=runs.at_least)
        return Once(self._lock(terms, tier), busy)

    def _lock(
        self,
        terms: Terms,
        tier: Tier | str,
        on_lost: OnLost = "cancel",  # ASYNC
    ) -> Lock[Any]:
        route = self._route(terms.names, tier := tier_of(tier))
        # As `lock_on` does: this is done for every lock.
        kind = UntimedLock if terms.timeout is None else Lock
        return kind(route, terms, _held(route, tier), on_lost)  # ASYNC
        # BLOCKING: return kind(route, terms, _held(route, tier))


def _held(route: Route, tier: Tier) -> type[Claim]:
    """What an acquire makes: with a fence, if there is one."""
    return Hold if tier is CORRECTNESS or route.guarantees.fenced else Claim
