"""The state of a name on a backend, as `explain` shows it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from fencehold.backends.port import Ask
from fencehold.locks.views import Explanation, Holder, Kept, Party, Waiting, party


class SeenHolder(NamedTuple):
    """A record: the holder of a name; and for whom it is kept for a least time, if it is."""

    holder: Holder
    kept: Kept | None


def stamp(who: str, owner: str, meta: str, at_least: float = 0.0) -> str:
    """What a backend stores with a lease, so that others can see its owner: one line of JSON."""
    said: list[object] = [who, owner, meta]
    return json.dumps([*said, at_least] if at_least else said, separators=(",", ":"))


def stamp_of(who: str, ask: Ask) -> str:
    """The stamp of an ask by a client with this metadata."""
    return stamp(who, ask.owner, ask.terms.meta, ask.terms.at_least)


def holder(
    stamped: str, *, fence: int, mode: str, limit: int, held_for: float | None, left: float | None
) -> SeenHolder:
    """A holder, from what `stamp` made; an unknown one, if it is something else.

    `held_for` is None if the backend does not know since when.
    """
    whose, meta, at_least = _read(stamped)
    age, since = held_for or 0.0, _since(held_for)
    least_s = at_least - age
    kept = Kept(whose, fence, age, least_s, meta, since, age) if least_s > 0 else None
    return SeenHolder(Holder(whose, fence, mode, limit, age, left, meta, since, age), kept)


def waiting(place: int, stamped: str, *, mode: str, name: str, waited_for: float, left: float | None) -> Waiting:
    """A waiter in a queue."""
    whose, _, _ = _read(stamped)
    return Waiting(place, whose, mode, (name,), waited_for, left, _since(waited_for), waited_for)


def explanation(name: str, held: list[SeenHolder], queue: list[Waiting] | None = None) -> Explanation:
    """The explanation of a name."""
    kept = next((each.kept for each in held if each.kept is not None), None)
    return Explanation(name, tuple(each.holder for each in held), tuple(queue or ()), 0.0, kept)


def _since(age: float | None) -> datetime | None:
    """The time of day so long ago, to be shown."""
    return None if age is None else datetime.now(UTC) - timedelta(seconds=age)


def _read(stamped: str) -> tuple[Party, Any, float]:
    """The party of a stamp, the metadata, and the least time in seconds."""
    said = _json(stamped)
    if not (isinstance(said, list) and len(said) in (3, 4)):
        return party(0, "", None), None, 0.0
    who, owner, meta, *least = said
    whose = party(0, str(owner), _json(who))
    at_least = least[0] if least and isinstance(least[0], int | float) else 0.0
    return whose, _json(meta) if isinstance(meta, str) and meta else None, at_least


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text
