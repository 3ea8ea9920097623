"""The queue of a name: its znodes, their order, which are granted; and one ask's entry in it.

::

    /fencehold-locks/=<name>/x-<token>-0000000007      exclusive
                             s-<token>-0000000008      shared
                             p3-<token>-0000000009     one of three permits

1. A name is one path part, whatever characters it has, and no two names share one.
2. Places are in the order in which they were made. The number at the end says it; it counts what was ever made
   under its parent, in 32 bits, and wraps around below zero. So numbers are compared by their distance, and never
   by their size. A parent that was removed and made again begins anew: all before were gone.
3. A place is granted when no place before it blocks it. An exclusive one needs to be the first; a shared one needs
   all before it to be shared; a permit needs all before it to be permits, and fewer than there are. So whenever a
   place is granted, all those before it are: grants go in the order of the places, and so do fences, also those of
   shared holders.
4. A waiter watches only the places of which one must go before it can be granted: the one before it; for a reader,
   the last that is no reader; for a permit, as many as there are in all, as one of these must go. So a removal
   wakes up one waiter, or as many as there are permits, and never the whole queue.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from fencehold.backends.port import Ask
from fencehold.backends.zookeeper.session import Told, ZookeeperSession
from fencehold.errors import UsageError

_HALF = 1 << 31
_FULL = 1 << 32


class QueuePlace(NamedTuple):
    """One place in a queue."""

    node: str
    """Its name among the children of its parent."""
    mode: str
    """`x`, `s` or `p`."""
    limit: int
    token: str
    number: int


def part_of(name: str) -> str:
    """A name as a path part. The sign before it keeps `.` and `..` from being parts of their own."""
    return "=" + quote(name, safe=":")


def stem_of(token: str, *, shared: bool, limit: int) -> str:
    """The name of a place, without the number that ZooKeeper adds."""
    mode = f"p{limit}" if limit else "s" if shared else "x"
    return f"{mode}-{token}-"


def place_of(node: str) -> QueuePlace | None:
    """Parse the name of a child; None if it is none of ours."""
    mode, _, rest = node.partition("-")
    token, _, number = rest.partition("-")
    try:
        limit = int(mode[1:] or "0")
        if token and mode[:1] in ("x", "s", "p") and (limit > 0) == (mode[:1] == "p"):
            return QueuePlace(node, mode[0], limit, token, int(number))
    except ValueError:
        pass
    return None


def in_order(nodes: Iterable[str]) -> list[QueuePlace]:
    """The places among the children of a parent, in the order in which they were made."""
    places = [place for node in nodes if (place := place_of(node)) is not None]
    if places:
        # Any of them will do: all are far less than half a round apart.
        somewhere = places[0].number
        places.sort(key=lambda place: (place.number - somewhere + _HALF) % _FULL)
    return places


def before(places: Sequence[QueuePlace], node: str) -> list[QueuePlace] | None:
    """Those before one; None if it is not there."""
    for index, place in enumerate(places):
        if place.node == node:
            return list(places[:index])
    return None


def blockers(ahead: Sequence[QueuePlace], mode: str, limit: int) -> list[QueuePlace]:
    """The places of which one must go before a place behind them can be granted; none if it is granted now."""
    if mode == "x":
        return list(ahead[-1:])
    others = [place for place in ahead if (place.mode, place.limit) != (mode, limit)]
    if others:
        return others[-1:]
    return list(ahead[-limit:]) if mode == "p" and len(ahead) >= limit else []


def other_limit(ahead: Sequence[QueuePlace], limit: int) -> int:
    """The limit with which a semaphore is in use, if it is another one; else 0."""
    return next((place.limit for place in ahead if place.mode == "p" and limit and place.limit != limit), 0)


def holders(places: Sequence[QueuePlace]) -> int:
    """How many of the first are granted."""
    for index, place in enumerate(places):
        if blockers(places[:index], place.mode, place.limit):
            return index
    return len(places)


class QueueEntry:
    """Known by the token of its ask, which is in the name of its node: so it can be found again."""

    __slots__ = (
        "ahead",
        "ask",
        "data",
        "fence",
        "is_doubtful",
        "parent",
        "path",
        "session",
        "stem",
        "timer",
        "told",
    )

    def __init__(self, ask: Ask, parent: str, data: bytes) -> None:
        self.ask = ask
        self.parent = parent
        self.data = data
        self.stem = stem_of(ask.token, shared=ask.terms.shared, limit=ask.terms.limit)
        self.session: ZookeeperSession | None = None
        """The one in which it may have a node."""
        self.path = ""
        """The path of its node, once that is known."""
        self.is_doubtful = False
        """Whether it may have a node without our knowing where."""
        self.fence = 0
        self.ahead: list[QueuePlace] | None = None
        """Those before it; None when they have to be read."""
        self.timer: asyncio.TimerHandle | None = None
        """The timer after which its holder watches it."""
        self.told: Told | None = None
        """The callback for its removal, once its holder watches it."""

    @property
    def node(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def may_be_there(self) -> bool:
        """Whether servers may have a node of it."""
        return self.session is not None and not self.session.is_over and bool(self.path or self.is_doubtful)

    def begin(self, session: ZookeeperSession) -> None:
        """It is about to be made in a session. What it had in an earlier one ended with that."""
        self.leave()
        self.session = session
        self.is_doubtful = True
        session.claims += 1

    def leave(self) -> None:
        """It no longer has a node."""
        if self.session is not None:
            self.session.claims -= 1
        self.session, self.path, self.is_doubtful, self.ahead = None, "", False, None

    def found(self, path: str, fence: int) -> None:
        """Its node is known."""
        self.path, self.fence, self.is_doubtful = path, fence, False

    def see(self, nodes: list[str]) -> bool:
        """These are the children of its parent; returns whether it is among them.

        Raises:
            UsageError: the name is a semaphore with another limit.
        """
        self.ahead = before(in_order(nodes), self.node)
        limit = self.ask.terms.limit
        if self.ahead and limit and (other := other_limit(self.ahead, limit)):
            raise UsageError(
                f"{self.ask.terms.label} is in use as a semaphore with a limit of {other}, not {limit}"
            )
        return self.ahead is not None

    def own_among(self, nodes: list[str]) -> str:
        """Which of these is its own; empty if none is."""
        token = self.ask.token
        return next((node for node in nodes if (place := place_of(node)) and place.token == token), "")

    def blockers(self) -> list[str]:
        """The paths of the places of which one must go before it is granted."""
        terms = self.ask.terms
        mode = "p" if terms.limit else "s" if terms.shared else "x"
        return [f"{self.parent}/{place.node}" for place in blockers(self.ahead or (), mode, terms.limit)]

    def unwatch(self) -> None:
        """Stop watching it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.told is not None and self.session is not None:
            self.session.unwatch(self.path, self.told)
            self.told = None
