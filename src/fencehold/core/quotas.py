"""Quotas: how much a principal has, and what names with a prefix come to, against what the policy allows.

1. What is counted follows from the state: sessions, holds and waiters of each principal, holds and waiters under
   each prefix that has a quota. It is in no snapshot; a restored machine counts anew. Where there is no quota,
   nothing is counted.
2. Names held and awaited count together, as they do for a session (`limits`): a grant to a waiter exceeds nothing.
3. A quota that only counts refuses nothing. How often either kind was met is tallied by each replica for itself,
   for people: no outcome depends on it.
4. Commands per second are not part of the state: the node counts those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencehold.core.commands import FOREVER, Acquire, Extend, OpenSession
from fencehold.core.outcomes import Code, Refused
from fencehold.core.policy import Quota, QuotaMode
from fencehold.durations import shown

if TYPE_CHECKING:
    from fencehold.core.rulebook import Rulebook
    from fencehold.core.state import Session, State, Waiter

NamedQuota = tuple[str, Quota]


class Had:
    """What a principal has, or what there is under a prefix."""

    __slots__ = ("holds", "sessions", "waiters")

    def __init__(self) -> None:
        self.sessions = 0
        self.holds = 0
        """Names held and awaited."""
        self.waiters = 0

    def is_nothing(self) -> bool:
        return not (self.sessions or self.holds or self.waiters)


class Usage:
    """What every principal has, while there are quotas."""

    __slots__ = ("book", "exceeded", "principals", "under")

    def __init__(self, book: Rulebook, exceeded: dict[tuple[str, str], int] | None = None) -> None:
        self.book = book
        self.principals: dict[str, Had] = {}
        self.under: dict[str, Had] = {quota.prefix or "": Had() for _, quota in book.prefix_quotas}
        self.exceeded = exceeded if exceeded is not None else {}
        """How often each bound of each quota was met."""

    def add_session(self, principal: str, count: int) -> None:
        self._had(principal).sessions += count
        self._forget_if_nothing(principal)

    def add_names(self, principal: str, names: tuple[str, ...], count: int, waiters: int = 0) -> None:
        """A principal acquired names or queued for them; or, with a `count` below 0, no longer does."""
        had = self._had(principal)
        had.holds += count * len(names)
        had.waiters += waiters
        for prefix, under in self.under.items():
            for name in names:
                if name.startswith(prefix):
                    under.holds += count
                    under.waiters += waiters
        if count < 0:
            self._forget_if_nothing(principal)

    def _had(self, principal: str) -> Had:
        had = self.principals.get(principal)
        if had is None:
            had = self.principals[principal] = Had()
        return had

    def _forget_if_nothing(self, principal: str) -> None:
        if self.principals[principal].is_nothing():
            del self.principals[principal]

    def had_by(self, principal: str) -> Had:
        return self.principals.get(principal) or Had()

    def refusal(self, quota: NamedQuota, what: str, most: int, text: str) -> Refused | None:
        """Tally that a bound was met; the refusal, if the quota does more than count."""
        name, terms = quota
        self.exceeded[name, what] = self.exceeded.get((name, what), 0) + 1
        if terms.mode is QuotaMode.COUNT:
            return None
        return Refused(Code.LIMIT, f"quota {name!r}: {text}")


def counted(state: State, book: Rulebook) -> Usage | None:
    """What every principal has in a state, from a scan of all of it; None: there is no quota to need it."""
    if not book.policy.quotas:
        return None
    before = state.usage
    usage = Usage(book, None if before is None else before.exceeded)
    for session in state.sessions.values():
        usage.add_session(session.principal, 1)
        usage.add_names(session.principal, tuple(hold.name for hold in session.all_holds()), 1)
        for waiter in session.waiters.values():
            usage.add_names(session.principal, waiter.ask.names, 1, 1)
    return usage


def recounted(state: State, book: Rulebook) -> Usage | None:
    """As `counted`, but only what another rulebook counts otherwise: half a million holds take a while."""
    before = state.usage
    prefixes = {quota.prefix or "" for _, quota in book.prefix_quotas}
    if before is None or not book.policy.quotas or prefixes - before.under.keys():
        return counted(state, book)
    usage = Usage(book, before.exceeded)
    usage.principals = before.principals
    usage.under = {prefix: before.under[prefix] for prefix in usage.under}
    return usage


def refuse_opening(state: State, principal: str, command: OpenSession) -> Refused | None:
    """Why a principal gets no more sessions, or none so long, if so."""
    usage = state.usage
    quota = None if usage is None else usage.book.rights_of(principal).quota
    if usage is None or quota is None:
        return None
    terms, refusal = quota[1], None
    if terms.sessions and usage.had_by(principal).sessions >= terms.sessions:
        refusal = usage.refusal(quota, "sessions", terms.sessions, f"at most {terms.sessions} sessions")
    if refusal is None and terms.ttl_ms and command.ttl_ms > terms.ttl_ms:
        refusal = usage.refusal(quota, "ttl_ms", terms.ttl_ms, f"a ttl is at most {shown(terms.ttl_ms / 1000)}")
    return refusal


def refuse_asking(state: State, session: Session, ask: Acquire) -> Refused | None:
    """Why a principal gets no more names, or not on such terms, if so."""
    usage = state.usage
    if usage is None:
        return None
    quota = usage.book.rights_of(session.principal).quota
    if quota is not None:
        had = usage.had_by(session.principal)
        refusal = _refuse_more(usage, quota, had, len(ask.names)) or _refuse_terms(usage, quota, session, ask)
        if refusal is not None:
            return refusal
    for each in usage.book.prefix_quotas:
        prefix = each[1].prefix or ""
        names = sum(name.startswith(prefix) for name in ask.names)
        if names:
            under = usage.under[prefix]
            refusal = _refuse_more(usage, each, under, names) or _refuse_terms(usage, each, session, ask)
            if refusal is not None:
                return refusal
    return None


def refuse_waiting(state: State, session: Session, ask: Acquire) -> Refused | None:
    """Why one more request of a principal does not wait, if so."""
    usage = state.usage
    if usage is None:
        return None
    quota = usage.book.rights_of(session.principal).quota
    met = [] if quota is None else [(quota, usage.had_by(session.principal))]
    for each in usage.book.prefix_quotas:
        prefix = each[1].prefix or ""
        if any(name.startswith(prefix) for name in ask.names):
            met.append((each, usage.under[prefix]))
    for each, had in met:
        most = each[1].waiters
        if most and had.waiters >= most:
            refusal = usage.refusal(each, "waiters", most, f"at most {most} requests wait")
            if refusal is not None:
                return refusal
    return None


def refuse_extending(state: State, session: Session, command: Extend) -> Refused | None:
    """Why a hold is not given so much more time, if so."""
    usage = state.usage
    if usage is None:
        return None
    ttl_ms = command.ttl_ms or session.ttl_ms
    quota = usage.book.rights_of(session.principal).quota
    quotas = [] if quota is None else [quota]
    quotas += [
        each
        for each in usage.book.prefix_quotas
        if any(name.startswith(each[1].prefix or "") for name in command.names)
    ]
    for each in quotas:
        refusal = _refuse_ttl(usage, each, ttl_ms)
        if refusal is not None:
            return refusal
    return None


def _refuse_more(usage: Usage, quota: NamedQuota, had: Had, names: int) -> Refused | None:
    most = quota[1].holds
    if most and had.holds + names > most:
        return usage.refusal(quota, "holds", most, f"at most {most} names are held and awaited")
    return None


def _refuse_terms(usage: Usage, quota: NamedQuota, session: Session, ask: Acquire) -> Refused | None:
    most_ms = quota[1].wait_ms
    if most_ms and (ask.wait_ms == FOREVER or ask.wait_ms > most_ms):
        refusal = usage.refusal(quota, "wait_ms", most_ms, f"a wait is at most {shown(most_ms / 1000)}")
        if refusal is not None:
            return refusal
    # A hold without a ttl of its own lives as long as its session: that long after its client was last heard from.
    return _refuse_ttl(usage, quota, ask.ttl_ms or session.ttl_ms)


def _refuse_ttl(usage: Usage, quota: NamedQuota, ttl_ms: int) -> Refused | None:
    most_ms = quota[1].ttl_ms
    if most_ms and ttl_ms > most_ms:
        return usage.refusal(quota, "ttl_ms", most_ms, f"a ttl is at most {shown(most_ms / 1000)}")
    return None


def count_waiter(usage: Usage, principal: str, waiter: Waiter, count: int) -> None:
    """A waiter joined its queues, or left them."""
    usage.add_names(principal, waiter.ask.names, count, count)
