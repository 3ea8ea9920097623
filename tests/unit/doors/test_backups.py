"""NODE.BACKUP: the state of one durable position, piece by piece, while the node goes on."""

import asyncio
from collections.abc import Callable

import pytest

from fencehold.core.machine import Machine
from fencehold.core.snapshot import Snapshot
from fencehold.doors.resp import backups
from fencehold.doors.resp.bounds import Bounds as DoorBounds
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Unavailable
from fencehold.node import online_backup
from fencehold.node.online_backup import PIECE_BYTES_MAX
from fencehold.types import Epoch, Position
from tests.unit.doors.box import Client, serving
from tests.unit.node.doubles import until

both = pytest.mark.parametrize("version", [2, 3])


async def _pieces(client: Client) -> list[bytes]:
    pieces = []
    while (piece := await client.data("NODE.BACKUP", "NEXT")) is not None:
        pieces.append(piece)
    return pieces


class GatedJournal(MemoryJournal):
    """A journal in memory. What is appended while it `is_closed` waits for the gate, and fails if told to."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.is_closed: Callable[[], bool] = lambda: False
        self.gate = asyncio.Event()
        self.waiting = 0
        self.failure: Unavailable | None = None

    append_here = None  # type: ignore[assignment]  # All of them pass the gate.

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        if self.is_closed():
            self.waiting += 1
            await self.gate.wait()
            self.waiting -= 1
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        await super().append(entry, epoch=epoch, position=position)


@both
async def test_a_backup_is_of_one_position_though_the_state_moves_on(version: int) -> None:
    """What is released, granted, waited for and ended between two pieces is not in it."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        leaver = await box.client(version, session=50_000)
        for number in range(3_000):
            client.send("LOCK.ACQUIRE", f"job:{number}")
        for _ in range(3_000):
            await client.reply()
        await leaver.call("LOCK.ACQUIRE", "left")
        asker = await box.client(version)
        begun = await asker.map("NODE.BACKUP")
        first = await asker.data("NODE.BACKUP", "NEXT")
        assert first is not None
        before = (len(box.state.sessions), len(box.state.held), box.state.fence)
        await leaver.call("SESSION.CLOSE")
        for number in range(0, 3_000, 3):
            await client.call("LOCK.RELEASE", f"job:{number}", number + 1)
        await client.call("LOCK.ACQUIRE", "new")
        await box.pass_time(50)
        machine = Machine.restore(b"".join([first, *await _pieces(asker)]))
        assert (machine.position, machine.fence) == (begun["position"], begun["fence"])
        assert machine.now_at == begun["logical_ms"]
        assert (begun["engine"], begun["epoch"]) == ("memory", box.server.node.epoch)
        state = machine.state
        assert (len(state.sessions), len(state.held), state.fence) == before
        assert "new" not in state.held
        assert state.held["job:0"].fence == 1
        assert "left" in state.held
        assert box.state.saving is None


@pytest.mark.guarantee("G3")
async def test_a_backup_is_answered_when_what_it_saw_is_durable() -> None:
    """And not at all if the append fails: then it never was."""
    made: list[GatedJournal] = []

    def journal() -> GatedJournal:
        made.append(GatedJournal())
        return made[0]

    async with serving(journal=journal) as box:
        client = await box.client(3, session=50_000)
        asker = await box.client(3)
        await client.call("LOCK.ACQUIRE", "a")
        # For the entry that begins the backup, and no tick before it, which would keep it from being gathered.
        made[0].is_closed = lambda: box.state.saving is not None
        asker.send("NODE.BACKUP")
        await until(lambda: made[0].waiting)
        assert box.server.node.position < box.state.position
        made[0].failure = Unavailable("no disk")
        made[0].is_closed = lambda: False
        made[0].gate.set()
        with pytest.raises(Exception, match="UNAVAILABLE"):
            await asker.reply()
        await until(lambda: box.server.node.leads)
        again = await box.client(3)
        begun = await again.map("NODE.BACKUP")
        assert begun["position"] <= box.server.node.position
        assert "a" in Machine.restore(b"".join(await _pieces(again))).state.held


async def test_a_piece_is_bounded_however_much_one_session_holds() -> None:
    """A slice of a snapshot may be larger than any reply should be."""
    async with serving() as box:
        client = await box.client(3, session=50_000)
        for number in range(600):
            client.send("LOCK.ACQUIRE", f"job:{number}", "META", f"{number:1000}")
        for _ in range(600):
            await client.reply()
        await client.call("NODE.BACKUP")
        pieces = await _pieces(client)
        assert max(map(len, pieces)) == PIECE_BYTES_MAX
        assert len(Machine.restore(b"".join(pieces)).state.held) == 600


async def test_the_second_waits_for_the_first() -> None:
    """Whether the first comes to its end, is ended, or its connection is lost."""
    async with serving() as box:
        first, second = await box.client(3), await box.client(3)
        await first.call("NODE.BACKUP")
        under_way = box.state.saving
        second.send("NODE.BACKUP", "BEGIN")
        await box.pass_time(20)
        assert box.state.saving is under_way
        assert await first.call("NODE.BACKUP", "END") == "OK"
        await second.reply()
        first.send("NODE.BACKUP")
        await second.close()
        await first.reply()
        assert await _pieces(first)


async def test_whoever_waits_too_long_for_another_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certainly nothing happened: it may be tried again."""
    monkeypatch.setattr(backups, "_TURN_S_MAX", 0.0)

    async with serving() as box:
        first, second = await box.client(3), await box.client(3)
        await first.call("NODE.BACKUP")
        assert await second.refusal("NODE.BACKUP") == "UNAVAILABLE"


async def test_one_that_is_not_drawn_from_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's own snapshots would wait for it."""
    monkeypatch.setattr(online_backup, "IDLE_S_MAX", 0.01)

    async with serving(door=DoorBounds(frame_seconds_max=0.02)) as box:
        client = await box.client(3)
        await client.call("NODE.BACKUP")
        await until(lambda: box.state.saving is None)
        assert await client.refusal("NODE.BACKUP", "NEXT") == "USAGE"


async def test_the_nodes_own_snapshot_waits_for_a_backup_and_is_taken_after_it() -> None:
    """None is lost, and neither disturbs the other."""
    async with serving() as box:
        client = await box.client(3, session=50_000)
        saver = box.server.node._saver
        saver._commands_max = 10
        await client.call("NODE.BACKUP")
        for number in range(30):
            await client.call("LOCK.ACQUIRE", f"job:{number}")
        assert saver.saved_at == 0
        assert await _pieces(client)
        await until(lambda: saver.saved_at > 0)
        assert saver.failure is None


async def test_what_is_no_word_of_it_is_refused() -> None:
    """And so is a piece of none."""
    async with serving() as box:
        client = await box.client(3)
        assert await client.refusal("NODE.BACKUP", "NEXT") == "USAGE"
        assert await client.refusal("NODE.BACKUP", "ALL") == "USAGE"
        assert await client.refusal("NODE.BACKUP", "BEGIN", "NOW") == "USAGE"
        assert await client.call("NODE.BACKUP", "END") == "OK"


async def test_it_is_of_the_journal_whichever_tier_asks() -> None:
    """What only saves work is not kept."""
    async with serving() as box:
        client = await box.client(3)
        await client.call("TIER", "EFFICIENCY")
        await client.call("LOCK.ACQUIRE", "cheap")
        await client.call("NODE.BACKUP")
        machine = Machine.restore(b"".join(await _pieces(client)))
        assert not machine.state.held
        Snapshot(machine.state).close()
