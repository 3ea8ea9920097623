"""Stand-ins that a test moves by hand: a clock, a journal whose appends end when told to, and who is answered."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from fencehold.core.commands import Entry
from fencehold.core.outcomes import Applied, Notice, Outcome
from fencehold.errors import FenceholdError
from fencehold.journal.codec import decode
from fencehold.journal.health import Health
from fencehold.journal.port import Declared, Opened, Record
from fencehold.journal.room import Room
from fencehold.types import Epoch, Position


async def until(condition: Callable[[], object], seconds_max: float = 60.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds_max):
        while not condition():  # noqa: ASYNC110  (what is awaited knows of no events)
            await asyncio.sleep(0.001)


async def settle() -> None:
    """Let everything run that can run now."""
    for _ in range(10):
        await asyncio.sleep(0)


NOON = 1_767_268_800_000
"""The time of day at which a hand clock starts: 2026-01-01 12:00:00 UTC."""


class HandClock:
    """A clock, and a calendar that goes with it, that stand still until they are moved."""

    goes_by_itself = False

    def __init__(self) -> None:
        self.at_ms = 1_000_000.0
        self.unix_at_ms = float(NOON)

    def now_ms(self) -> float:
        return self.at_ms

    def unix_ms(self) -> int:
        return int(self.unix_at_ms)

    def advance(self, ms: float) -> None:
        self.at_ms += ms
        self.unix_at_ms += ms

    def set(self, unix_ms: float) -> None:
        """Set the calendar alone, as an operator or NTP does."""
        self.unix_at_ms = unix_ms


class HandJournal:
    """A journal whose appends are under way until the test ends them."""

    declared = Declared(engine="hand", durable=False, shared=True)

    def __init__(self) -> None:
        self.begun: list[Entry] = []
        self._under_way: list[asyncio.Future[None]] = []

    @property
    def commands(self) -> list[int]:
        """How many commands each entry carried."""
        return [len(entry.commands) for entry in self.begun]

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        self.begun.append(decode(entry))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.append(future)
        await future

    async def complete(self) -> None:
        """Let the append under way succeed, and what follows happen."""
        self.end_soon()
        await settle()

    def end_soon(self) -> None:
        """Let the append under way succeed, when others have their turns of the loop."""
        self._under_way.pop(0).set_result(None)

    async def fail(self, error: Exception) -> None:
        """Let the append under way fail."""
        self._under_way.pop(0).set_exception(error)
        await settle()

    async def open(self) -> Opened:
        return Opened(None, Epoch(0), Position(0))

    async def read(self, after: Position) -> AsyncIterator[Record]:
        return
        yield

    def tail(self, after: Position) -> AsyncIterator[Record]:
        raise NotImplementedError

    async def lead(self, known: Epoch | None = None) -> Epoch:
        return Epoch(1)

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        raise NotImplementedError

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        raise NotImplementedError

    async def trim(self, *, urgent: bool = False) -> None:
        raise NotImplementedError

    async def health(self, within_s: float) -> Health:
        return Health()

    async def room(self, within_s: float) -> Room:
        return Room()

    async def close(self) -> None:
        """Nothing to let go of."""


class Told:
    """Collects what commands were answered, under names, in the order of the answers."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, Outcome | FenceholdError, int]] = []
        self.replies: list[tuple[str, Any]] = []
        self.durable: list[Applied] = []

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.answers]

    def kinds(self) -> dict[str, type]:
        """What kind of answer each got."""
        return {name: type(outcome) for name, outcome, _ in self.answers}

    def by(self, name: str) -> Callable[[Outcome | FenceholdError, int], None]:
        return lambda outcome, at_ms: self.answers.append((name, outcome, at_ms))

    def reply(self, name: str) -> Callable[[Any], None]:
        return lambda found: self.replies.append((name, found))

    def on_durable(self, entry: Entry, applied: Applied, size_bytes: int) -> None:
        self.durable.append(applied)


class Ear:
    """A listener that remembers what it was told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def on_notice(self, notice: Notice, at_ms: int) -> None:
        self.notices.append(notice)
