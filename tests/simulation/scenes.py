"""Scenes: histories made by hand, to see what the checker says of them."""

from typing import Any

from fencehold.core.commands import Acquire, Command, Entry, Mode, OpenSession
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Applied
from fencehold.journal.codec import encode
from tests.simulation.history import NEVER, Ask, Held, History
from tests.simulation.scheduler import SECOND
from tests.simulation.store import Led, Stored
from tests.simulation.wire import Said


class Scene:
    """A history in the making. Times are seconds."""

    def __init__(self, *nodes: str) -> None:
        self.history = History(0)
        self.machine = Machine()
        for number, node in enumerate(nodes or ("n1",)):
            self.lead(node, float(number))

    def lead(self, node: str, at: float) -> None:
        """A node takes the next epoch."""
        self.history.leads.append(Led(_ns(at), len(self.history.leads) + 1, node))

    def store(self, at: float, *commands: Command, elapsed_ms: int = 0) -> Applied:
        """The newest leader stores an entry."""
        led, entry = self.history.leads[-1], Entry(elapsed_ms, commands)
        position = self.machine.position + 1
        self.history.stored.append(Stored(_ns(at), position, led.epoch, led.node, encode(entry)))
        return self.machine.apply(position, entry)

    def sessions(self, count: int, at: float = 10.0) -> None:
        """So many sessions are opened, of clients c1, c2 …"""
        self.store(at, *(OpenSession(30_000, meta=f'{{"client": "c{each + 1}"}}') for each in range(count)))

    def acquire(self, at: float, session: int, name: str = "a", **terms: Any) -> int:
        """A session asks, and gets the fence returned; 0 if it does not get it."""
        applied = self.store(at, Acquire(session, (name,), **terms))
        return getattr(applied.outcomes[0], "fence", 0)

    def granted(self, client: str, asked: float, ended: float, fence: int, name: str = "a") -> None:
        """A client saw that it was granted."""
        self.history.asks.append(Ask(client, (name,), Mode.EXCLUSIVE, 0, _ns(asked), _ns(ended), "granted", fence))

    def held(
        self,
        client: str,
        fence: int,
        since: float,
        trusted: float,
        *,
        name: str = "a",
        mode: Mode = Mode.EXCLUSIVE,
    ) -> Held:
        """A client trusted its hold that long."""
        held = Held(client, (name,), mode, 0, fence, _ns(since), _ns(trusted))
        self.history.holds.append(held)
        return held

    def say(
        self, at: float, session: int, words: str, reply: Any, *, node: str = "n1", heard: float = NEVER
    ) -> None:
        """A node answered a command, or pushed something if there are no words."""
        heard_ns = _ns(at if heard < 0 else heard)
        self.history.said.append(Said(_ns(at), node, session, tuple(words.encode().split()), heard_ns, reply))

    def rest(self, at: float, *living: str) -> None:
        """All clients are done; these live on."""
        self.history.idle_ns = self.history.resting_ns = _ns(at)
        self.history.living = living
        self.history.closed_ns = _ns(at + 1)


def _ns(at: float) -> int:
    return round(at * SECOND)
