"""A broadcast without a server: a machine with a ring, clients that take what they are told, and time by hand."""

import random
from collections.abc import Callable, Iterable
from typing import cast

from fencehold.core.commands import (
    FOREVER,
    Acquire,
    Break,
    Cancel,
    CloseSession,
    Command,
    Entry,
    Extend,
    OpenSession,
    Release,
)
from fencehold.core.events import Event, Who, events_of
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.rulebook import Rulebook
from fencehold.doors.resp import replies
from fencehold.doors.resp.broadcast import Broadcast
from fencehold.doors.resp.event_batches import WHOLE, Member
from fencehold.journal.codec import encode
from fencehold.node.node import HomeShard, Node
from fencehold.node.ring import Ring
from fencehold.node.routes import Routes

NAMES = ("a", "ab", "abc", "abd", "b", "ba", "job:1", "job:12", "job:2", "é", "é漢")


class Reader:
    """A client that takes what it is told, unless it is full."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.is_full = False
        self.ending = False
        self.principal = ""

    def push(self, data: bytes) -> None:
        assert not self.is_full
        self.told.append(data)

    @property
    def events(self) -> list[bytes]:
        """What it was told, one by one."""
        return [b">2\r\n" + part for part in b"".join(self.told).split(b">2\r\n")[1:]]


class Stage:
    """A machine, and whoever watches it."""

    def __init__(self, ring: Ring | None = None, kept_bytes_max: int = 1 << 30, call_ms: float = 0.0) -> None:
        """`call_ms` is what each look at the clock takes."""
        self.ring = ring or Ring()
        self.routes = Routes()
        self.rulebook: Rulebook | None = None
        self.home: HomeShard | None = None
        self.on_policy: list[Callable[[], None]] = []
        self.machine = Machine(Limits())
        self.position = 0
        self.is_catching_up = False
        self.now = 0.0
        self.call_ms = call_ms
        self.scheduled: Callable[[], None] | None = None
        self.delays_ms: list[float] = []
        self.history: list[Event] = []
        self.broadcast = Broadcast(cast(Node, self), kept_bytes_max=kept_bytes_max, clock=self, later=self._later)

    def who_of(self, session: int) -> Who:
        return Who(f"client {session}", "alice")

    goes_by_itself = False

    def now_ms(self) -> float:
        self.now += self.call_ms
        return self.now

    def _later(self, delay_ms: float, call: Callable[[], None]) -> None:
        assert self.scheduled is None
        self.delays_ms.append(delay_ms)
        self.scheduled = call

    def happen(self, *commands: Command, elapsed_ms: int = 0) -> None:
        """Let an entry become durable."""
        self.position += 1
        entry = Entry(elapsed_ms, commands)
        applied = self.machine.apply(self.position, entry)
        self.history.extend(events_of(entry, applied, self.who_of))
        self.ring.add(entry, applied, len(encode(entry)))
        self.routes.wake()

    def go(self) -> bool:
        """Let what is scheduled be done; says whether there was anything."""
        call, self.scheduled = self.scheduled, None
        if call is not None:
            self.now += max(0.0, self.delays_ms[-1])
            call()
        return call is not None

    def settle(self) -> None:
        """Let all be told."""
        for _ in range(20_000):
            if not self.go():
                return
        raise AssertionError("it never ends")

    def watcher(self, *prefixes: str, position: int | None = None) -> tuple[Reader, Member]:
        reader = Reader()
        member = self.broadcast.enter(reader, (self.position if position is None else position, WHOLE))
        self.broadcast.watch(member, tuple(prefixes))
        return reader, member


def is_wanted(event: Event, prefixes: Iterable[str]) -> bool:
    """What each watcher once asked of each event by itself: the rule of who is told what."""
    prefixes = tuple(prefixes)
    return "" in prefixes or any(name.startswith(prefixes) for name in event.names)


def pushed(events: Iterable[Event], *prefixes: str) -> list[bytes]:
    """What is told of events to one who watches these prefixes."""
    return [replies.push_event(event) for event in events if is_wanted(event, prefixes)]


def some_commands(chance: random.Random, stage: Stage) -> list[Command]:
    """Commands that nobody thought of, for the sessions there are."""
    sessions = sorted(stage.machine.state.sessions) or [0]
    commands: list[Command] = []
    for _ in range(chance.choice((0, 1, 1, 2, 5, 12))):
        session = chance.choice(sessions)
        names = tuple(chance.sample(NAMES, chance.choice((1, 1, 1, 2, 4))))
        fence = chance.randrange(max(1, stage.machine.fence - 6), stage.machine.fence + 2)
        request = chance.choice((0, 0, chance.randrange(1, 9)))
        commands.append(
            chance.choice(
                (
                    Acquire(session, names, request, owner=chance.choice(("", "t", "u")), wait_ms=FOREVER),
                    Acquire(session, names, request, owner="t", wait_ms=chance.choice((0, 300)), ttl_ms=700),
                    Release(session, names, fence),
                    Extend(session, names, fence, 500),
                    Break(names[0], by="alice"),
                    Cancel(session, request),
                    OpenSession(chance.choice((500, 5_000)), meta="m"),
                    CloseSession(session) if chance.random() < 0.3 else OpenSession(5_000),
                )
            )
        )
    return commands
