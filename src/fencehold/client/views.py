"""What there is to see: who holds a name and who waits for it, and what happens to names."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fencehold.client.terms import Terms
from fencehold.errors import LockTimeout


class Party(NamedTuple):
    """A client as it introduced itself, and who inside it asked."""

    session: int
    owner: str
    """The task or thread."""
    client: str
    host: str
    pid: int
    details: Mapping[str, Any]
    """All that the client said of itself when it opened its session."""

    def __str__(self) -> str:
        who = self.client or f"session {self.session}"
        where = f" on {self.host} (pid {self.pid})" if self.host else ""
        return f"{who}{where}" + (f", {self.owner}" if self.owner else "")


class Holder(NamedTuple):
    """A hold on a name."""

    party: Party
    fence: int
    mode: str
    """X exclusive, S shared, P a permit of a semaphore."""
    limit: int
    held_for: float
    """Seconds since the grant."""
    left: float | None
    """Seconds until it ends by itself; None: with its session."""
    meta: Any
    """What was given with the acquire: what JSON said, or text."""

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


class Kept(NamedTuple):
    """A name that nobody else may have before a time, whatever became of the hold: `once(at_least=…)`."""

    party: Party
    """Whose run it is, or was: it may have ended."""
    fence: int
    kept_for: float
    """Seconds since the grant."""
    left: float
    """Seconds until the name can be had by others."""
    meta: Any
    """What was given with the acquire."""


class Explanation(NamedTuple):
    """Who has a name, since when, and who wants it."""

    name: str
    holders: tuple[Holder, ...]
    queue: tuple[Waiting, ...]
    delayed: float
    """Seconds for which the name stays ungranted after an unclean end."""
    kept: Kept | None = None
    """Until when nobody else may have the name, and for whose run; None if it is not so."""

    @property
    def is_taken(self) -> bool:
        """Whether somebody holds it, or it is kept for a run's least time."""
        return bool(self.holders) or self.kept is not None

    def __str__(self) -> str:
        if not self.holders and self.kept is not None:
            kept = self.kept
            return (
                f"{self.name!r} is kept for {kept.left:.1f} s more (at_least) after the run of {kept.party} that "
                f"began {kept.kept_for:.1f} s ago with fence {kept.fence}; {len(self.queue)} wait"
            )
        if not self.holders:
            return f"{self.name!r} is free" if not self.delayed else f"{self.name!r} is delayed"
        first = self.holders[0]
        more = f" and {len(self.holders) - 1} more" if len(self.holders) > 1 else ""
        return (
            f"{self.name!r} is held by {first.party} for {first.held_for:.1f} s with fence {first.fence}{more}; "
            f"{len(self.queue)} wait"
        )


class Event(NamedTuple):
    """Something that happened. Of kind `gap`: events up to `position` were missed."""

    kind: str
    position: int
    at_ms: int
    """Logical time."""
    session: int
    owner: str
    names: tuple[str, ...]
    fence: int
    detail: str


def may_concern(event: Event, name: str) -> bool:
    """Whether somebody else may have a name after this event."""
    return name in event.names or event.kind in ("gap", "session_ended")


def explanation(reply: dict[bytes, Any]) -> Explanation:
    """Read the answer to LOCK.INFO."""
    return Explanation(
        reply[b"name"].decode(),
        tuple(_holder(hold) for hold in reply[b"holds"]),
        tuple(_waiting(place, waiter) for place, waiter in enumerate(reply[b"waiters"])),
        reply[b"delayed_ms"] / 1000,
        # An older server knows of none.
        next((_kept(kept) for kept in reply.get(b"kept", ())), None),
    )


def party(session: int, owner: str, said: Any) -> Party:
    """A client by what it said of itself, which may be anything."""
    details = said if isinstance(said, dict) else {}
    pid = details.get("pid", 0)
    client, host = str(details.get("client", "")), str(details.get("host", ""))
    return Party(session, owner, client, host, pid if isinstance(pid, int) else 0, details)


def not_to_be_had(terms: Terms, seen: Explanation | None) -> LockTimeout:
    """The error for names that were not granted in time, saying who has them, if that is known."""
    who = f": {seen}" if seen is not None else ""
    message = f"{terms.label} was not to be had in {terms.timeout or 0:g} s{who}"
    return LockTimeout(message, names=terms.names, explanation=seen)


def event(push: dict[bytes, Any]) -> Event:
    """Read a pushed event."""
    return Event(
        push[b"kind"].decode(),
        push[b"position"],
        push.get(b"at", 0),
        push.get(b"session", 0),
        push.get(b"owner", b"").decode(),
        tuple(name.decode() for name in push.get(b"names", ())),
        push.get(b"fence", 0),
        push.get(b"detail", b"").decode(),
    )


def _holder(hold: dict[bytes, Any]) -> Holder:
    return Holder(
        _party(hold),
        hold[b"fence"],
        hold[b"mode"].decode(),
        hold[b"limit"],
        hold[b"held_ms"] / 1000,
        _left(hold[b"left_ms"]),
        _json(hold[b"meta"]),
    )


def _waiting(place: int, waiter: dict[bytes, Any]) -> Waiting:
    names = tuple(name.decode() for name in waiter[b"names"])
    waited = waiter[b"waited_ms"] / 1000
    return Waiting(place, _party(waiter), waiter[b"mode"].decode(), names, waited, _left(waiter[b"left_ms"]))


def _kept(kept: dict[bytes, Any]) -> Kept:
    left = kept[b"left_ms"] / 1000
    return Kept(_party(kept), kept[b"fence"], kept[b"kept_ms"] / 1000, left, _json(kept[b"meta"]))


def _party(seen: dict[bytes, Any]) -> Party:
    return party(seen[b"session"], seen[b"owner"].decode(), _json(seen[b"session_meta"]))


def _left(left_ms: int) -> float | None:
    return None if left_ms < 0 else left_ms / 1000


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode("utf-8", "replace")


def _trace_of(meta: Any) -> str:
    if not isinstance(meta, dict):
        return ""
    return str(next((meta[key] for key in ("trace", "trace_id", "traceparent") if key in meta), ""))
