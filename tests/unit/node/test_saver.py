"""The saver: when a snapshot is due, and that it is of durable entries while others go on."""

import asyncio
from collections.abc import Iterable

from fencehold.core.commands import Acquire, Break, OpenSession
from fencehold.core.machine import Machine
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Unavailable
from fencehold.node.node import Node
from fencehold.node.saver import Saver
from fencehold.types import Position
from tests.unit.node.doubles import HandClock, run, until
from tests.unit.node.test_node import QUICK, serving, told


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


def test_a_snapshot_is_of_durable_entries_while_others_go_on() -> None:
    """What is granted while a snapshot is drawn is not in it, and both together make the state there is."""

    async def scenario() -> None:
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
            assert list(saved.state.held) == ["a", "b", "c", "d", "e"]
            hashed = node.replica.machine.state_hash()
        async with serving(MemoryJournal(store)) as node:
            assert node.replica.machine.state_hash() == hashed

    run(scenario())


def test_a_snapshot_that_failed_leaves_the_old_one() -> None:
    """When saving fails nothing is trimmed, the older snapshot stands, and the next is tried when it is due."""

    async def scenario() -> None:
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

    run(scenario())


def test_entries_without_commands_count_too() -> None:
    """A service where only time passes does not fill its journal with ticks for ever."""

    async def scenario() -> None:
        store = MemoryStore()
        async with serving(MemoryJournal(store)) as node:
            _save_after(node, 30)
            await told(node, OpenSession(60_000, secret="s"))
            await until(lambda: node._saver.saved_at)
            assert len(store.records) < 30

    run(scenario())


def test_what_had_to_be_replayed_counts_too() -> None:
    """A node that is often restarted, each time before a snapshot was due, comes to one all the same."""

    async def scenario() -> None:
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

    run(scenario())


def test_a_snapshot_under_way_is_given_up_by_a_stop() -> None:
    """A node that stops does not wait for a snapshot, and leaves none half done."""

    async def scenario() -> None:
        store = MemoryStore()
        journal = SlowToSave(store)
        async with serving(journal) as node:
            _save_after(node, 1)
            await told(node, Break("a"))
            await asyncio.wait_for(journal.drawing.wait(), 20)
        assert store.snapshot is None
        assert node.replica.machine.state.saving is None

    run(scenario())
