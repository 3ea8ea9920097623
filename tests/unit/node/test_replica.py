"""The replica: from any journal it comes to the state of the one that wrote it, or says where it cannot."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fencehold.core.commands import Acquire, Entry, OpenSession, Release
from fencehold.core.machine import Machine
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Damaged
from fencehold.journal.codec import encode
from fencehold.journal.port import Journal, Snapshot
from fencehold.node.replica import Replica
from fencehold.types import Epoch, Position

Handles = Callable[[], Journal]


@pytest.fixture(params=["memory", "file"])
def handle(request: pytest.FixtureRequest, tmp_path: Path) -> Handles:
    """Handles on one journal, one after the other."""
    if request.param == "file":
        return lambda: FileJournal(tmp_path / "journal")
    store = MemoryStore()
    return lambda: MemoryJournal(store)


def entry_at(position: int) -> Entry:
    if position == 1:
        return Entry(0, (OpenSession(60_000, secret="s"), OpenSession(60_000, meta="{}")))
    name = f"name {position}"
    waiting = Acquire(2, (name,), owner="o", wait_ms=50_000)
    return Entry(7, (Acquire(1, (name, "x"), request=position), waiting, Release(1, ("x",), position - 1)))


async def _write(journal: Journal, machine: Machine, epoch: Epoch, upto: int) -> None:
    for position in range(machine.position + 1, upto + 1):
        entry = entry_at(position)
        await journal.append(encode(entry), epoch=epoch, position=Position(position))
        machine.apply(position, entry)


@pytest.mark.guarantee("G12")
@pytest.mark.parametrize("snapshot_at", [0, 1, 20, 40])
async def test_a_replica_comes_to_the_state_of_the_one_that_stopped(handle: Handles, snapshot_at: int) -> None:
    """From the newest snapshot and the entries after it a replica makes the very state that was, to the hash."""
    journal, machine = handle(), Machine()
    await journal.open()
    epoch = await journal.lead()
    if snapshot_at:
        await _write(journal, machine, epoch, snapshot_at)
        await journal.save(Position(snapshot_at), machine.snapshot())
        await journal.trim()
    await _write(journal, machine, epoch, 40)
    await journal.close()

    replica = Replica(handle())
    followed: list[int] = []
    opened = await replica.open(lambda _entry, applied, _bytes: followed.append(applied.position))
    assert replica.machine.state_hash() == machine.state_hash()
    assert (replica.machine.position, replica.machine.fence) == (40, machine.fence)
    assert followed == list(range(snapshot_at + 1, 41))
    assert opened.epoch == epoch
    await replica.journal.close()


async def test_an_entry_that_cannot_be_read_is_named(handle: Handles) -> None:
    """An entry of a format not known here ends the opening with its position; none is skipped."""
    journal = handle()
    await journal.open()
    epoch = await journal.lead()
    await _write(journal, Machine(), epoch, 3)
    await journal.append(b"\x63 from the future", epoch=epoch, position=Position(4))
    await journal.close()
    replica = Replica(handle())
    with pytest.raises(Damaged, match=r"position 4: .*version 63"):
        await replica.open()
    await replica.journal.close()


async def test_a_snapshot_that_cannot_be_read_is_named(handle: Handles) -> None:
    """A snapshot with a wrong byte, or of another position than it is kept at, is named by its position."""
    journal, machine = handle(), Machine()
    await journal.open()
    epoch = await journal.lead()
    await _write(journal, machine, epoch, 3)
    data = bytearray(b"".join(machine.snapshot()))
    await _write(journal, machine, epoch, 5)
    await journal.save(Position(4), [bytes(data)])
    await journal.close()
    replica = Replica(handle())
    with pytest.raises(Damaged, match="kept at position 4 is of position 3"):
        await replica.open()
    await replica.journal.close()

    data[40] ^= 1
    await journal.open()
    await journal.save(Position(5), [bytes(data)])
    await journal.close()
    replica = Replica(handle())
    with pytest.raises(Damaged, match=r"snapshot at position 5: .*damaged"):
        await replica.open()
    await replica.journal.close()


class Rig:
    """A replica on a store that others write to, opened time and again."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.machine = Machine()
        """Of the one that writes."""
        self.replica = Replica(MemoryJournal(self.store))

    async def write(self, upto: int, *, saved: bool = False) -> None:
        journal = MemoryJournal(self.store)
        await journal.open()
        await _write(journal, self.machine, await journal.lead(), upto)
        if saved:
            await journal.save(Position(upto), self.machine.snapshot())
            await journal.trim()
        await journal.close()

    async def reopen(self) -> list[int]:
        """Open it, and say which entries it applied for that."""
        followed: list[int] = []
        await self.replica.journal.close()
        await self.replica.open(lambda _entry, applied, _bytes: followed.append(applied.position))
        assert self.replica.machine.state_hash() == self.machine.state_hash()
        return followed


async def test_a_journal_that_was_away_is_gone_on_with() -> None:
    """What was applied before is not applied again: only what was written meanwhile."""
    rig = Rig()
    await rig.write(20)
    assert await rig.reopen() == list(range(1, 21))
    await rig.write(25)
    assert await rig.reopen() == [21, 22, 23, 24, 25]
    assert await rig.reopen() == []


async def test_after_a_trim_it_begins_with_the_snapshot() -> None:
    """What it had not applied yet is gone, and a snapshot stands in its place; or what it applied last is."""
    rig = Rig()
    await rig.write(20)
    await rig.reopen()
    await rig.write(30, saved=True)
    await rig.write(32)
    assert await rig.reopen() == [31, 32]
    await rig.write(40)
    await rig.reopen()
    rig.store.records.clear()
    rig.store.snapshot = Snapshot(Position(40), b"".join(rig.machine.snapshot()))
    rig.store.trimmed = Position(40)
    assert await rig.reopen() == []


@pytest.mark.guarantee("G12")
async def test_a_journal_restored_from_a_copy_is_begun_anew() -> None:
    """Another entry is where the last one was, or none is: nothing of what was applied is relied on."""
    rig = Rig()
    await rig.write(20)
    copy = list(rig.store.records)
    await rig.write(30)
    await rig.reopen()
    rig.store.records[:] = copy
    rig.machine = (await _replica_of(rig.store)).machine
    assert await rig.reopen() == list(range(1, 21))
    await rig.write(22)
    await rig.reopen()
    # As many entries as before, written by another.
    rig.store.records[:] = copy
    rig.machine = (await _replica_of(rig.store)).machine
    await rig.write(22)
    assert await rig.reopen() == list(range(1, 23))


async def _replica_of(store: MemoryStore) -> Replica:
    replica = Replica(MemoryJournal(store))
    await replica.open()
    await replica.journal.close()
    return replica


@pytest.mark.guarantee("G3")
async def test_a_machine_that_has_led_begins_anew() -> None:
    """It may have seen an entry that never came to be there."""
    rig = Rig()
    await rig.write(5)
    await rig.reopen()
    ahead = rig.replica.lead()
    ahead.apply(6, entry_at(6))
    assert await rig.reopen() == [1, 2, 3, 4, 5]
