"""Places: which znodes the queue of a name is made of, in which order they stand, and who is granted.

::

    /fencehold-locks/=<name>/x-<token>-0000000007      exclusive
                             s-<token>-0000000008      shared
                             p3-<token>-0000000009     one of three permits

1. A name is one path part, whatever it is made of, and no two names are the same one.
2. Places stand in the order in which they were made. The number at the end says it; it counts what was ever made
   under its parent, in 32 bits, and goes on below zero when they are full. So numbers are compared by their
   distance, and never by their size. A parent that was removed and made again begins anew: all before had gone.
3. A place is granted when no place before it stands in its way. An exclusive one needs to be the first; a shared
   one needs all before it to be shared; a permit needs all before it to be permits, and fewer than there are. So
   whenever a place is granted, all those before it are: grants go in the order of the places, and so do fences,
   also those of readers who share.
4. Who waits watches those only of which one must go before it can be granted: the one before it; of readers, the
   last that is no reader; of permits, as many as there are in all, as one of these must go. So what goes wakes one
   that waits, or as many as there are permits, and never the whole queue.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

_HALF = 1 << 31
_FULL = 1 << 32


class Place(NamedTuple):
    """One place in a queue."""

    node: str
    """What it is called among the children of its parent."""
    mode: str
    """`x`, `s` or `p`."""
    limit: int
    token: str
    number: int


def part_of(name: str) -> str:
    """A name as a path part. The sign before it keeps `.` and `..` from being parts of their own."""
    return "=" + quote(name, safe=":")


def stem_of(token: str, *, shared: bool, limit: int) -> str:
    """What a place is called, as far as the number that ZooKeeper adds."""
    mode = f"p{limit}" if limit else "s" if shared else "x"
    return f"{mode}-{token}-"


def place_of(node: str) -> Place | None:
    """Read what a child is called; None if it is none of ours."""
    mode, _, rest = node.partition("-")
    token, _, number = rest.partition("-")
    try:
        limit = int(mode[1:] or "0")
        if token and mode[:1] in ("x", "s", "p") and (limit > 0) == (mode[:1] == "p"):
            return Place(node, mode[0], limit, token, int(number))
    except ValueError:
        pass
    return None


def in_order(nodes: Iterable[str]) -> list[Place]:
    """The places among the children of a parent, in the order in which they were made."""
    places = [place for node in nodes if (place := place_of(node)) is not None]
    if places:
        # Any of them will do: all are far less than half a round apart.
        somewhere = places[0].number
        places.sort(key=lambda place: (place.number - somewhere + _HALF) % _FULL)
    return places


def before(places: Sequence[Place], node: str) -> list[Place] | None:
    """Those before one; None if it is not there."""
    for index, place in enumerate(places):
        if place.node == node:
            return list(places[:index])
    return None


def blockers(ahead: Sequence[Place], mode: str, limit: int) -> list[Place]:
    """Those of whom one must go before a place behind them can be granted; none if it is granted now."""
    if mode == "x":
        return list(ahead[-1:])
    others = [place for place in ahead if (place.mode, place.limit) != (mode, limit)]
    if others:
        return others[-1:]
    return list(ahead[-limit:]) if mode == "p" and len(ahead) >= limit else []


def other_limit(ahead: Sequence[Place], limit: int) -> int:
    """The limit with which a semaphore is in use, if it is another one; else 0."""
    return next((place.limit for place in ahead if place.mode == "p" and limit and place.limit != limit), 0)


def holders(places: Sequence[Place]) -> int:
    """How many of the first are granted."""
    for index, place in enumerate(places):
        if blockers(places[:index], place.mode, place.limit):
            return index
    return len(places)
