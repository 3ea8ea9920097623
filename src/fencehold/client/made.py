"""Which holds a lock has made, and for whom: so that `release` and the end of a body find the right one."""

from collections.abc import Hashable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from fencehold.client.current import Body
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


class Levels(Generic[Held]):
    """How often each task or thread has taken the names it may take again, by whatever lock object of a client."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: WeakKeyDictionary[Any, dict[str, tuple[Held, list[Body[Any] | None]]]] = WeakKeyDictionary()
        """Weak: what a thread has left behind is not the next one's who gets its number."""

    def held(self, who: Any, name: str) -> Held | None:
        """What this task or thread has the name by; it may be lost."""
        level = self._taken.get(who, {}).get(name)
        return None if level is None else level[0]

    def enter(self, who: Any, name: str, hold: Held, body: Body[Any] | None = None) -> None:
        """Go one level deeper; with a body if there is one."""
        self._taken.setdefault(who, {}).setdefault(name, (hold, []))[1].append(body)

    def leave(self, who: Any, name: str) -> tuple[Held, bool] | None:
        """Leave one level: what was held, and whether that was the last one; None if there was no level."""
        levels = self._taken.get(who, {})
        if name not in levels:
            return None
        hold, bodies = levels[name]
        body = bodies.pop()
        if body is not None:
            body.leave()
        if not bodies:
            del levels[name]
        return hold, not bodies
