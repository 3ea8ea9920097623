"""Tails whose watch fails them: they read, go on from their position, and hand every entry on once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from fencehold.drivers.etcd import messages
from fencehold.engines.etcd import EtcdJournal
from fencehold.engines.etcd import reader as watch
from fencehold.engines.etcd.layout import encode_entry
from fencehold.errors import Damaged, Unavailable
from fencehold.types import Position
from rig.etcd import EtcdCluster
from tests.contract.engines.etcd import fresh_address, members
from tests.contract.harness import fill, opened, read_all
from tests.contract.test_tail import Follower
from tests.contract.worker import Worker, all_records, entries
from tests.unit.drivers.etcd.between import Between
from tests.unit.engines.etcd.stage import leading, raw

pytestmark = pytest.mark.slow


@pytest.fixture
def etcd() -> Iterator[EtcdCluster]:
    yield members()
    members().restore()


class Streams(Between):
    """Keeps the watches that are begun, to break them; and lets something happen before one begins."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.on_begin: Callable[[], Awaitable[object]] | None = None
        self._news = asyncio.Condition()

    def on_talk(self, talk: Any) -> Any:
        return _Held(talk, self)

    async def on_write(self, talk: Any) -> None:
        if talk in self.calls:
            return
        on_begin, self.on_begin = self.on_begin, None
        if on_begin is not None:
            await on_begin()
        async with self._news:
            self.calls.append(talk)
            self._news.notify_all()

    async def until(self, count: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: len(self.calls) >= count)


class _Held:
    """A talk that begins when its first words may be said."""

    def __init__(self, talk: Any, streams: Streams) -> None:
        self._talk = talk
        self._streams = streams
        self.read, self.cancel = talk.read, talk.cancel

    async def write(self, request: Any) -> None:
        await self._streams.on_write(self._talk)
        await self._talk.write(request)


async def test_a_tail_survives_its_watch() -> None:
    """A watch that is cut off is made anew, and nothing is missed or seen twice."""
    address, streams = fresh_address(), Streams()
    async with leading(address) as (leader, epoch):
        async with opened(EtcdJournal(address, connect=streams.connect)) as journal:
            follower = Follower(journal)
            records = []
            for turn in range(3):
                records += await fill(leader, epoch, range(turn * 10 + 1, turn * 10 + 11))
                await follower.until(turn * 10 + 10)
                await streams.until(turn + 1)
                streams.calls[-1].cancel()
            records += await fill(leader, epoch, [31])
            await follower.until(31)
        await follower.task
        assert follower.seen == records


async def test_a_tail_survives_a_compaction() -> None:
    """A watch whose revision was compacted before it began is told so, and the entries are read instead."""
    address, streams = fresh_address(), Streams()

    async with leading(address) as (leader, epoch), raw(address) as (cluster, keys):

        async def append_and_compact() -> None:
            records.extend(await fill(leader, epoch, range(6, 16)))
            found = await cluster.read(messages.RangeRequest(key=keys.epoch))
            await cluster.compact(found.header.revision)

        records = await fill(leader, epoch, range(1, 6))
        streams.on_begin = append_and_compact
        async with opened(EtcdJournal(address, connect=streams.connect)) as journal:
            follower = Follower(journal)
            await follower.until(15)
            await streams.until(2)
            records.extend(await fill(leader, epoch, [16]))
            await follower.until(16)
        await follower.task
        assert follower.seen == records


async def test_a_tail_goes_on_when_its_member_hangs(etcd: EtcdCluster) -> None:
    """A watch that says nothing is not believed for long: a read at another member tells what there is."""
    leader, address = etcd.leader(), fresh_address()
    followers = [index for index in range(etcd.size) if index != leader]
    worker, streams = Worker(lambda: EtcdJournal(address)), Streams()
    endpoints = tuple(etcd.endpoints[index] for index in followers)
    async with opened(EtcdJournal(address._replace(endpoints=endpoints), connect=streams.connect)) as journal:
        follower = Follower(journal)
        await streams.until(1)
        # It has its watch now, at one of the two, which hangs for a while.
        for index in followers:
            await worker.append(f"with {index}".encode())
            await follower.until(len(worker.acknowledged))
            etcd.pause(index)
            for entry in entries(5, f"without {index}"):
                await worker.append(entry)
            await follower.until(len(worker.acknowledged))
            etcd.resume(index)
    await follower.task
    await worker.close()
    assert follower.seen == await all_records(EtcdJournal(address))


async def test_an_entry_that_is_missing_without_a_snapshot_is_damage() -> None:
    """A gap that no trim explains is never passed over, neither by reading nor by following."""
    address = fresh_address()
    async with leading(address) as (journal, epoch), raw(address) as (cluster, keys):
        await fill(journal, epoch, range(1, 4))
        follower = Follower(journal)
        await follower.until(3)
        await cluster.put(keys.entry(Position(5)), encode_entry(Position(5), epoch, b"by hand"))
        with pytest.raises(Damaged, match="position 4"):
            await follower.task
        with pytest.raises(Damaged, match="position 4"):
            await read_all(journal)


async def test_closing_leaves_nothing_running() -> None:
    """When `close` has returned, no task of the journal is left, also with tails and a save under way."""
    before = asyncio.all_tasks()
    async with leading(fresh_address()) as (journal, epoch):
        followers = [Follower(journal) for _ in range(3)]
        await fill(journal, epoch, range(1, 4))
        for follower in followers:
            await follower.until(3)
        chunks = (bytes(1 << 16) for _ in range(1_000))
        saving = [asyncio.ensure_future(journal.save(Position(3), chunks))]
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await saving.pop()
    await asyncio.gather(*(follower.task for follower in followers))
    # What was cancelled ends within some turns of the loop.
    async with asyncio.timeout(20):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)


async def test_entries_that_are_too_large_for_one_answer_are_read_in_several() -> None:
    """Twenty entries of the largest size are more than an answer may carry, and come back all the same."""
    async with leading(fresh_address()) as (journal, epoch):
        size = journal.declared.entry_bytes_max
        entries_ = [bytes([number]) * size for number in range(20)]
        for number, entry in enumerate(entries_):
            await journal.append(entry, epoch=epoch, position=Position(number + 1))
        assert [record.entry for record in await read_all(journal)] == entries_


async def test_fast_entries_are_read_by_the_page_and_slow_ones_watched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A watch that would wake the tail for too many entries is given up, and taken up when it is quiet again."""
    monkeypatch.setattr(watch, "_WAKES_MAX", 0)

    address, streams = fresh_address(), Streams()
    async with leading(address) as (leader, epoch):
        async with opened(EtcdJournal(address, connect=streams.connect)) as journal:
            follower = Follower(journal)
            await streams.until(1)
            records = await fill(leader, epoch, range(1, 31))
            await follower.until(30)
            await streams.until(2)
            records += await fill(leader, epoch, [31])
            await follower.until(31)
        await follower.task
    assert follower.seen == records


async def test_a_tail_that_rests_between_pages_is_woken_when_it_is_wanted_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads what came meanwhile, is told of each entry by a watch, and rests again when that is over."""
    monkeypatch.setattr(watch, "_WAKES_MAX", 0)
    monkeypatch.setattr(watch, "_PACE_S", 3_600.0)
    monkeypatch.setattr(watch, "_PAGE_ENTRIES_FIRST", 2)

    address, streams = fresh_address(), Streams()
    following = EtcdJournal(address, connect=streams.connect)
    async with leading(address) as (leader, epoch), opened(following):
        follower = Follower(following)
        await streams.until(1)
        records = await fill(leader, epoch, [1])
        await follower.until(1)
        # It rests now, and would for an hour.
        records += await fill(leader, epoch, range(2, 31))
        for turn in range(2):
            following.follow_closely(True)
            await follower.until(len(records))
            await streams.until(turn + 2)
            for _ in range(20):
                records += await fill(leader, epoch, [len(records) + 1])
                await follower.until(len(records))
            following.follow_closely(False)
            records += await fill(leader, epoch, [len(records) + 1])
            await follower.until(len(records))
        follower.task.cancel()
        await asyncio.gather(follower.task, return_exceptions=True)
    assert follower.seen == records


async def test_a_close_tail_misses_nothing_that_is_put_while_its_watch_begins() -> None:
    """What comes between the wish for a watch and its beginning is read; what comes after it is told."""
    address, streams = fresh_address(), Streams()
    async with leading(address) as (leader, epoch):
        records = await fill(leader, epoch, range(1, 4))

        async def append() -> None:
            records.extend(await fill(leader, epoch, range(4, 8)))

        streams.on_begin = append
        followed = EtcdJournal(address, connect=streams.connect)
        followed.follow_closely(True)
        async with opened(followed) as journal:
            follower = Follower(journal)
            await follower.until(7)
            for _ in range(2):
                streams.calls[-1].cancel()
                records += await fill(leader, epoch, [len(records) + 1])
                await follower.until(len(records))
        await follower.task
    assert follower.seen == records
