"""Snapshots in chunks: large ones, ones given up, ones that others delete or replace, and damaged ones."""

import asyncio
import os
from collections.abc import Iterator

import msgspec
import pytest

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.engines.etcd import EtcdJournal
from fencehold.engines.etcd.snapshots import CHUNK_BYTES
from fencehold.errors import Damaged, UsageError
from fencehold.journal.port import Opened, Snapshot
from fencehold.types import Position
from tests.contract.engines.etcd import fresh_address
from tests.contract.harness import fill, opened, read_all, run
from tests.unit.engines.etcd.stage import keys_under, leading, raw

pytestmark = pytest.mark.slow


async def found(address: EtcdAddress) -> Opened:
    journal = EtcdJournal(address)
    opened_ = await journal.open()
    await journal.close()
    return opened_


async def chunks_of(address: EtcdAddress) -> dict[int, int]:
    """How many chunks are stored, by the position of their snapshot."""
    counts: dict[int, int] = {}
    for key in await keys_under(address, "snapshots/"):
        position = int(key.split("/")[1].partition("-")[0])
        counts[position] = counts.get(position, 0) + 1
    return counts


def test_a_large_snapshot_is_kept_in_chunks() -> None:
    """Twenty megabytes in pieces of any size come back whole, from chunks far below etcd's limit for a request."""

    async def work() -> None:
        data, address = os.urandom(20 << 20), fresh_address()
        pieces = [data[start : start + 333_333] for start in range(0, len(data), 333_333)]
        async with leading(address) as (journal, epoch):
            await fill(journal, epoch, range(1, 4))
            await journal.save(Position(3), pieces)
            records = await fill(journal, epoch, [4])
            assert await chunks_of(address) == {3: (20 << 20) // CHUNK_BYTES + 1}
        assert await found(address) == (Snapshot(Position(3), data), epoch, 4, ())
        async with opened(EtcdJournal(address)) as journal:
            assert await read_all(journal, 3) == records

    run(work())


def test_a_snapshot_given_up_half_way_is_garbage_until_a_later_one_is_trimmed() -> None:
    """Its chunks are nobody's snapshot, stay while one at their position may be under way, and go with time."""

    async def work() -> None:
        address = fresh_address()
        async with leading(address) as (journal, epoch):
            await fill(journal, epoch, range(1, 31))
            await journal.save(Position(10), [b"older"])
            await give_up(journal, Position(20))
            await journal.trim()
            assert set(await chunks_of(address)) == {10, 20}
            assert (await found(address)).snapshot == Snapshot(Position(10), b"older")
            await journal.save(Position(30), [b"newer"])
            assert set(await chunks_of(address)) == {10, 20, 30}
            await journal.trim()
            assert await chunks_of(address) == {30: 1}
        assert (await found(address)).snapshot == Snapshot(Position(30), b"newer")

    async def give_up(journal: EtcdJournal, position: Position) -> None:
        drawn = asyncio.Event()

        def endless() -> Iterator[bytes]:
            for number in range(1_000_000):
                if number == 3:
                    drawn.set()
                yield bytes(CHUNK_BYTES)

        saving = asyncio.ensure_future(journal.save(position, endless()))
        await drawn.wait()
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)

    run(work())


def test_a_trim_leaves_the_snapshot_that_another_is_writing() -> None:
    """A save under way while the journal is trimmed stands, whole, when it is done."""

    async def work() -> None:
        address = fresh_address()
        async with leading(address) as (journal, epoch), opened(EtcdJournal(address)) as other:
            await fill(journal, epoch, range(1, 31))
            await journal.save(Position(10), [b"older"])
            half, trimmed = asyncio.Event(), asyncio.Event()

            def chunks() -> Iterator[bytes]:
                yield bytes(CHUNK_BYTES)
                half.set()
                while not trimmed.is_set():
                    yield b""
                yield b"end"

            saving = asyncio.ensure_future(other.save(Position(20), chunks()))
            await half.wait()
            await journal.trim()
            trimmed.set()
            await saving
        assert (await found(address)).snapshot == Snapshot(Position(20), bytes(CHUNK_BYTES) + b"end")

    run(work())


@pytest.mark.parametrize("trims", [True, False])
def test_a_snapshot_that_was_overtaken_while_it_was_written_is_refused(trims: bool) -> None:
    """When a newer one stands meanwhile, the older never takes its place, be its chunks there still or not."""

    async def work() -> None:
        address = fresh_address()
        async with leading(address) as (journal, epoch), opened(EtcdJournal(address)) as other:
            await fill(journal, epoch, range(1, 31))
            half, overtaken = asyncio.Event(), asyncio.Event()

            def chunks() -> Iterator[bytes]:
                yield bytes(CHUNK_BYTES)
                half.set()
                while not overtaken.is_set():
                    yield b""
                yield bytes(CHUNK_BYTES)

            saving = asyncio.ensure_future(other.save(Position(20), chunks()))
            await half.wait()
            await journal.save(Position(30), [b"newer"])
            if trims:
                await journal.trim()
            overtaken.set()
            with pytest.raises(UsageError, match="older than the one at 30"):
                await saving
            assert (await found(address)).snapshot == Snapshot(Position(30), b"newer")
            await journal.save(Position(30), [b"newer still"])
            await journal.trim()
            assert set(await chunks_of(address)) == {30}
        assert (await found(address)).snapshot == Snapshot(Position(30), b"newer still")

    run(work())


@pytest.mark.parametrize("damage", ["chunk changed", "chunk gone", "pointer", "epoch", "entries", "entry"])
def test_what_was_spoiled_is_damage(damage: str) -> None:
    """Keys that were changed or deleted by hand are told as damage, and never read as something else."""

    async def work() -> None:
        address = fresh_address()
        async with leading(address) as (journal, epoch):
            await fill(journal, epoch, range(1, 31))
            await journal.save(Position(10), [b"state"])
        await spoil(address)
        with pytest.raises(Damaged):
            async with opened(EtcdJournal(address)) as spoiled:
                await read_all(spoiled, 10)

    async def spoil(address: EtcdAddress) -> None:
        async with raw(address) as (cluster, keys):
            pointer = (await cluster.read(messages.RangeRequest(key=keys.snapshot))).kvs[0].value
            chunk = keys.chunk(msgspec.json.decode(pointer)["name"], 0)
            match damage:
                case "chunk changed":
                    await cluster.put(chunk, b"stats")
                case "chunk gone":
                    await cluster.delete(chunk, chunk + b"\0")
                case "pointer":
                    await cluster.put(keys.snapshot, b"gibberish")
                case "epoch":
                    await cluster.delete(keys.epoch, keys.epoch + b"\0")
                case "entries":
                    await cluster.delete(keys.entries_start, keys.entry(Position(20)))
                case "entry":
                    await cluster.put(keys.entry(Position(20)), b"gibberish")

    run(work())
