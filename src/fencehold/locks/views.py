"""What there is to see: who holds a name and who waits for it, and what happens to names."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct

from fencehold.errors import LockTimeout
from fencehold.locks.terms import Terms

EXPLAIN_LIMIT = 100
"""How many holders, and how many waiters, an explanation lists unless more are asked for."""

A_FEW = 5
"""How many it lists where one look is enough: in an error, in the log, to see whether a name is taken."""

_DAY_S = 86_400
_YEAR_9999_MS = 253_370_764_800_000


class Party(NamedTuple):
    """A client as it introduced itself, and the owner inside it that made the request."""

    session: int
    owner: str
    """The task or thread."""
    client: str
    host: str
    pid: int
    details: Mapping[str, Any]
    """All that the client said of itself when it opened its session."""

    @property
    def user(self) -> str:
        """The user who started it, if it says so: the command line does."""
        return str(self.details.get("user", ""))

    def __str__(self) -> str:
        return self.described() + (f", {self.owner}" if self.owner else "")

    def described(self) -> str:
        """Which client it is, and where, in a few words."""
        pid = f"pid {self.pid}" if self.pid else ""
        if self.user:
            what = ", ".join(filter(None, (self.client, pid)))
            return (f"{self.user}@{self.host}" if self.host else self.user) + (f" ({what})" if what else "")
        unnamed = f"session {self.session}" if self.session else "an unnamed client"
        who, peer = self.client or unnamed, self.details.get("peer", "")
        where = f" on {self.host}" if self.host else f" from {peer}" if peer else ""
        return f"{who}{where}" + (f" ({pid})" if pid else "")


class Holder(NamedTuple):
    """A hold on a name."""

    party: Party
    fence: int
    mode: str
    """X exclusive, S shared, P a permit of a semaphore."""
    limit: int
    held_for: float
    """Seconds since the grant, as the service counts them: without its downtime."""
    left: float | None
    """Seconds until it ends by itself; None: with its session."""
    meta: Any
    """What was given with the acquire: what JSON said, or text."""
    since: datetime | None = None
    """The time of day of the grant, in UTC, by the clock of what granted it; None: not known. For display, never
    for decisions: clocks are wrong, and are set."""
    age: float = 0.0
    """Seconds since then, including the service's downtime; `held_for` if that is not known."""

    @property
    def trace(self) -> str:
        """The trace id, if the metadata has one."""
        return _trace_of(self.meta)


class Waiting(NamedTuple):
    """A place in a queue."""

    position: int
    """0 is the next."""
    party: Party
    mode: str
    names: tuple[str, ...]
    waited_for: float
    left: float | None
    """Seconds until it gives up; None: never."""
    since: datetime | None = None
    """The time of day at which it joined the queue, in UTC; None: not known."""
    age: float = 0.0
    """Seconds since then, including the service's downtime; `waited_for` if that is not known."""


class Kept(NamedTuple):
    """A name that no other owner gets before a time, whatever became of the hold: `once(at_least=…)`."""

    party: Party
    """Whose run it is, or was: it may have ended."""
    fence: int
    kept_for: float
    """Seconds since the grant, as the service counts them."""
    left: float
    """Seconds until the name can be granted to others."""
    meta: Any
    """What was given with the acquire."""
    since: datetime | None = None
    """The time of day of the grant, in UTC; None: not known."""
    age: float = 0.0
    """Seconds since then, including the service's downtime; `kept_for` if that is not known."""


class Explanation(NamedTuple):
    """Who holds a name, since when, and who waits for it."""

    name: str
    holders: tuple[Holder, ...]
    """By fence: the oldest first. Up to a limit: see `more_holders`."""
    queue: tuple[Waiting, ...]
    """In order: the first is next. Up to a limit: see `more_waiters`."""
    delayed: float
    """Seconds for which the name stays ungranted after an unclean end."""
    kept: Kept | None = None
    """Until when no other owner gets the name, and for whose run; None if it is not kept."""
    more_holders: int = 0
    """How many hold it besides those listed."""
    more_waiters: int = 0
    """How many wait behind those listed."""

    @property
    def holder_count(self) -> int:
        """How many hold it, listed or not."""
        return len(self.holders) + self.more_holders

    @property
    def waiter_count(self) -> int:
        """How many wait for it, listed or not."""
        return len(self.queue) + self.more_waiters

    @property
    def is_taken(self) -> bool:
        """Whether it is held, or kept for a run's least time."""
        return bool(self.holders) or self.kept is not None

    def __str__(self) -> str:
        if not self.holders and self.kept is not None:
            kept = self.kept
            return (
                f"{self.name!r} is kept for {kept.left:.1f} s more (at_least) after the run of {kept.party} that "
                f"began {kept.age:.1f} s ago{_since(kept)} with fence {kept.fence}; {self._queue()}"
            )
        if not self.holders:
            return f"{self.name!r} is free" if not self.delayed else f"{self.name!r} is delayed"
        first = self.holders[0]
        more = f" and {self.holder_count - 1} more" if self.holder_count > 1 else ""
        held = f"held by {first.party} for {first.age:.1f} s{_since(first)}"
        return f"{self.name!r} is {held} with fence {first.fence}{more}; {self._queue()}"

    def _queue(self) -> str:
        count = self.waiter_count
        return "no waiters" if not count else f"{count} wait" + ("s" if count == 1 else "")


WHOLE = (1 << 53) - 1
"""An index beyond all that happened at one position."""


class Missing(NamedTuple):
    """What a gap names: all that happened from one position to another."""

    first: int
    last: int
    after: int = 0
    """At the first position, only what is after this index is missing."""


class Event(Struct, frozen=True):
    """Something that happened, at its place: shard, position, index. Of kind `gap`: see `missing`."""

    kind: str
    position: int
    at_ms: int
    """Logical time."""
    session: int
    owner: str
    names: tuple[str, ...]
    fence: int
    detail: str
    party: Party | None = None
    """Who did it, or whom it happened to, also if the session has ended; None for a gap."""
    time: datetime | None = None
    """The time of day, in UTC; None: not known."""
    by: Party | None = None
    """Who broke the hold."""
    index: int = 0
    """Where in its position it is. Indexes grow, and have holes."""
    shard: int = 0
    principal: str = ""
    """Whose session it is, or who changed the policy or broke the hold; empty without authentication."""
    mode: str = ""
    """How names were acquired or asked for: X exclusive, S shared, P a permit; empty for other kinds."""
    meta: Any = None
    """What was given with the acquire: what JSON said, or text."""
    unix_ms: int | None = None
    """`time` as milliseconds since 1970."""
    missing: Missing | None = None
    """Of a gap: which positions."""

    @property
    def client(self) -> str:
        """The name of the client, or its user, as `fencehold watch` shows it; empty if there is none."""
        party = self.party
        if party is None:
            return ""
        whose = f"{party.user}@{party.host}" if party.host else party.user
        return whose if party.user else party.client or f"session {party.session}"

    @property
    def place(self) -> tuple[int, int]:
        """Position and index: `watch(after=…)` resumes from here, and it identifies an event."""
        return self.position, WHOLE if self.kind == "gap" else self.index


_OF_NO_HOLD = ("busy", "refused", "fence_raised")


def may_concern(event: Event, name: str) -> bool:
    """Whether a name may be granted to another owner after this event."""
    return (name in event.names and event.kind not in _OF_NO_HOLD) or event.kind in ("gap", "session_ended")


def explanation(reply: dict[bytes, Any]) -> Explanation:
    """Read the answer to LOCK.INFO."""
    holds, waiters = reply[b"holds"], reply[b"waiters"]
    return Explanation(
        reply[b"name"].decode(),
        tuple(_holder(hold) for hold in holds),
        tuple(_waiting(waiter.get(b"ahead", place), waiter) for place, waiter in enumerate(waiters)),
        reply[b"delayed_ms"] / 1000,
        # An older server knows of none.
        next((_kept(kept) for kept in reply.get(b"kept", ())), None),
        max(0, reply.get(b"hold_count", 0) - len(holds)),
        max(0, reply.get(b"waiter_count", 0) - len(waiters)),
    )


def limited(seen: Explanation, limit: int | None) -> Explanation:
    """The same with at most so many holders, and waiters; the others are counted."""
    holders, queue = seen.holders[:limit], seen.queue[:limit]
    more_holders, more_waiters = seen.holder_count - len(holders), seen.waiter_count - len(queue)
    return seen._replace(holders=holders, queue=queue, more_holders=more_holders, more_waiters=more_waiters)


def party(session: int, owner: str, said: Any) -> Party:
    """A client by what it said of itself, which may be anything."""
    if isinstance(said, bytes | str):
        said = _json(said)
    if isinstance(said, str) and said:
        said = {"client": said}
    details = said if isinstance(said, dict) else {}
    pid = details.get("pid", 0)
    client, host = str(details.get("client", "")), str(details.get("host", ""))
    return Party(session, owner, client, host, pid if isinstance(pid, int) else 0, details)


def not_acquired(terms: Terms, seen: Explanation | None) -> LockTimeout:
    """The error for names that were not granted in time, saying who has them, if that is known."""
    within = f"not acquired within {terms.timeout:g} s" if terms.timeout else "not acquired"
    message = f"{within}: {seen}" if seen is not None else f"{terms.label} {within}"
    return LockTimeout(message, names=terms.names, explanation=seen)


def event(push: dict[bytes, Any]) -> Event:
    """Read a pushed event."""
    session, owner = push.get(b"session", 0), push.get(b"owner", b"").decode()
    by = push.get(b"by", b"")
    return Event(
        push[b"kind"].decode(),
        push[b"position"],
        push.get(b"at", 0),
        session,
        owner,
        tuple(name.decode() for name in push.get(b"names", ())),
        push.get(b"fence", 0),
        push.get(b"detail", b"").decode(),
        party(session, owner, push.get(b"session_meta", b"")) if session else None,
        time_of(push.get(b"unix_ms")),
        party(0, "", by) if by else None,
        push.get(b"index", 0),
        push.get(b"shard", 0),
        push.get(b"principal", b"").decode(),
        push.get(b"mode", b"").decode(),
        _json(meta) if (meta := push.get(b"meta", b"")) else None,
        push.get(b"unix_ms"),
        Missing(push[b"from"], push[b"to"], push[b"from_index"]) if b"from" in push else None,
    )


def gap(dropped: Sequence[Event], detail: str) -> Event:
    """One event in the place of several consecutive ones of a shard, which are dropped."""
    first, last = dropped[0], dropped[-1]
    begins = first.missing or Missing(first.position, 0, max(0, first.index - 1))
    missing = Missing(begins.first, last.position, begins.after)
    return Event("gap", last.position, last.at_ms, 0, "", (), 0, detail, shard=last.shard, missing=missing)


def time_of(unix_ms: int | None) -> datetime | None:
    """A time of day as the service gives it; None: it does not know, or its clock is out of all bounds."""
    if unix_ms is None or not 0 <= unix_ms < _YEAR_9999_MS:
        return None
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


def _since(seen: Holder | Kept) -> str:
    """Since when, to be shown: the local time of day, and the date if it is more than a day ago."""
    if seen.since is None:
        return ""
    form = "%H:%M:%S" if seen.age < _DAY_S else "%Y-%m-%d %H:%M:%S"
    return f" (since {seen.since.astimezone():{form}})"


def _holder(hold: dict[bytes, Any]) -> Holder:
    return Holder(
        _party(hold),
        hold[b"fence"],
        hold[b"mode"].decode(),
        hold[b"limit"],
        hold[b"held_ms"] / 1000,
        _left(hold[b"left_ms"]),
        _json(hold[b"meta"]),
        *_dated(hold, b"held_ms"),
    )


def _waiting(place: int, waiter: dict[bytes, Any]) -> Waiting:
    names = tuple(name.decode() for name in waiter[b"names"])
    return Waiting(
        place,
        _party(waiter),
        waiter[b"mode"].decode(),
        names,
        waiter[b"waited_ms"] / 1000,
        _left(waiter[b"left_ms"]),
        *_dated(waiter, b"waited_ms"),
    )


def _kept(kept: dict[bytes, Any]) -> Kept:
    return Kept(
        _party(kept),
        kept[b"fence"],
        kept[b"kept_ms"] / 1000,
        kept[b"left_ms"] / 1000,
        _json(kept[b"meta"]),
        *_dated(kept, b"kept_ms"),
    )


def _dated(seen: dict[bytes, Any], counted: bytes) -> tuple[datetime | None, float]:
    """Since when, and how many seconds that is; by a server that does not say, what it has counted."""
    return time_of(seen.get(b"since_unix_ms")), seen.get(b"age_ms", seen[counted]) / 1000


def _party(seen: dict[bytes, Any]) -> Party:
    return party(seen[b"session"], seen[b"owner"].decode(), seen[b"session_meta"])


def _left(left_ms: int) -> float | None:
    return None if left_ms < 0 else left_ms / 1000


def _json(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _trace_of(meta: Any) -> str:
    if not isinstance(meta, dict):
        return ""
    return str(next((meta[key] for key in ("trace", "trace_id", "traceparent") if key in meta), ""))
