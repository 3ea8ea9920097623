"""The saver: when a snapshot is due, and that it is of durable entries while others go on."""

import asyncio
from collections.abc import Iterable

from fencehold.core.commands import Acquire, Break, Entry, OpenSession
from fencehold.core.machine import Machine
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Unavailable
from fencehold.node.leader import Bounds
from fencehold.node.node import Node
from fencehold.node.saver import Saver
from fencehold.types import Position
from tests.unit.node.doubles import HandClock, settle, until
from tests.unit.node.test_node import QUICK, serving, told

STILL = Bounds(tick_s=3_600)
"""Nothing happens but what is asked for."""


class SlowToSave(MemoryJournal):
    """A journal that goes on saving until it is let, or fails to."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.go_on = asyncio.Event()
        self.drawing = asyncio.Event()
        self.fails = False

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        self.drawing.set()
        await self.go_on.wait()
        if self.fails:
            raise Unavailable("the disk is full")
        await super().save(position, chunks)


def _save_after(node: Node, commands: int) -> None:
    node._saver = Saver(node.journal, commands_max=commands)


async def test_a_snapshot_is_of_durable_entries_while_others_go_on() -> None:
    """What is granted while a snapshot is drawn is not in it, and both together make the state there is."""
    store = MemoryStore()
    journal = SlowToSave(store)
    async with serving(journal) as node:
        _save_after(node, 3)
        await told(node, OpenSession(60_000, secret="s"))
        await told(node, Acquire(1, ("a",)))
        await told(node, Acquire(1, ("b",)))
        await told(node, Acquire(1, ("c",)))
        await told(node, Acquire(1, ("d",)))
        await told(node, Acquire(1, ("e",)))
        await asyncio.wait_for(journal.drawing.wait(), 20)
        position = node.position
        await told(node, Acquire(1, ("f",)))
        journal.go_on.set()
        await until(lambda: node._saver.saved_at)
        assert store.snapshot is not None
        assert (store.snapshot.position, store.trimmed) == (position, position)
        saved = Machine.restore(store.snapshot.data)
        assert sorted(saved.state.held) == ["a", "b", "c", "d", "e"]
        hashed = node.replica.machine.state_hash()
    async with serving(MemoryJournal(store)) as node:
        assert node.replica.machine.state_hash() == hashed


async def test_a_snapshot_that_failed_leaves_the_old_one() -> None:
    """When saving fails nothing is trimmed, the older snapshot stands, and the next is tried when it is due."""
    store = MemoryStore()
    journal = SlowToSave(store)
    journal.go_on.set()
    async with serving(journal) as node:
        _save_after(node, 3)
        for _ in range(3):
            await told(node, Break("a"))
        await until(lambda: node._saver.saved_at)
        old = store.snapshot
        journal.fails = True
        for _ in range(3):
            await told(node, Break("a"))
        await until(lambda: node._saver.failure)
        assert (store.snapshot, store.trimmed) == (old, 3)
        journal.fails = False
        for _ in range(3):
            await told(node, Break("a"))
        await until(lambda: node._saver.saved_at == 9)
        assert node._saver.failure is None


async def test_entries_without_commands_count_too() -> None:
    """A service where only time passes does not fill its journal with ticks for ever."""
    store = MemoryStore()
    async with serving(MemoryJournal(store)) as node:
        _save_after(node, 30)
        await told(node, OpenSession(60_000, secret="s"))
        await until(lambda: node._saver.saved_at)
        assert len(store.records) < 30


async def test_what_had_to_be_replayed_counts_too() -> None:
    """A node that is often restarted, each time before a snapshot was due, comes to one all the same."""
    store = MemoryStore()
    for _ in range(6):
        node = Node(MemoryJournal(store), HandClock(), bounds=QUICK)
        _save_after(node, 10)
        running = asyncio.create_task(node.run())
        await node.ready()
        for _ in range(4):
            await told(node, Break("a"))
        await asyncio.sleep(0.005)
        node.stop()
        await running
    assert store.snapshot is not None
    assert len(store.records) < 12


async def test_a_snapshot_under_way_is_given_up_by_a_stop() -> None:
    """A node that stops does not wait for a snapshot, and leaves none half done."""
    store = MemoryStore()
    journal = SlowToSave(store)
    async with serving(journal) as node:
        _save_after(node, 1)
        await told(node, Break("a"))
        await asyncio.wait_for(journal.drawing.wait(), 20)
    assert store.snapshot is None
    assert node.replica.machine.state.saving is None


async def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    """Few commands, but large ones: the journal is no larger than a few times the bound."""
    store = MemoryStore()
    async with serving(MemoryJournal(store), bounds=STILL) as node:
        node._saver = Saver(node.journal, bytes_max=5_000)
        for _ in range(200):
            await told(node, Break("a" * 250))
            await settle()
            assert sum(len(record.entry) for record in store.records) < 2 * 5_000
        assert node._saver.saved_at > 0


async def test_a_large_state_is_not_saved_over_and_over() -> None:
    """The next one is due when as much was appended as the last one has, if that is more than the bound."""
    store = MemoryStore()
    async with serving(MemoryJournal(store), bounds=STILL) as node:
        node._saver = Saver(node.journal, bytes_max=20_000)
        await told(node, OpenSession(60_000, secret="s"))
        positions, count = set(), 400
        for number in range(count):
            await told(node, Acquire(1, (f"{number}",), meta=f"{number:1000}"))
            await settle()
            positions.add(node._saver.saved_at)
        assert store.snapshot is not None
        # It doubles each time: a bound alone would have it saved twenty times.
        assert 3 <= len(positions) - 1 <= 6


async def test_where_room_is_scarce_it_is_saved_sooner_and_nothing_is_kept() -> None:
    """When a sixteenth of it went, a smaller one takes its place; what was kept for readers is given back."""
    store = MemoryStore()
    journal = UrgentlyTrimmed(store)
    async with serving(journal, bounds=STILL) as node:
        saver = node._saver = Saver(node.journal, bytes_max=100_000)
        await told(node, OpenSession(60_000, secret="s"))
        for number in range(250):
            await told(node, Acquire(1, (f"{number}",), meta=f"{number:1000}"))
        await until(lambda: saver.saved_at)
        first, saver.is_urgent = saver.saved_at, True
        await told(node, Break("nothing"))
        await until(lambda: journal.urgent == 1)
        assert saver.saved_at == first
        for number in range(20):
            await told(node, Break(f"{number}"))
        await until(lambda: saver.saved_at > first)
        assert journal.urgent >= 2


async def test_what_does_not_fit_is_weighed_and_saved_when_it_does() -> None:
    """By an estimate there is no room for it; the state itself is small, so it is saved all the same."""
    store, machine = MemoryStore(), Machine()
    journal = MemoryJournal(store)
    await journal.open()
    epoch = await journal.lead()
    saver = Saver(journal, bytes_max=1_000)
    saver.free_bytes = 5_000
    machine.apply(1, Entry(0, (Break("a"),)))
    await journal.append(b"entry", epoch=epoch, position=Position(1))
    saver.consider(machine, 1, 20_000, 40_000)
    assert saver.needed_bytes() >= 40_000
    await until(lambda: not saver.is_busy)
    assert (saver.saved_at, saver.needed_bytes() < 1_000) == (0, True)
    saver.consider(machine, 1, 10, 20)
    await until(lambda: saver.saved_at)
    assert store.snapshot is not None


async def test_after_a_keeper_was_full_only_what_gives_back_far_more_is_saved() -> None:
    """Nobody knows how much room there is: a snapshot that might not fit is not tried, a tiny one is."""
    store, machine = MemoryStore(), Machine()
    journal = MemoryJournal(store)
    await journal.open()
    epoch = await journal.lead()
    saver = Saver(journal, bytes_max=1_000)
    saver.is_blind = saver.is_urgent = True
    machine.apply(1, Entry(0, (Break("a"),)))
    await journal.append(b"entry", epoch=epoch, position=Position(1))
    saver.consider(machine, 1, 20_000, 40_000)
    await until(lambda: not saver.is_busy)
    assert saver.saved_at == 0
    for _ in range(3):
        saver.consider(machine, 1, 100_000, 10)
        await until(lambda: not saver.is_busy)
    assert saver.saved_at == 1


class UrgentlyTrimmed(MemoryJournal):
    """Counts trims that keep nothing."""

    urgent = 0

    async def trim(self, *, urgent: bool = False) -> None:
        self.urgent += urgent
        await super().trim(urgent=urgent)
