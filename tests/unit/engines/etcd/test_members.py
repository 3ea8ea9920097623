"""Which member is asked, and what happens to a call when members are dead, hang or refuse."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import uvloop

from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.engines.etcd import EtcdBounds, EtcdJournal
from fencehold.errors import Unavailable
from fencehold.types import Position
from rig.etcd import EtcdCluster
from rig.processes import free_port
from tests.contract.engines.etcd import fresh_address, members
from tests.contract.harness import fill, read_all, run
from tests.contract.test_tail import Follower
from tests.contract.worker import Worker, all_records, check, entries
from tests.unit.engines.etcd.stage import leading, raw

WITHIN_S = 10.0
"""What a busy machine may make of a second or two."""


@pytest.fixture
def etcd() -> Iterator[EtcdCluster]:
    yield members()
    members().restore()


def dead_endpoint() -> str:
    """Where nobody listens."""
    return f"127.0.0.1:{free_port()}"


async def refused(journal: EtcdJournal) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        await asyncio.wait_for(journal.open(), WITHIN_S)


def test_an_etcd_that_is_not_there_is_told_at_once() -> None:
    """Refused connections leave nothing to wait for, so the deadline is not waited for."""
    patient = EtcdBounds(call_s=1_000, try_s=1_000)
    run(refused(EtcdJournal(EtcdAddress((dead_endpoint(), dead_endpoint())), bounds=patient)))


def test_an_etcd_that_says_nothing_is_told_within_the_deadline() -> None:
    """Something that accepts connections and never answers is given up."""
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        endpoint = f"127.0.0.1:{mute.getsockname()[1]}"
        run(refused(EtcdJournal(EtcdAddress((endpoint,)), bounds=EtcdBounds(call_s=0.2, try_s=0.1))))


@pytest.mark.slow
def test_dead_endpoints_are_passed_over(etcd: EtcdCluster) -> None:
    """One endpoint that works is enough, wherever it stands in the list."""

    async def work() -> None:
        alive = fresh_address()
        address = alive._replace(endpoints=(dead_endpoint(), alive.endpoints[0], dead_endpoint()))
        async with leading(address) as (journal, epoch):
            records = await fill(journal, epoch, range(1, 4))
            assert await read_all(journal) == records

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("leads", [True, False])
def test_a_member_that_hangs_is_left(etcd: EtcdCluster, leads: bool) -> None:
    """One that was stopped in its tracks holds appends up for a while, and then no more; nothing is lost."""

    async def work() -> None:
        index = (etcd.leader() + (0 if leads else 1)) % etcd.size
        address = fresh_address()
        if not leads:
            # The hanging one is first in the list, and the only other one is where appends go on.
            address = address._replace(endpoints=(etcd.endpoints[index], etcd.endpoints[etcd.leader()]))
        worker = Worker(lambda: EtcdJournal(address))
        for entry in entries(3, "before"):
            await worker.append(entry)
        etcd.pause(index)
        for entry in entries(3, "after"):
            await worker.append(entry)
        etcd.resume(index)
        await worker.close()
        check(await all_records(EtcdJournal(address)), worker.acknowledged)

    run(work())


@pytest.mark.slow
def test_a_write_goes_on_elsewhere_when_the_member_asked_dies(etcd: EtcdCluster) -> None:
    """As long as etcd keeps its leader, a call whose member was killed is answered by another."""

    async def work() -> None:
        leader, address = etcd.leader(), fresh_address()
        followers = [etcd.endpoints[index] for index in range(etcd.size) if index != leader]
        async with raw(address._replace(endpoints=tuple(followers))) as (cluster, keys):
            await cluster.put(keys.epoch, b"1")
            asked = cluster.asked
            etcd.kill(etcd.endpoints.index(asked))
            await cluster.put(keys.epoch, b"2")
            assert {asked, cluster.asked} == set(followers)

    run(work())


@pytest.mark.slow
def test_the_member_that_leads_is_asked(etcd: EtcdCluster) -> None:
    """The way from a follower to the leader and back is saved, wherever the leader stands in the list."""

    async def work() -> None:
        address = fresh_address()
        for turn in range(etcd.size):
            endpoints = address.endpoints[turn:] + address.endpoints[:turn]
            async with raw(address._replace(endpoints=endpoints)) as (cluster, keys):
                before = etcd.leader()
                await cluster.put(keys.epoch, b"1")
                # On a busy machine etcd may elect another at any time.
                assert cluster.asked in {etcd.endpoints[before], etcd.endpoints[etcd.leader()]}

    run(work())


@pytest.mark.slow
def test_a_journal_works_on_the_loop_that_servers_use() -> None:
    """uvloop drives gRPC as asyncio's own loop does: opening, appending, following, saving, trimming, closing."""

    async def work() -> None:
        async with leading(fresh_address()) as (journal, epoch):
            follower = Follower(journal)
            records = await fill(journal, epoch, range(1, 21))
            await follower.until(20)
            await journal.save(Position(20), [bytes(1 << 20)])
            await journal.trim()
            assert await read_all(journal, 20) == []
        await follower.task
        assert follower.seen == records

    uvloop.run(work())


@pytest.mark.slow
def test_five_members_go_on_without_two(tmp_path: Path) -> None:
    """Two of five may be killed, the leading one with them, and every acknowledged entry is there."""
    etcd = EtcdCluster(tmp_path, size=5)
    try:
        etcd.start()
        run(five(etcd))
    finally:
        etcd.stop()


async def five(etcd: EtcdCluster) -> None:
    worker = Worker(lambda: EtcdJournal.from_url(etcd.url()))
    for entry in entries(5, "before"):
        await worker.append(entry)
    first = etcd.kill_leader()
    for entry in entries(5, "without one"):
        await worker.append(entry)
    etcd.kill((first + 1) % 5)
    for entry in entries(5, "without two"):
        await worker.append(entry)
    await worker.close()
    check(await all_records(EtcdJournal.from_url(etcd.url())), worker.acknowledged)
