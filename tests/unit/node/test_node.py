"""The node: from a journal to a service, and what it does when the journal fails."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fencehold.core.commands import Acquire, Break, BreakAs, CloseSession, Command, OpenSession, Release
from fencehold.core.events import Event
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Broken, Granted, Opened, Queued, Refused, SessionEnded, WaitEnded
from fencehold.core.state import State
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import OutcomeUnknown, Sealed, Unavailable
from fencehold.journal.port import Journal
from fencehold.node import node as node_module
from fencehold.node.leader import Bounds
from fencehold.node.node import Node
from fencehold.node.saver import Saver
from fencehold.runtime.disk import Disk
from tests.contract.engines.embedded import OneFault, OneFaultDisk
from tests.unit.node.doubles import Ear, HandClock, HandJournal, settle, until

QUICK = Bounds(tick_s=0.002)


@asynccontextmanager
async def serving(
    journal: Journal, *, limits: Limits | None = None, clock: HandClock | None = None, bounds: Bounds = QUICK
) -> AsyncIterator[Node]:
    """A node that serves, until the end."""
    node = Node(journal, clock or HandClock(), limits=limits, bounds=bounds)
    running = asyncio.create_task(node.run())
    await asyncio.wait_for(node.ready(), 10)
    try:
        yield node
    finally:
        node.stop()
        with suppress(Exception):
            await running


async def told(node: Node, command: Command) -> Any:
    """What became of a command."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    node.submit(command, lambda outcome, _: answered.set_result(outcome))
    return await answered


async def asked(put: Callable[..., None], question: Callable[[State], Any]) -> Any:
    """What a question, put as `node.ask` or `node.look`, found."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    put(question, answered.set_result)
    return await answered


async def renewed(node: Node, session: int) -> Any:
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    node.renew(session, lambda outcome, _: answered.set_result(outcome))
    return await answered


async def test_what_was_applied_ahead_of_a_failed_append_is_gone() -> None:
    """When an append certainly failed, the state is built anew without it, and the node serves again."""
    store, faults = MemoryStore(), OneFault()
    async with serving(MemoryJournal(store, faults=faults)) as node:
        assert isinstance(await told(node, OpenSession(60_000, secret="s")), Opened)
        faults.armed = ("append.before", Unavailable("out of reach"))
        assert isinstance(await told(node, Acquire(1, ("a",))), Unavailable)
        await until(lambda: node.leads and node.epoch == 2)
        assert await asked(node.ask, lambda state: (state.fence, list(state.held))) == (0, [])
        granted = await told(node, Acquire(1, ("b",)))
        assert (granted.names, granted.fence) == (("b",), 1)
        assert "out of reach" not in "".join(node.notes)


async def test_while_it_does_not_lead_it_refuses_at_once() -> None:
    """Between a failure and the next leading every command, renewal, question and look is refused, none lost."""
    faults = OneFault()
    async with serving(MemoryJournal(MemoryStore(), faults=faults)) as node:
        faults.armed = ("append.before", Unavailable("out of reach"))
        assert isinstance(await told(node, Break("a")), Unavailable)
        for _ in range(20):
            answers = await asyncio.wait_for(
                asyncio.gather(
                    told(node, Break("a")),
                    renewed(node, 1),
                    asked(node.ask, lambda _: 0),
                    asked(node.look, lambda _: 0),
                ),
                1,
            )
            if node.leads:
                break
            assert {type(answer) for answer in answers} == {Unavailable}
            await asyncio.sleep(0.001)
        await until(lambda: node.leads)


async def test_a_journal_that_fails_when_opened_is_tried_again() -> None:
    """Once it has led, a node does not give up a journal that is out of reach for a while."""
    faults = OneFault()
    journal = MemoryJournal(MemoryStore(), faults=faults)
    async with serving(journal) as node:
        faults.armed = ("append.before", Unavailable("out of reach"))
        assert isinstance(await told(node, Break("a")), Unavailable)
        faults.armed = ("lead.before", Unavailable("still out of reach"))
        await until(lambda: faults.armed is None and node.leads)
        assert isinstance(await told(node, Break("a")), Broken)


async def test_a_journal_that_cannot_be_had_at_the_start_ends_the_node() -> None:
    """A node that never led says why, rather than try for ever with nobody watching."""
    faults = OneFault()
    faults.armed = ("lead.before", Unavailable("out of reach"))
    node = Node(MemoryJournal(MemoryStore(), faults=faults), HandClock())
    with pytest.raises(Unavailable, match="out of reach"):
        await node.run()
    assert not node.leads


@pytest.mark.parametrize("point", ["append.stored", "lead.stored"])
async def test_an_unknown_outcome_on_a_shared_journal_is_read_up(point: str) -> None:
    """Where the journal can be read to find out, the node does, and what was there after all is in its state."""
    faults = OneFault()
    async with serving(MemoryJournal(MemoryStore(), faults=faults)) as node:
        faults.armed = ("append.stored", OutcomeUnknown("the reply was lost"))
        assert isinstance(await told(node, Break("a")), OutcomeUnknown)
        if point == "lead.stored":
            faults.armed = ("lead.stored", OutcomeUnknown("the reply was lost"))
        await until(lambda: node.leads and faults.armed is None)
        assert await asked(node.ask, lambda state: state.fence) == 1


@pytest.mark.guarantee("G9")
async def test_who_waited_hears_of_a_grant_whose_entry_was_thought_lost() -> None:
    """A notice in an entry of unknown outcome reaches its listener once the entry is read again, and only once."""
    faults, ear = OneFault(), Ear()
    async with serving(MemoryJournal(MemoryStore(), faults=faults)) as node:
        for _ in range(2):
            await told(node, OpenSession(60_000, secret="s"))
        await told(node, Acquire(1, ("a",)))
        assert isinstance(await told(node, Acquire(2, ("a",))), Queued)
        node.routes.attach(2, ear)
        faults.armed = ("append.stored", OutcomeUnknown("the reply was lost"))
        assert isinstance(await told(node, Release(1, ("a",), 1)), OutcomeUnknown)
        assert ear.notices == []
        await until(lambda: node.leads)
        await told(node, Break("z"))
        [notice] = ear.notices
        assert isinstance(notice, WaitEnded)
        assert isinstance(notice.answer, Granted)


async def test_an_unknown_outcome_on_a_file_ends_the_node(tmp_path: Path) -> None:
    """A sync that failed is never tried again: the node ends with it, and refuses from then on."""
    disk = OneFaultDisk()
    node = Node(FileJournal(tmp_path / "journal", disk=disk), HandClock(), bounds=Bounds(tick_s=60))
    running = asyncio.create_task(node.run())
    await asyncio.wait_for(node.ready(), 10)
    assert isinstance(await told(node, OpenSession(60_000, secret="s")), Opened)
    disk.sync_fails = True
    assert isinstance(await told(node, Acquire(1, ("a",))), OutcomeUnknown)
    with pytest.raises(OutcomeUnknown, match="syncing"):
        await running
    assert isinstance(await told(node, Acquire(1, ("a",))), Unavailable)


class SnapshotDisk(Disk):
    """A disk on which the directory cannot be synced after a snapshot was put in its place."""

    armed = False
    _replaced = False

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self._replaced = self.armed

    def sync_dir(self, path: str) -> None:
        if self._replaced:
            raise OSError(errno.EIO, "injected")
        super().sync_dir(path)


async def test_a_snapshot_of_unknown_outcome_on_a_file_ends_the_node(tmp_path: Path) -> None:
    """A sync that failed while saving is no more to be tried again than one of an append."""
    disk = SnapshotDisk()
    journal = FileJournal(tmp_path / "journal", disk=disk)
    node = Node(journal, HandClock(), bounds=QUICK)
    node._saver = Saver(journal, commands_max=5)
    running = asyncio.create_task(node.run())
    await asyncio.wait_for(node.ready(), 10)
    assert isinstance(await told(node, Break("a")), Broken)
    disk.armed = True
    answers = [await told(node, Break("a")) for _ in range(4)]
    assert {type(answer) for answer in answers} == {Broken}
    await until(lambda: node._saver.failure is not None)
    assert isinstance(await told(node, Break("a")), Unavailable)
    with pytest.raises(Unavailable):
        await running


async def test_limits_are_journaled_once() -> None:
    """Limits that differ from the journal's are an entry of the next leader; the same again are none."""
    store, limits = MemoryStore(), Limits(name_bytes_max=5)
    async with serving(MemoryJournal(store), limits=limits) as node:
        await told(node, OpenSession(60_000, secret="s"))
        assert isinstance(await told(node, Acquire(1, ("too long",))), Refused)
    position = store.end
    # Without ticks, which a busy machine may get in between.
    async with serving(MemoryJournal(store), limits=limits, bounds=Bounds(tick_s=60)) as node:
        assert node.replica.machine.state.limits == limits
        await settle()
        assert store.end == position
    async with serving(MemoryJournal(store)) as node:
        assert isinstance(await told(node, Acquire(1, ("not too long",))), Granted)


async def test_notices_go_to_who_is_attached() -> None:
    """What happens to a session is told to its newest listener, and to nobody once that is gone."""
    clock, first, second = HandClock(), Ear(), Ear()
    async with serving(MemoryJournal(MemoryStore()), clock=clock) as node:
        for _ in range(2):
            await told(node, OpenSession(1_000, secret="s"))
        assert node.routes.attach(1, first) is None
        assert node.routes.attach(1, first) is None
        assert node.routes.attach(1, second) is first
        assert not node.routes.detach(1, first)
        await told(node, Acquire(2, ("a",)))
        await told(node, Acquire(1, ("a",), wait_ms=100))
        clock.advance(150)
        await until(lambda: second.notices)
        assert first.notices == []
        assert isinstance(second.notices[0], WaitEnded)
        assert node.routes.is_attached(1)
        assert node.routes.detach(1, second)
        assert not node.routes.is_attached(1)
        clock.advance(1_000)
        await until(lambda: not node.replica.machine.state.sessions)
        assert not any(isinstance(notice, SessionEnded) for notice in second.notices)


async def test_watchers_are_woken_by_what_is_durable() -> None:
    """Who looks on is woken after each entry until it looks on no more."""
    woken: list[int] = []
    async with serving(MemoryJournal(MemoryStore())) as node:

        def wake() -> None:
            woken.append(node.ring.lost_up_to)

        node.routes.watch(wake)
        await told(node, Break("a"))
        node.routes.unwatch(wake)
        node.routes.unwatch(wake)
        await told(node, Break("a"))
        assert len(woken) == 1


@pytest.mark.guarantee("G10")
async def test_a_node_sealed_by_a_newer_epoch_answers_nothing_any_more() -> None:
    """From the moment another leads, the old leader gives no grant, no reading and no renewal, and then ends."""
    store = MemoryStore()
    old = Node(MemoryJournal(store), HandClock(), bounds=Bounds(tick_s=60))
    running = asyncio.create_task(old.run())
    await old.ready()
    await told(old, OpenSession(60_000, secret="s"))
    async with serving(MemoryJournal(store)) as new:
        answers = await asyncio.gather(
            told(old, Acquire(1, ("a",))),
            renewed(old, 1),
            asked(old.ask, lambda state: state.fence),
        )
        assert [isinstance(answer, OutcomeUnknown | Unavailable) for answer in answers] == [True] * 3
        with pytest.raises(Sealed):
            await running
        assert isinstance(await told(old, Acquire(1, ("a",))), Unavailable)
        assert isinstance(await renewed(old, 1), Unavailable)
        assert isinstance(await asked(old.look, lambda state: state.fence), Unavailable)
        assert not old.leads
        granted = await told(new, Acquire(1, ("a",)))
        assert (granted.fence, new.epoch) == (1, 2)


async def test_its_position_is_of_durable_entries_only() -> None:
    """What is applied but still under way does not count."""
    journal = HandJournal()
    async with serving(journal) as node:
        node.submit(Break("a"), lambda *_: None)
        await until(lambda: journal.begun)
        assert (node.replica.machine.position, node.position) == (1, 0)
        await journal.complete()
        assert (node.replica.machine.position, node.position) == (1, 1)


async def test_a_client_is_known_while_its_end_is_under_way_and_after() -> None:
    """Its session ends in an entry that is not durable yet: what is told meanwhile of what it did names it."""
    journal = HandJournal()
    async with serving(journal, bounds=Bounds(tick_s=60)) as node:
        for command in (OpenSession(60_000, meta="billing"), CloseSession(1)):
            node.submit(command, lambda *_: None)
            await settle()
            assert node.position < node.replica.machine.position
            assert [event.session_meta for event in _events(node)] == ["billing"] * node.position
            await journal.complete()
        assert not node.replica.machine.state.sessions
        assert {event.session_meta for event in _events(node)} == {"billing"}
        assert node.meta_of(1) == "billing"
        assert node.meta_of(2) == ""


async def test_what_is_broken_is_told_once_it_is_durable() -> None:
    """Who had it, and who broke it; what ends by itself, or breaks nothing, is not."""
    heard: list[Event] = []
    breakers: list[str] = []
    async with serving(MemoryJournal(MemoryStore())) as node:

        def hear(event: Event, principal: str) -> None:
            heard.append(event)
            breakers.append(principal)

        node.on_broken = hear
        await told(node, OpenSession(60_000, secret="s", meta="billing"))
        await told(node, Acquire(1, ("a",)))
        await told(node, Acquire(1, ("a",), request=1))
        await told(node, BreakAs("a", by="alice", principal="user/alice"))
        await told(node, Release(1, ("a",), 3))
        await told(node, Break("a", by="bob"))
    assert [(event.names, event.fence, event.by) for event in heard] == [(("a",), 1, "alice")]
    assert heard[0].session_meta == "billing"
    assert breakers == ["user/alice"]


async def test_a_stop_while_it_waits_to_try_again_is_heard_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause before the next try ends with the stop."""
    monkeypatch.setattr(node_module, "_RETRY_S", (3_600.0,))
    faults = OneFault()
    node = Node(MemoryJournal(MemoryStore(), faults=faults), HandClock(), bounds=QUICK)
    running = asyncio.create_task(node.run())
    await node.ready()
    faults.armed = ("append.before", Unavailable("out of reach"))
    await told(node, Break("a"))
    await settle()
    assert not running.done()
    node.stop()
    await running


def _events(node: Node) -> Iterator[Event]:
    return node.ring.since(0, node.who_of)
