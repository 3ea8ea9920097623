"""What the suite needs of an engine beyond the port: handles, and a way to make an append go wrong."""

from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from fencehold.journal.port import Journal, Record
from fencehold.types import BEGINNING, Epoch, Position
from tests import loops

T = TypeVar("T")


class Cluster(Protocol):
    """The servers behind an engine, shared by all tests of a run. Whoever kills restores, whatever happens."""

    size: int
    """How many members it has; 1 for a server that is alone."""
    answer_s: float
    """How long any one call of a journal may take, whatever happens to them."""

    def kill(self, count: int) -> None:
        """`kill -9` so many members, the one that leads first."""
        ...

    def restore(self) -> None:
        """Start all that were killed, and wait until all of them serve."""
        ...


class Harness(Protocol):
    """One engine under test, with one empty journal of its own."""

    volume: int
    """How many entries are many: what it appends in some ten seconds."""
    cluster: Cluster | None
    """None where there is no server to kill."""

    def handle(self) -> Journal:
        """A new handle on the journal, not opened yet."""
        ...

    def quick_handle(self) -> Journal:
        """A handle for volume: it may skip waiting for the disk, and nothing else."""
        ...

    def lose_next_reply(self) -> None:
        """Let the next append be stored, and its reply be lost."""
        ...

    def fail_next_append(self) -> None:
        """Let the next append fail before anything of it is stored."""
        ...


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one test's coroutine on a loop of its own."""
    return loops.run(work)


@asynccontextmanager
async def opened(journal: Journal) -> AsyncIterator[Journal]:
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


@asynccontextmanager
async def leading(journal: Journal) -> AsyncIterator[tuple[Journal, Epoch]]:
    async with opened(journal):
        yield journal, await journal.lead()


@asynccontextmanager
async def leader_and_standby(harness: Harness) -> AsyncIterator[tuple[Journal, Journal]]:
    """A handle for each; where the engine is not shared, one is both."""
    async with opened(harness.handle()) as leader:
        if leader.declared.shared:
            async with opened(harness.handle()) as standby:
                yield leader, standby
        else:
            yield leader, leader


async def fill(journal: Journal, epoch: Epoch, positions: Iterable[int]) -> list[Record]:
    """Append an entry at each position, and return what must be read there."""
    records = [Record(Position(at), epoch, entry(at)) for at in positions]
    for record in records:
        await journal.append(record.entry, epoch=epoch, position=record.position)
    return records


async def read_all(journal: Journal, after: int = BEGINNING) -> list[Record]:
    return [record async for record in journal.read(Position(after))]


def entry(position: int) -> bytes:
    """An entry that differs from every other; some end in zeros, as real ones may."""
    return f"entry {position} ".encode() * (position % 5 + 1) + bytes(position % 3)
