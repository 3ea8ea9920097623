"""Servers that die: without a minority service goes on, without a majority it stops, and nothing is ever lost."""

import asyncio

import pytest

from fencehold.errors import OutcomeUnknown, Sealed, Unavailable
from fencehold.journal.port import Journal, Record
from fencehold.types import Epoch, Position
from tests.contract.harness import Cluster, Harness, fill, leading, opened, read_all
from tests.contract.worker import PAUSE_S, Worker, all_records, check, entries


@pytest.mark.guarantee("G3")
async def test_without_a_minority_of_its_members_the_service_goes_on(harness: Harness, cluster: Cluster) -> None:
    """Members that are killed, the leading one first, interrupt appends for a while and lose none."""
    worker = Worker(harness.handle)
    for entry in entries(10, "before"):
        await worker.append(entry)
    cluster.kill((cluster.size - 1) // 2)
    for entry in entries(10, "after"):
        await worker.append(entry)
    await worker.close()
    found = await all_records(harness.handle())
    check(found, worker.acknowledged)
    assert [record.entry for record in found] == entries(10, "before") + entries(10, "after")


@pytest.mark.guarantee("G3")
async def test_without_a_majority_nothing_is_acknowledged_and_nothing_is_lost(
    harness: Harness, cluster: Cluster
) -> None:
    """Appends are refused or unknown, each within its bound; when the members are back, service goes on."""

    async def refused(worker: Worker, entry: bytes) -> None:
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await asyncio.wait_for(worker.append_or_fail(entry), cluster.answer_s)

    worker = Worker(harness.handle)
    for entry in entries(10, "before"):
        await worker.append(entry)
    cluster.kill(cluster.size // 2 + 1)
    await refused(worker, b"in vain")
    # As the node does: the handle is closed and another opened, and that is told to nobody either.
    await asyncio.wait_for(worker.close(), cluster.answer_s)
    await refused(worker, b"in vain, too")
    cluster.restore()
    for entry in entries(10, "after"):
        await worker.append(entry)
    await worker.close()
    found = await all_records(harness.handle())
    check(found, worker.acknowledged)
    assert {record.entry for record in found} - set(worker.acknowledged) <= {b"in vain"}


async def test_every_call_ends_within_its_bound_when_all_members_are_gone(
    harness: Harness, cluster: Cluster
) -> None:
    """Whatever is asked of an open journal whose servers all died is answered, and never with a false yes."""
    journal = harness.handle()
    await journal.open()
    epoch = await journal.lead()
    await fill(journal, epoch, range(1, 6))
    cluster.kill(cluster.size)
    calls = [
        journal.append(b"in vain", epoch=epoch, position=Position(6)),
        journal.lead(),
        read_all(journal),
        journal.save(Position(5), [b"state"]),
        harness.handle().open(),
    ]
    for call in calls:
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await asyncio.wait_for(call, cluster.answer_s)
    await asyncio.wait_for(journal.close(), cluster.answer_s)


async def test_a_tail_goes_on_when_a_member_is_killed(harness: Harness, cluster: Cluster) -> None:
    """A standby that begins its tail again where it stopped sees every entry once, in order."""

    async def follow(seen: list[Record], until: int) -> None:
        while len(seen) < until:
            try:
                async with opened(harness.handle()) as journal:
                    async for record in journal.tail(Position(len(seen))):
                        seen.append(record)
                        if len(seen) == until:
                            break
            except Unavailable:
                await asyncio.sleep(PAUSE_S)

    worker = Worker(harness.handle)
    seen: list[Record] = []
    following = asyncio.ensure_future(follow(seen, 20))
    for number, entry in enumerate(entries(20)):
        await worker.append(entry)
        if number == 9:
            cluster.kill((cluster.size - 1) // 2)
    await following
    await worker.close()
    assert seen == await all_records(harness.handle())
    assert [record.entry for record in seen] == entries(20)


@pytest.mark.guarantee("G10")
async def test_a_leader_that_wakes_up_after_being_replaced_leaves_no_trace(
    harness: Harness, cluster: Cluster
) -> None:
    """What it had acknowledged is there; what it tries afterwards is sealed, wherever it tries it."""
    async with leading(harness.handle()) as (old, older):
        records = await fill(old, older, range(1, 4))
        # From here on the old leader is paused: it does nothing, and does not know.
        async with leading(harness.handle()) as (new, newer):
            records += await fill(new, newer, range(4, 7))
            for position in range(1, 9):
                with pytest.raises(Sealed):
                    await old.append(b"late", epoch=older, position=Position(position))
            records += await fill(new, newer, range(7, 9))
            assert await read_all(old) == await read_all(new) == records


@pytest.mark.guarantee("G10")
async def test_an_append_under_way_while_a_newer_epoch_is_taken_is_before_it_or_not_there(
    harness: Harness, cluster: Cluster
) -> None:
    """However the two meet, the new leader reads all that was acknowledged, and nothing comes in behind it."""

    async def turn(old: Journal, older: Epoch, new: Journal, position: Position) -> tuple[Epoch, bool]:
        entry = b"contested %d" % position
        appending = asyncio.ensure_future(old.append(entry, epoch=older, position=position))
        newer = await new.lead()
        seen = await read_all(new)
        (outcome,) = await asyncio.gather(appending, return_exceptions=True)
        assert outcome is None or isinstance(outcome, Sealed)
        is_there = any(record.entry == entry for record in seen)
        assert is_there == (outcome is None)
        assert seen == await read_all(old)
        return newer, is_there

    async with leading(harness.handle()) as (one, first), opened(harness.handle()) as other:
        old, new, epoch, position = one, other, first, Position(1)
        for _ in range(20):
            epoch, is_there = await turn(old, epoch, new, position)
            position = Position(position + is_there)
            old, new = new, old


@pytest.mark.guarantee("G10")
@pytest.mark.parametrize("kills", [False, True])
async def test_two_leaders_in_a_storm_share_one_journal(harness: Harness, cluster: Cluster, kills: bool) -> None:
    """Two that take epochs from each other all the time, also while a member dies, never tear the journal."""

    async def storm(worker: Worker, name: str) -> None:
        for number, entry in enumerate(entries(25, name)):
            if kills and (name, number) == ("one", 5):
                cluster.kill((cluster.size - 1) // 2)
            await worker.append(entry)
            await worker.close()

    one, other = Worker(harness.handle), Worker(harness.handle)
    await asyncio.gather(storm(one, "one"), storm(other, "other"))
    found = await all_records(harness.handle())
    check(found, one.acknowledged + other.acknowledged)
    assert len(found) == 50
