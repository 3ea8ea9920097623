"""Somebody who works with a journal as a node does, and what must be true of the journal afterwards."""

import asyncio
from collections.abc import Callable

from fencehold.errors import OutcomeUnknown, OutOfPlace, Sealed, Unavailable
from fencehold.journal.port import Journal, Record
from fencehold.types import Epoch, Position
from tests.contract.harness import opened, read_all

PAUSE_S = 0.05


class Worker:
    """Does with a journal what a node does: appends, and after a failure opens anew, leads, and reads first."""

    def __init__(self, handle: Callable[[], Journal]) -> None:
        self._handle = handle
        self._journal: Journal | None = None
        self._epoch = Epoch(0)
        self._records: list[Record] = []
        """What it read and appended, in the order of positions."""
        self.acknowledged: list[bytes] = []

    async def append(self, entry: bytes) -> None:
        """Append an entry once, however long that takes."""
        while entry not in self.acknowledged:
            try:
                await self.append_or_fail(entry)
            except (Unavailable, OutcomeUnknown, OutOfPlace, Sealed):
                await self.close()
                await asyncio.sleep(PAUSE_S)

    async def append_or_fail(self, entry: bytes) -> None:
        """One try. What an earlier try has left is found by reading, and not appended again."""
        if self._journal is None:
            await self._begin()
        assert self._journal is not None
        if not any(record.entry == entry for record in self._records):
            position = Position(len(self._records) + 1)
            await self._journal.append(entry, epoch=self._epoch, position=position)
            self._records.append(Record(position, self._epoch, entry))
        self.acknowledged.append(entry)

    async def close(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            await journal.close()

    async def _begin(self) -> None:
        journal = self._handle()
        await journal.open()
        try:
            self._epoch = await journal.lead()
            self._records = await read_all(journal)
        except BaseException:
            await journal.close()
            raise
        self._journal = journal


def entries(count: int, name: str = "entry") -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def check(found: list[Record], acknowledged: list[bytes]) -> None:
    """No gap, no epoch that goes back, nothing acknowledged that is absent, nothing twice."""
    assert [record.position for record in found] == list(range(1, len(found) + 1))
    assert [record.epoch for record in found] == sorted(record.epoch for record in found)
    texts = [record.entry for record in found]
    assert len(set(texts)) == len(texts)
    assert set(acknowledged) <= set(texts)


async def all_records(journal: Journal) -> list[Record]:
    """What a handle finds that is opened for it."""
    async with opened(journal):
        return await read_all(journal)
