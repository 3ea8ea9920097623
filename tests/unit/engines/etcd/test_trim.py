"""Trimming gives room back, in etcd too; and journals under several prefixes do not touch one another."""

import os

import pytest

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import Compacted
from fencehold.engines.etcd import EtcdJournal
from fencehold.engines.etcd.snapshots import STEP_ENTRIES
from fencehold.journal.port import Snapshot
from fencehold.types import Epoch, Position
from rig.etcd import EtcdCluster
from tests.contract.engines.etcd import fresh_address
from tests.contract.harness import fill, opened, read_all, run
from tests.unit.engines.etcd.stage import keys_under, leading, raw

pytestmark = pytest.mark.slow


async def revision_of(address: EtcdAddress) -> int:
    async with raw(address) as (cluster, keys):
        return int((await cluster.read(messages.RangeRequest(key=keys.epoch))).header.revision)


async def is_compacted(address: EtcdAddress, revision: int) -> bool:
    async with raw(address) as (cluster, keys):
        try:
            await cluster.read(messages.RangeRequest(key=keys.epoch, revision=revision))
        except Compacted:
            return True
        return False


async def save_and_trim(journal: EtcdJournal, epoch: Epoch, start: int) -> None:
    await fill(journal, epoch, range(start, start + 10))
    await journal.save(Position(start + 9), [b"state"])
    await journal.trim()


def test_a_trim_keeps_the_entry_at_the_snapshot_and_what_follows() -> None:
    """However many entries there are, only the last one that the snapshot covers stays of those."""

    async def work() -> None:
        address = fresh_address()
        async with leading(address) as (journal, epoch), raw(address) as (cluster, keys):
            await fill(journal, epoch, [1])
            # Entries for more than one step, put directly: a transaction each would take its time.
            last = 2 * STEP_ENTRIES + 500
            for start in range(2, last, 100):
                puts = [
                    messages.RequestOp(
                        request_put=messages.PutRequest(key=keys.entry(Position(at)), value=b"entry")
                    )
                    for at in range(start, min(start + 100, last))
                ]
                await cluster.transact(messages.TxnRequest(success=puts))
            await fill(journal, epoch, range(last, last + 3))
            await journal.save(Position(last), [b"state"])
            await journal.trim()
            assert await keys_under(address, "entries/") == [
                f"entries/{position:020d}" for position in range(last, last + 3)
            ]
            await fill(journal, epoch, [last + 3])

    run(work())


@pytest.mark.parametrize("compacts", [True, False])
def test_old_revisions_are_compacted_unless_that_is_turned_off(compacts: bool) -> None:
    """Compacting reaches up to where the trim before ended: whoever is a little behind loses nothing."""

    async def work() -> None:
        address = fresh_address()._replace(compact=compacts)
        async with leading(address) as (journal, epoch):
            await save_and_trim(journal, epoch, 1)
            old = await revision_of(address) - 1
            assert not await is_compacted(address, old)
            await save_and_trim(journal, epoch, 11)
            new = await revision_of(address) - 1
            assert (await is_compacted(address, old), await is_compacted(address, new)) == (compacts, False)

    run(work())


def test_two_who_trim_do_not_mind_each_other() -> None:
    """What one has compacted already, the other need not; both go on."""

    async def work() -> None:
        address = fresh_address()
        async with leading(address) as (journal, epoch), opened(EtcdJournal(address)) as other:
            for turn in range(4):
                await save_and_trim(journal, epoch, turn * 10 + 1)
                await other.trim()
            assert await read_all(other, 40) == []

    run(work())


def test_the_database_stays_bounded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Entries and snapshots of many times the size of what is kept leave the database small."""
    etcd = EtcdCluster(tmp_path_factory.mktemp("etcd"), size=1)

    async def work() -> None:
        async with leading(EtcdAddress(tuple(etcd.endpoints))) as (journal, epoch):
            for turn in range(20):
                for number in range(20):
                    position = Position(turn * 20 + number + 1)
                    await journal.append(os.urandom(100_000), epoch=epoch, position=position)
                await journal.save(position, (os.urandom(1 << 16) for _ in range(16)))
                await journal.trim()

    try:
        etcd.start()
        run(work())
        # 60 MB were written, and 3 MB of them are written between two trims.
        assert int(etcd.status(0)["dbSize"]) < 20 << 20
    finally:
        etcd.stop()


def test_journals_under_two_prefixes_do_not_touch_one_another() -> None:
    """Each has its own epochs, entries and snapshots, also where one prefix begins with the other."""

    async def work() -> None:
        one = fresh_address()
        others = [
            fresh_address(),
            one._replace(prefix=f"{one.prefix}entries/"),
            one._replace(prefix=one.prefix + "b/"),
        ]
        for number, address in enumerate(others):
            async with leading(address) as (journal, epoch):
                await fill(journal, epoch, range(1, number + 3))
                await journal.save(Position(1), [b"state %d" % number])
        async with leading(one) as (journal, epoch):
            await save_and_trim(journal, epoch, 1)
            await save_and_trim(journal, epoch, 11)
        for number, address in enumerate(others):
            journal = EtcdJournal(address)
            snapshot = Snapshot(Position(1), b"state %d" % number)
            assert await journal.open() == (snapshot, 1, number + 2, ())
            assert len(await read_all(journal)) == number + 2
            await journal.close()

    run(work())
