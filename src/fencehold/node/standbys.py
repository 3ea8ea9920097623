"""The standbys a leader knows of: which nodes follow it, how far, and which goes first should it stop.

A standby's rank is its place in the order in which they came; when one leaves, the others move up. Ranks only keep
standbys from taking over all at once: that two have the same is no harm.
"""

from collections.abc import Callable
from typing import NamedTuple

STANDBYS_MAX = 64


class Member(NamedTuple):
    """The name of a node, and where clients reach it. A node alone has neither."""

    name: str = ""
    address: str = ""


class Standby(NamedTuple):
    """What a standby last said of itself."""

    member: Member
    position: int
    heard_at: float
    hurry: Callable[[], None] | None = None
    """Tells it to follow all journals closely for a while."""


class Standbys:
    """Those of one leader, each by the callback that says goodbye to it."""

    def __init__(self) -> None:
        self._known: dict[Callable[[], None], Standby] = {}
        """By goodbye callback; in the order they came."""

    def report(self, goodbye: Callable[[], None], standby: Standby) -> int | None:
        """Record how far a standby is; returns its rank, or None if there are too many."""
        if goodbye not in self._known and len(self._known) >= STANDBYS_MAX:
            return None
        self._known[goodbye] = standby
        return list(self._known).index(goodbye)

    def prefer(self, name: str) -> bool:
        """Let the standby of that name be the first from here on; returns whether it is known."""
        first = next((goodbye for goodbye, standby in self._known.items() if standby.member.name == name), None)
        if first is None:
            return False
        self._known = {first: self._known[first], **self._known}
        return True

    def leave(self, goodbye: Callable[[], None]) -> None:
        """Its connection is gone."""
        self._known.pop(goodbye, None)

    def dismiss(self) -> bool:
        """Say goodbye to all; returns whether there were any."""
        known, self._known = self._known, {}
        for goodbye in known:
            goodbye()
        return bool(known)

    def hurry(self) -> None:
        """Have all follow closely for a while, as far as they are reached."""
        for standby in self._known.values():
            if standby.hurry is not None:
                standby.hurry()

    def all(self) -> list[Standby]:
        """In the order of their ranks."""
        return list(self._known.values())
