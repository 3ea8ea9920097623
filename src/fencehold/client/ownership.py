"""Which holds a lock has made, and for which task or thread: so that `release` and the end of a body find them."""

from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from fencehold.errors import UsageError
from fencehold.locks.hold import Body, Claiming
from fencehold.locks.trust import Grant


class Made(Protocol):
    """A hold, as far as it matters here."""

    _grant: Grant


Held = TypeVar("Held", bound=Made)
Entering = TypeVar("Entering", bound=Claiming)


class Holds(Generic[Held]):
    """The holds of each task or thread, oldest first. Those that were released are pruned on the next add."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Any, list[Held]] = WeakKeyDictionary()
        """Weak: what an ended task or thread has left behind has no owner."""

    def add(self, who: Any, hold: Held) -> None:
        """The lock made a hold for this task or thread."""
        holds = self.of(who)
        holds.append(hold)
        self._made[who] = holds

    def of(self, who: Any) -> list[Held]:
        """What this task or thread has not released; it may be lost."""
        return [hold for hold in self._made.get(who, ()) if hold._grant.ending != "released"]

    def last(self, who: Any) -> Held | None:
        """What this task or thread acquired last and has not released."""
        holds = self.of(who)
        return holds[-1] if holds else None

    def drop(self, who: Any, hold: Held) -> None:
        """Remove it."""
        holds = [other for other in self.of(who) if other is not hold]
        if holds:
            self._made[who] = holds
        else:
            self._made.pop(who, None)


class Bodies(Generic[Entering]):
    """The bodies of a lock's `with` statements that are not over, and which task or thread entered each.

    A body may be left by another task or thread than entered it: a generator that is closed elsewhere, an exit
    stack that is passed on. If all open bodies are of one task or thread, the last of them is meant. If they are
    of several, it is not known which: to guess would release a hold that another one works under.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[Any, list[Body[Entering]]] = {}

    def enter(self, who: Any, body: Body[Entering]) -> None:
        """A body begins."""
        self._open.setdefault(who, []).append(body)

    def last(self, who: Any, error: BaseException | None) -> tuple[Any, Body[Entering]] | None:
        """Which body is over, with this error or none, and which task or thread entered it.

        Raises:
            UsageError: that is not known. An error of the body's own gets a note instead, and this returns None.
        """
        if who not in self._open:
            others = list(self._open)
            if len(others) != 1:
                failure = _not_entered(who, len(others))
                if error is None:
                    raise failure
                error.add_note(str(failure))
                return None
            who = others[0]
        bodies = self._open[who]
        while bodies[-1].is_over and len(bodies) > 1:
            # Its end was interrupted before this was recorded.
            bodies.pop()
        return who, bodies[-1]

    def leave(self, who: Any, body: Body[Entering]) -> None:
        """A body is over, if it was entered."""
        body.leave()
        bodies = self._open.get(who, [])
        if body in bodies:
            bodies.remove(body)
        if not bodies:
            self._open.pop(who, None)

    def of(self, who: Any) -> list[Entering]:
        """The holds of the bodies that a task or thread is inside of."""
        return [body.hold for body in self._open.get(who, ())]


def _not_entered(who: object, others: int) -> UsageError:
    if not others:
        return UsageError("this lock was not entered: there is nothing to leave")
    return UsageError(
        f"{who!r} has not entered this lock, and {others} others are inside by the same object: which hold to "
        "release is not known. Make a lock object for each `with` that may be left elsewhere than it was entered"
    )


class Levels(Generic[Held]):
    """How often each task or thread has acquired re-entrant names, by any lock object of a client.

    A level belongs to a body, and is left with it, or to an acquire, and is left by a release.
    """

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: WeakKeyDictionary[Any, dict[str, tuple[Held, list[Body[Any] | None]]]] = WeakKeyDictionary()
        """Weak: what an ended task or thread has left behind has no owner."""

    def held(self, who: Any, name: str) -> Held | None:
        """The hold of this task or thread on the name; it may be lost."""
        level = self._taken.get(who, {}).get(name)
        if level is None:
            return None
        if level[0]._grant.ending == "released":
            # Not by its lock, or that was interrupted before it could record it.
            self.go_back(who, name, 0)
            return None
        return level[0]

    def depth(self, who: Any, name: str) -> int:
        """How many levels deep this task or thread is."""
        return len(self._levels(who, name))

    def enter(self, who: Any, name: str, hold: Held, body: Body[Any] | None = None) -> None:
        """Go one level deeper; with a body if there is one."""
        self._taken.setdefault(who, {}).setdefault(name, (hold, []))[1].append(body)

    def go_back(self, who: Any, name: str, depth: int) -> None:
        """Leave all levels beyond so many."""
        levels = self._levels(who, name)
        del levels[depth:]
        if not levels:
            self._taken.get(who, {}).pop(name, None)

    def is_last(self, who: Any, name: str, body: Body[Any]) -> bool:
        """Whether there is no level left when this body is over; False, if its level was left before."""
        levels = self._levels(who, name)
        return body in levels and not _without(levels, body)

    def leave(self, who: Any, name: str, body: Body[Any]) -> None:
        """A body is over, and those inside it."""
        levels = self._levels(who, name)
        levels[:] = _without(levels, body)
        if not levels:
            self._taken.get(who, {}).pop(name, None)

    def _levels(self, who: Any, name: str) -> list[Body[Any] | None]:
        level = self._taken.get(who, {}).get(name)
        return [] if level is None else level[1]


def _without(levels: list[Body[Any] | None], body: Body[Any]) -> list[Body[Any] | None]:
    if body not in levels:
        return levels
    at = levels.index(body)
    return levels[:at] + [level for level in levels[at:] if level is None]
