"""The peers that Fencehold is measured against do lock, and all that they do is counted."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from bench import recipes
from bench.v3lock import Session
from rig.etcd import EtcdCluster
from rig.zookeeper import ZookeeperEnsemble

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """One that is alone: what it says is what three say."""
    cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"), size=1)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def in_sessions(etcd: EtcdCluster, story: Callable[[Session, Session], Awaitable[None]]) -> None:
    """Run a story of two clients of etcd."""

    async def main() -> None:
        ours, theirs = (Session(etcd.endpoints[0]) for _ in range(2))
        try:
            await ours.open()
            await theirs.open()
            await story(ours, theirs)
        finally:
            await ours.close()
            await theirs.close()

    asyncio.run(main())


def test_a_name_locked_through_etcds_api_is_locked_for_others(etcd: EtcdCluster) -> None:
    """The next one has it when it is unlocked."""

    async def story(ours: Session, theirs: Session) -> None:
        key = await ours.lock("orders")
        waiting = asyncio.create_task(theirs.lock("orders"))
        # Time enough for a grant: another name is granted meanwhile.
        await theirs.unlock(await theirs.lock("invoices"))
        assert not waiting.done()
        await ours.unlock(key)
        await theirs.unlock(await waiting)

    in_sessions(etcd, story)


def test_a_closed_session_holds_nothing(etcd: EtcdCluster) -> None:
    """What it held is free with its lease."""

    async def story(ours: Session, theirs: Session) -> None:
        gone = Session(etcd.endpoints[0])
        await gone.open()
        await gone.lock("orders")
        await gone.close()
        await ours.unlock(await ours.lock("orders"))

    in_sessions(etcd, story)


def test_a_load_through_etcds_api_counts_what_it_did(etcd: EtcdCluster) -> None:
    """Some pairs were done, and each took time."""
    figures = recipes.etcd_lock(etcd.endpoints[0], connections=2, in_flight=2, seconds=0.1)
    assert figures["ops_per_s"] > 0
    assert figures["p99_us"] >= figures["p50_us"] > 0


def test_a_load_through_kazoo_counts_what_it_did(tmp_path: Path) -> None:
    """With names that come back, and with new ones."""
    with ZookeeperEnsemble(tmp_path, size=1) as zookeeper:
        for fresh in (True, False):
            figures = recipes.kazoo_lock(zookeeper.endpoints[0], 2, 2, seconds=0.1, fresh=fresh)
            assert figures["ops_per_s"] > 0
            assert figures["p99_us"] >= figures["p50_us"] > 0
