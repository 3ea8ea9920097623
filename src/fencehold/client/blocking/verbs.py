"""The verbs of a blocking client: every kind of lock, each for either tier.

With the default tier an acquire makes a `Hold`, which has a fence; for EFFICIENCY a `Claim`, which has none.
Durations are seconds, a `timedelta`, or a text such as "30s".
"""

from collections.abc import Iterable
from typing import Any, Literal, TypedDict, Unpack, overload

from fencehold.client.blocking.election import Election, Leadership
from fencehold.client.blocking.hold import Claim, Hold
from fencehold.client.blocking.lines import Line
from fencehold.client.blocking.lock import Lock, UntimedLock, lock_on
from fencehold.client.blocking.once import Once
from fencehold.client.blocking.recipes import RLock, RWLock, UntimedRLock, UntimedRWLock
from fencehold.client.calls import by_name
from fencehold.client.jobs import Busy, Runs
from fencehold.client.ownership import Levels
from fencehold.client.rules import tier_of
from fencehold.durations import Duration
from fencehold.locks.terms import Meta, Terms, one, permits, several, wait_of
from fencehold.types import CORRECTNESS, Tier


class Options(TypedDict, total=False):
    """What can be said of every lock, but for its timeout and its tier, which decide what comes of it."""

    ttl: Duration | None
    meta: Meta


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

    def _line(self, names: tuple[str, ...], tier: Tier) -> Line:
        """The line for names in a tier.

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
        tier: Tier | str = CORRECTNESS,
    ) -> Lock[Any]:
        """A lock on a name.

        Args:
            ttl: after how long the hold ends unless extended; None: it lives as long as the session.
            timeout: how long to wait for it; None or -1: for ever; 0: not at all.
            shared: hold it together with others who share it.
            meta: shown to whoever asks who holds it. Put a trace id under `trace`.
            delay: how long the name stays ungranted after an unclean end, for resources that check no fence.
            tier: CORRECTNESS to protect state, EFFICIENCY to avoid doing work twice.
        """
        terms = Terms(one(name), ttl=ttl, timeout=timeout, shared=shared, meta=meta, delay=delay)
        return self._lock(terms, tier)

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
        tier: Tier | str = CORRECTNESS,
    ) -> Lock[Any]:
        """A lock on several names: all or nothing, in one step, with one fence. Waiting for them holds none."""
        terms = Terms(several(names), ttl=ttl, timeout=timeout, shared=shared, meta=meta)
        return self._lock(terms, tier)

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
        tier: Tier | str = CORRECTNESS,
    ) -> RWLock[Any]:
        """A lock for readers and a writer: `.read()` and `.write()` are locks."""
        line = self._line(one(name), tier := tier_of(tier))
        kind = UntimedRWLock if wait_of(timeout) is None else RWLock
        return kind(line, name, _held(line, tier), {"ttl": ttl, "timeout": timeout, "meta": meta})

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
        tier: Tier | str = CORRECTNESS,
    ) -> Lock[Any]:
        """A lock that `limit` may have at once. All who use the name must give the same limit."""
        terms = Terms(one(name), limit=permits(limit), ttl=ttl, timeout=timeout, meta=meta)
        return self._lock(terms, tier)

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
        tier: Tier | str = CORRECTNESS,
    ) -> RLock[Any]:
        """A lock that the thread which has it may take again."""
        terms = Terms(one(name), ttl=ttl, timeout=timeout, meta=meta)
        kind = UntimedRLock if terms.timeout is None else RLock
        return kind(self._lock(terms, tier), self._levels[tier_of(tier)])

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
        line = self._line(terms.names, tier := tier_of(tier))
        held = Leadership if _held(line, tier) is Hold else Claim
        return Election(line, terms, held, self._is_closed)

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
            at_most: the time after which its hold ends, come what may; the run is told by `HoldLost` at its end.
            at_least: the time from its start for which no other run begins, though this process may have ended.
            busy: skip the run when another is under way (it returns None), wait for it, or raise `LockTimeout`.
            tier: CORRECTNESS to protect state, EFFICIENCY to avoid doing work twice.
        """
        runs = Runs.checked(at_most, at_least, busy)
        terms = Terms(one(name), ttl=runs.at_most, timeout=runs.wait, meta=meta, at_least=runs.at_least)
        return Once(self._lock(terms, tier), busy)

    def _lock(self, terms: Terms, tier: Tier | str) -> Lock[Any]:
        line = self._line(terms.names, tier := tier_of(tier))
        return lock_on(line, terms, _held(line, tier))


def _held(line: Line, tier: Tier) -> type[Claim]:
    """What an acquire makes: with a fence, if there is one."""
    return Hold if tier is CORRECTNESS or line.guarantees.fenced else Claim
