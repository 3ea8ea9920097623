"""Turns: crowds of several shards append one after the other, and no shard keeps another from appending."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fencehold.core.commands import Break
from fencehold.core.machine import Machine
from fencehold.errors import OutcomeUnknown
from fencehold.node import leader as leader_module
from fencehold.node.lanes import Lane
from fencehold.node.leader import Bounds, Leader
from fencehold.node.turns import Turns
from fencehold.server import Config, Server
from fencehold.types import Epoch
from tests.unit.node.doubles import HandClock, HandJournal, Told, settle, until
from tests.unit.node.sharded import sharded

CROWD = 8


class Shard:
    """A leader that shares its turns with others."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.journal, self.told, self._clock = HandJournal(), Told(), HandClock()
        self.leader = Leader(
            Machine(),
            self.journal,
            Epoch(1),
            self._clock,
            on_durable=self.told.on_durable,
            bounds=Bounds(),
            calendar=self._clock.unix_ms,
            turns=turns,
        )
        self.leading = asyncio.create_task(self.leader.lead())

    async def ask(self, count: int) -> None:
        """So many clients ask for something each."""
        for number in range(count):
            self.leader.submit(Break("a"), self.told.by(str(number)), Lane())
        await settle()


@asynccontextmanager
async def two_shards(turns: Turns | None = None) -> AsyncIterator[tuple[Shard, Shard]]:
    """Two shards, of which the second has just answered a crowd and expects it again."""
    turns = turns or Turns()
    one, other = Shard(turns), Shard(turns)
    await other.ask(CROWD)
    await other.journal.complete()
    try:
        yield one, other
    finally:
        for shard in (one, other):
            shard.leading.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await shard.leading


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, nobody goes before its turn."""
    monkeypatch.setattr(leader_module, "TURN_S_MAX", 3_600.0)


@pytest.mark.usefixtures("long_turns")
async def test_a_crowd_gathers_while_another_shard_appends() -> None:
    """What comes meanwhile is one entry, begun when the other append has ended."""
    async with two_shards() as (one, other):
        await one.ask(1)
        await other.ask(2)
        await other.ask(3)
        assert other.journal.commands == [CROWD]
        await one.journal.complete()
        await until(lambda: len(other.journal.begun) > 1)
        assert other.journal.commands == [CROWD, 5]


async def test_a_crowd_that_is_there_waits_for_no_turn() -> None:
    """When all have come who are expected, to wait would bring nobody."""
    async with two_shards() as (one, other):
        await one.ask(1)
        await other.ask(CROWD)
        assert other.journal.commands == [CROWD, CROWD]


async def test_who_is_among_few_waits_for_no_turn() -> None:
    """A shard with one client appends beside the others, at once."""
    async with two_shards() as (one, other):
        await other.ask(CROWD)
        await one.ask(1)
        assert one.journal.commands == [1]


async def test_a_stuck_append_keeps_others_waiting_only_for_a_moment() -> None:
    """It never ends; the other shard goes on, and the turn is not with the stuck one any more."""
    async with two_shards() as (one, other):
        await one.ask(1)
        await other.ask(CROWD // 2)
        await until(lambda: other.journal.commands == [CROWD, CROWD // 2])
        await other.journal.complete()
        assert len(other.told.names) == CROWD + CROWD // 2


def test_the_turn_is_that_of_the_append_begun_last() -> None:
    """One that is stuck does not keep the turn from those that went before it."""
    turns = Turns()
    turns.begin("stuck")
    turns.begin("second")
    turns.end("second")
    assert not turns.is_taken


async def test_a_failed_append_ends_its_own_leader_only() -> None:
    """The next shard has its turn."""
    async with two_shards() as (one, other):
        await one.ask(1)
        await other.ask(2)
        await one.journal.fail(OutcomeUnknown("the disk is gone"))
        assert one.leading.done()
        await until(lambda: other.journal.commands == [CROWD, 2])
        await other.journal.complete()
        assert len(other.told.names) == CROWD + 2


async def test_the_longest_waiting_is_next() -> None:
    """One is let go at a time, in order; who has left is passed over."""
    turns, first, second, third = Turns(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    for event in (first, second, third):
        turns.line_up(event)
    turns.leave(first)
    turns.begin("holder")
    turns.end("holder")
    assert [event.is_set() for event in (first, second, third)] == [False, True, False]


@pytest.mark.usefixtures("long_turns")
async def test_who_does_not_append_when_its_turn_has_come_lets_the_next_one() -> None:
    """Its leader is at its end: who is behind it waits for nobody then, not for as long as a turn may take."""
    async with two_shards() as (one, other), two_shards(other.turns) as (_, third):
        await one.ask(1)
        await other.ask(2)
        await third.ask(2)
        one.journal.end_soon()
        other.leading.cancel()
        await settle()
        assert (other.journal.commands, third.journal.commands) == ([CROWD], [CROWD, 2])


@pytest.mark.usefixtures("long_turns")
async def test_who_had_its_entry_made_elsewhere_lets_the_next_one_have_its_turn() -> None:
    """It was made where a client stood, just when its turn had come."""
    async with two_shards() as (one, other), two_shards(other.turns) as (_, third):
        await one.ask(1)
        await other.ask(2)
        await third.ask(2)
        one.journal.end_soon()
        # As `commit_here` leaves it.
        other.leader._is_wanted = False
        await settle()
        assert (other.journal.commands, third.journal.commands) == ([CROWD], [CROWD, 2])


async def test_only_journals_that_are_not_shared_take_turns() -> None:
    """Where several nodes share journals, as on etcd, an append waits for no other shard's."""
    async with sharded(2, "one") as cluster:
        assert [host.node.turns for host in cluster.servers["one"].hosts] == [None, None]


async def test_shards_in_files_take_turns_with_one_another(tmp_path: Path) -> None:
    """All shards of a server that keeps them in files have the same turns."""
    server = Server(Config(data=tmp_path, port=0, shards=3))
    turns = {host.node.turns for host in server.hosts}
    assert len(turns) == 1
    assert None not in turns
