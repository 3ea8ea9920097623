"""Which holds a lock has made, and for whom: so that `release` and the end of a body find the right one."""

from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from fencehold.client.current import Body
from fencehold.client.holding import Claiming
from fencehold.client.trust import Grant
from fencehold.errors import UsageError


class Made(Protocol):
    """A hold, as far as it matters here."""

    _grant: Grant


Held = TypeVar("Held", bound=Made)
Entering = TypeVar("Entering", bound=Claiming)


class Holds(Generic[Held]):
    """The holds of each task or thread, oldest first. Those that were given back are pruned on the next add."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Any, list[Held]] = WeakKeyDictionary()
        """Weak: what a task or thread has left behind is nobody's."""

    def add(self, who: Any, hold: Held) -> None:
        """The lock made a hold for this task or thread."""
        holds = self.of(who)
        holds.append(hold)
        self._made[who] = holds

    def of(self, who: Any) -> list[Held]:
        """What this task or thread has not given back; it may be lost."""
        return [hold for hold in self._made.get(who, ()) if hold._grant.ending != "released"]

    def take(self, who: Any) -> Held | None:
        """Take out what this task or thread got last and has not given back."""
        holds = self.of(who)
        last = holds.pop() if holds else None
        if holds:
            self._made[who] = holds
        else:
            self._made.pop(who, None)
        return last


class Bodies(Generic[Entering]):
    """The bodies of a lock's `with` statements that are not over, and who entered each.

    A body may be left by another than entered it: a generator that is closed elsewhere, an exit stack that is
    passed on. Where the bodies that are open are all of one task or thread, the last of them is meant. Where they
    are of several, nobody can tell: to guess would release what somebody else works under.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[Any, list[Body[Entering]]] = {}

    def enter(self, who: Any, body: Body[Entering]) -> None:
        """A body begins."""
        self._open.setdefault(who, []).append(body)

    def leave(self, who: Any, error: BaseException | None) -> tuple[Any, Body[Entering]] | None:
        """A body is over, with this error or none: which one, and who entered it.

        Raises:
            UsageError: that cannot be told. An error of the body's own gets a note instead, and this is None.
        """
        try:
            who, body = self._last(who)
        except UsageError as failure:
            if error is None:
                raise
            error.add_note(str(failure))
            return None
        bodies = self._open[who]
        bodies.remove(body)
        if not bodies:
            del self._open[who]
        body.leave()
        return who, body

    def _last(self, who: Any) -> tuple[Any, Body[Entering]]:
        if who not in self._open:
            others = list(self._open)
            if len(others) != 1:
                raise _not_entered(who, len(others))
            who = others[0]
        return who, self._open[who][-1]

    def of(self, who: Any) -> list[Entering]:
        """What a task or thread has by being inside."""
        return [body.hold for body in self._open.get(who, ())]


def _not_entered(who: object, others: int) -> UsageError:
    if not others:
        return UsageError("this lock was not entered: there is nothing to leave")
    return UsageError(
        f"{who!r} has not entered this lock, and {others} others are inside by the same object: which hold to "
        "release is not known. Make a lock object for each `with` that may be left elsewhere than it was entered"
    )


class Levels(Generic[Held]):
    """How often each task or thread has taken the names it may take again, by whatever lock object of a client."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: WeakKeyDictionary[Any, dict[str, tuple[Held, list[Body[Any] | None]]]] = WeakKeyDictionary()
        """Weak: what a task or thread has left behind is nobody's."""

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
