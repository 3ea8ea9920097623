"""What is seen of a name on a backend, in the words of `explain`."""

import json
from typing import Any

from fencehold.client.views import Explanation, Holder, Party, Waiting, party


def stamp(who: str, owner: str, meta: str) -> str:
    """What a backend keeps beside a lease, so that others can see whose it is: one line of JSON."""
    return json.dumps([who, owner, meta], separators=(",", ":"))


def holder(stamped: str, *, fence: int, mode: str, limit: int, held_for: float, left: float | None) -> Holder:
    """A holder, of whom a backend keeps what `stamp` made; somebody unknown, if it is something else."""
    whose, meta = _read(stamped)
    return Holder(whose, fence, mode, limit, held_for, left, meta)


def waiting(place: int, stamped: str, *, mode: str, name: str, waited_for: float, left: float | None) -> Waiting:
    """Somebody in a queue."""
    whose, _ = _read(stamped)
    return Waiting(place, whose, mode, (name,), waited_for, left)


def explanation(name: str, holders: list[Holder], queue: list[Waiting] | None = None) -> Explanation:
    """All of a name."""
    return Explanation(name, tuple(holders), tuple(queue or ()), 0.0)


def _read(stamped: str) -> tuple[Party, Any]:
    said = _json(stamped)
    if not (isinstance(said, list) and len(said) == 3):
        return party(0, "", None), None
    who, owner, meta = said
    return party(0, str(owner), _json(who)), _json(meta) if isinstance(meta, str) and meta else None


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text
