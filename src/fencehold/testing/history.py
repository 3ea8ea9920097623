"""History: every hold there was, recorded from the server's events; and the check that no two overlapped.

Fences order all holds of a name, so a history is checked by sorting, without a search.
"""

from typing import NamedTuple

from fencehold.core.commands import Mode
from fencehold.core.events import Event, Kind
from fencehold.node.node import Node

HOLDS_MAX = 100_000
"""Holds that are remembered; beyond this, the oldest are dropped."""

_ENDED = {Kind.RELEASED, Kind.EXPIRED, Kind.BROKEN, Kind.REVOKED}


class Held(NamedTuple):
    """One hold on one name, from its grant to its end. Times are seconds of the server's logical time."""

    name: str
    fence: int
    session: int
    owner: str
    """The task or thread."""
    mode: str
    """X exclusive, S shared, P a permit of a semaphore."""
    acquired: float
    ended: float | None = None
    """None: it is held still."""
    ending: str = ""
    """released, expired or broken; empty while it is held."""

    def __str__(self) -> str:
        end = f"{self.ending} at {self.ended:g} s" if self.ended is not None else "held still"
        return f"fence {self.fence} of session {self.session} ({self.mode}): from {self.acquired:g} s, {end}"


class History:
    """What happened at one server, across its restarts."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], Held] = {}
        self._position = 0

    def follow(self, node: Node) -> None:
        """Record the events of a node from now on."""
        node.routes.watch(lambda: self._on_news(node))

    def of(self, name: str) -> list[Held]:
        """The holds on a name, by fence."""
        return sorted((held for held in self._held.values() if held.name == name), key=_fence)

    def overlaps(self) -> list[tuple[Held, Held]]:
        """Pairs of holds that overlapped, at least one of them exclusive; each with a later one."""
        names = dict.fromkeys(held.name for held in self._held.values())
        return [pair for name in names for pair in _overlaps(self.of(name))]

    def _on_news(self, node: Node) -> None:
        for event in node.ring.since(self._position):
            self._add(event, node)
        self._position = node.position

    def _add(self, event: Event, node: Node) -> None:
        for name in event.names:
            if event.kind is Kind.ACQUIRED:
                self._begin(event, name, node)
            elif event.kind in _ENDED and (held := self._held.get((name, event.fence))) is not None:
                ended = held._replace(ended=event.at_ms / 1000, ending=event.kind.value)
                self._held[name, event.fence] = ended

    def _begin(self, event: Event, name: str, node: Node) -> None:
        # One that is gone again by the end of its entry was held for no time at all.
        hold = node.replica.machine.state.find(name, event.fence)
        mode = hold.mode if hold is not None else Mode.EXCLUSIVE
        began = event.at_ms / 1000
        self._held[name, event.fence] = Held(name, event.fence, event.session, event.owner, mode.value, began)
        if len(self._held) > HOLDS_MAX:
            del self._held[next(iter(self._held))]


def _fence(held: Held) -> int:
    return held.fence


def _overlaps(by_fence: list[Held]) -> list[tuple[Held, Held]]:
    found = []
    last: Held | None = None
    last_exclusive: Held | None = None
    for held in by_fence:
        before = last if held.mode == "X" else last_exclusive
        if before is not None and _end(before) > held.acquired:
            found.append((before, held))
        last = held if last is None or _end(held) >= _end(last) else last
        if held.mode == "X" and (last_exclusive is None or _end(held) >= _end(last_exclusive)):
            last_exclusive = held
    return found


def _end(held: Held) -> float:
    return float("inf") if held.ended is None else held.ended
