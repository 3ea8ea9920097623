"""Both clients in deadlocks through several shards: one is refused, with the whole circle, in about a second."""

import asyncio
import threading

import pytest

import fencehold
from fencehold import aio
from fencehold.errors import Deadlock
from fencehold.placement.map import even_map
from fencehold.server import Config, Server
from tests.unit.node.doubles import until
from tests.unit.node.sharded import sharded

SHARDS = 3
PATIENCE_S = 60.0
"""What a request would wait, if nobody found the circle."""
LOW, HIGH = "b", "a"
"""Names of shards 0 and 2."""


def test_the_names_are_of_different_shards() -> None:
    assert [even_map(SHARDS).shard_of_name(name) for name in (LOW, HIGH)] == [0, 2]


async def crossing(first: aio.Client, second: aio.Client) -> Deadlock:
    """Take two names in opposite order; what the one is told that is refused. The other has both."""
    both_have_one = asyncio.Barrier(2)

    async def take(client: aio.Client, *names: str) -> None:
        async with client.lock(names[0], timeout=PATIENCE_S):
            await both_have_one.wait()
            async with client.lock(names[1], timeout=PATIENCE_S):
                pass

    kept, against = await asyncio.gather(take(first, LOW, HIGH), take(second, HIGH, LOW), return_exceptions=True)
    assert kept is None
    assert isinstance(against, Deadlock)
    return against


def check(deadlock: Deadlock) -> None:
    assert [(link.name, link.shard, link.fence) for link in deadlock.circle] == [(LOW, 0, 1), (HIGH, 2, 1)]
    assert all(0 <= link.since_ms_ago < PATIENCE_S * 1000 for link in deadlock.circle)
    assert f"waits for {LOW!r} (fence 1" in str(deadlock)


async def test_async_clients_are_told() -> None:
    """Who asked against the order of the shards is refused; when it has released, the other goes on."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        url = f"fencehold://127.0.0.1:{server.port}"
        async with aio.connect(url) as first, aio.connect(url) as second:
            check(await crossing(first, second))
        assert server.shards is not None
        assert server.shards.deadlocks.refused == 1


async def test_blocking_clients_are_told() -> None:
    """The same with two threads of one client: each is an owner."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        url = f"fencehold://127.0.0.1:{server.port}"
        deadlock = await asyncio.to_thread(_cross_with_threads, url)
        assert [link.shard for link in deadlock.circle] == [0, 2]


def _cross_with_threads(url: str) -> Deadlock:
    both_have_one = threading.Barrier(2)
    told: list[Deadlock] = []

    def take(*names: str) -> None:
        with client.lock(names[0], timeout=PATIENCE_S):
            both_have_one.wait(PATIENCE_S)
            try:
                with client.lock(names[1], timeout=PATIENCE_S):
                    pass
            except Deadlock as deadlock:
                told.append(deadlock)

    with fencehold.connect(url) as client:
        threads = [threading.Thread(target=take, args=names) for names in ((LOW, HIGH), (HIGH, LOW))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    (deadlock,) = told
    return deadlock


async def test_shards_that_other_nodes_lead_are_read_to_their_ends() -> None:
    """With leaders spread over nodes, the one that leads the shard of the refused request ends the circle."""
    async with sharded(SHARDS, "one", "two", "three") as cluster:
        await until(lambda: set(cluster.led().values()) == {1})
        async with aio.connect(cluster.url) as first, aio.connect(cluster.url) as second:
            check(await crossing(first, second))
        refused = {
            name: server.shards.deadlocks.refused
            for name, server in cluster.servers.items()
            if server.shards is not None
        }
        (ended_by,) = (name for name, count in refused.items() if count)
        assert cluster.servers[ended_by].hosts[0].node.leads


async def test_names_over_several_shards_are_never_the_ones_refused() -> None:
    """They are taken in the order of the shards, so another's request is refused that asked against it."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        url = f"fencehold://127.0.0.1:{server.port}"
        async with aio.connect(url) as first, aio.connect(url) as second:
            held = await first.lock(HIGH).acquire()
            assert held is not None
            several = asyncio.create_task(
                second.multi([LOW, HIGH], across_shards=True, timeout=PATIENCE_S).acquire()
            )
            await until(lambda: HIGH in server.hosts[2].node.replica.machine.state.queues)
            with pytest.raises(Deadlock):
                await first.lock(LOW, timeout=PATIENCE_S).acquire()
            await held.release()
            assert await several is not None
