"""Which holds a lock has made, and for whom: so that `release` and the end of a body find the right one."""

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from fencehold.client.trust import Grant


class Made(Protocol):
    """A hold, as far as it matters here."""

    _grant: Grant


Held = TypeVar("Held", bound=Made)


class Holds(Generic[Held]):
    """The holds of each task or thread, oldest first. Those that were given back are forgotten by and by."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[Hashable, list[Held]] = {}

    def add(self, owner: Hashable, hold: Held) -> None:
        """The lock made a hold for this owner."""
        holds = self.of(owner)
        holds.append(hold)
        self._made[owner] = holds

    def of(self, owner: Hashable) -> list[Held]:
        """What this owner has not given back; it may be lost."""
        return [hold for hold in self._made.get(owner, ()) if hold._grant.ending != "released"]

    def take(self, owner: Hashable) -> Held | None:
        """Take out what this owner got last and has not given back."""
        holds = self.of(owner)
        last = holds.pop() if holds else None
        if holds:
            self._made[owner] = holds
        else:
            self._made.pop(owner, None)
        return last
