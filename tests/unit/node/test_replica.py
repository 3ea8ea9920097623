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
from fencehold.journal.port import Journal
from fencehold.node.replica import Replica
from fencehold.types import Epoch, Position
from tests.unit.node.doubles import run

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
def test_a_replica_comes_to_the_state_of_the_one_that_stopped(handle: Handles, snapshot_at: int) -> None:
    """From the newest snapshot and the entries after it a replica makes the very state that was, to the hash."""

    async def scenario() -> None:
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
        opened = await replica.open(lambda applied: followed.append(applied.position))
        assert replica.machine.state_hash() == machine.state_hash()
        assert (replica.machine.position, replica.machine.fence) == (40, machine.fence)
        assert followed == list(range(snapshot_at + 1, 41))
        assert opened.epoch == epoch
        await replica.journal.close()

    run(scenario())


def test_an_entry_that_cannot_be_read_is_named(handle: Handles) -> None:
    """An entry of a format not known here ends the opening with its position; none is skipped."""

    async def scenario() -> None:
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

    run(scenario())


def test_a_snapshot_that_cannot_be_read_is_named(handle: Handles) -> None:
    """A snapshot with a wrong byte, or of another position than it is kept at, is named by its position."""

    async def scenario() -> None:
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

    run(scenario())
