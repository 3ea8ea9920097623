"""Shards on the wire: a plain client is served by all of them, or told where to go; ours choose one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from redis.cluster import RedisCluster

from fencehold import aio
from fencehold.core.outcomes import DeadlockAcross, ShardLink
from fencehold.doors.resp import guard, shard_commands
from fencehold.node.node import HomeShard
from fencehold.placement.map import even_map
from fencehold.placement.slots import slot_of
from fencehold.server import Config, Server
from tests.unit.doors.box import Client
from tests.unit.node.doubles import until
from tests.unit.node.sharded import sharded

SHARDS = 4
NAMES = ("a", "b", "c", "d")
"""One of each shard, see the first test."""


@asynccontextmanager
async def connected(server: Server, *hello: str | int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    client = Client(reader, writer)
    client.version = 3
    try:
        await client.call("HELLO", 3, *hello)
        yield client
    finally:
        await client.close()


def home(name: str) -> int:
    return even_map(SHARDS).shard_of(slot_of(name))


async def test_a_plain_client_has_a_session_in_each_shard_it_uses() -> None:
    """It locks, extends, asks about and releases names of all shards by one connection; then nothing is left."""
    assert sorted(map(home, NAMES)) == [0, 1, 2, 3]
    async with Server(Config(port=0, shards=SHARDS)) as server:
        states = [host.node.replica.machine.state for host in server.hosts]
        async with connected(server) as client:
            for name in NAMES:
                client.send("LOCK.ACQUIRE", name)
            granted = [await client.reply() for _ in NAMES]
            assert [each["name"] for each in granted] == list(NAMES), "replies come in the order of the commands"
            assert [len(state.sessions) for state in states] == [1] * SHARDS
            for name, grant in zip(NAMES, granted, strict=True):
                assert (await client.call("LOCK.EXTEND", name, grant["fence"], 5_000))["fence"] == grant["fence"]
                assert (await client.call("LOCK.INFO", name))["fence"] == grant["fence"]
            assert await client.call("LOCK.RELEASE", "a", granted[0]["fence"]) == "OK"
            assert await client.refusal("LOCK.RELEASE", "a", granted[0]["fence"]) == "RELEASED"
            assert (await client.call("LOCK.BREAK", "b"))["ended"] == [granted[1]["fence"]]
            assert (await client.push())[:3] == ["lost", "b", granted[1]["fence"]]
        await until(lambda: not any(state.sessions or state.held for state in states))


async def test_several_names_of_a_plain_client_are_of_one_shard() -> None:
    """Others are refused with the hint that helps; with a common tag they are taken in one step."""
    async with Server(Config(port=0, shards=SHARDS)) as server, connected(server) as client:
        failure = await client.failure("LOCK.MACQUIRE", 2, "a", "b")
        assert failure.code == "CROSSSLOT"
        assert "{tag}" in failure.detail
        granted = await client.call("LOCK.MACQUIRE", 2, "{7}.stock", "{7}.payment")
        assert await client.call("LOCK.MRELEASE", 2, "{7}.stock", "{7}.payment", granted["fence"]) == "OK"


async def test_a_wait_of_a_plain_client_ends_in_its_shard() -> None:
    """A blocked acquire is answered when the name is free, and what comes after it waits for its turn."""
    config = Config(port=0, shards=SHARDS)
    async with Server(config) as server, connected(server) as holder, connected(server) as waiter:
        held = await holder.call("LOCK.ACQUIRE", "a")
        waiter.send("LOCK.ACQUIRE", "a", "WAIT", 60_000)
        waiter.send("LOCK.ACQUIRE", "b")
        state = server.hosts[home("a")].node.replica.machine.state
        await until(lambda: len(state.waiters) == 1)
        await holder.call("LOCK.RELEASE", "a", held["fence"])
        assert (await waiter.reply())["name"] == "a"
        assert (await waiter.reply())["name"] == "b"


async def test_a_connection_that_chose_a_shard_is_told_whose_other_names_are() -> None:
    """The machine itself refuses what is another's; the words are those of Redis Cluster."""
    config = Config(port=0, shards=SHARDS)
    async with Server(config) as server, connected(server, "SHARD", home("a")) as client:
        await client.call("SESSION.OPEN", "TTL", 30_000)
        assert (await client.call("LOCK.ACQUIRE", "a"))["name"] == "a"
        for words in (("LOCK.ACQUIRE", "b"), ("LOCK.INFO", "b"), ("LOCK.BREAK", "b")):
            failure = await client.failure(*words)
            assert (failure.code, failure.detail) == ("MOVED", f"{slot_of('b')} 127.0.0.1:{server.port}")
        assert [each["name"] for each in (await client.call("LOCK.LIST"))[1]] == ["a"]
        assert await client.refusal("HELLO", 3, "SHARD", home("b")) == "USAGE"


async def test_both_tiers_have_all_shards() -> None:
    """What only saves work is spread in the same way, and each tier has its own."""
    config, tier = Config(port=0, shards=SHARDS), ("TIER", "EFFICIENCY")
    async with Server(config) as server, connected(server) as other, connected(server, *tier) as client:
        for name in NAMES:
            assert (await client.call("LOCK.ACQUIRE", name))["fence"] > 1 << 40
            assert (await other.call("LOCK.ACQUIRE", name))["fence"] == 1


async def test_what_is_about_no_name_needs_a_shard() -> None:
    """Nobody is told of one shard's names when they asked for all."""
    async with Server(Config(port=0, shards=SHARDS)) as server, connected(server) as client:
        for words in (("LOCK.CANCEL", 1), ("LOCK.WATCH", ""), ("NODE.BACKUP",)):
            failure = await client.failure(*words)
            assert failure.code == "USAGE"
            assert "SHARD" in failure.detail
        assert await client.refusal("HELLO", 3, "SHARD", SHARDS) == "USAGE"
        assert (await client.call("HELLO", 3))["shards"] == SHARDS
    async with Server(Config(port=0)) as server, connected(server, "SHARD", 0) as client:
        assert await client.refusal("HELLO", 3, "SHARD", 1) == "USAGE"
        assert (await client.call("SHARD.MAP"))["shards"] == 1


async def test_a_map_is_written_once_for_all_who_ask() -> None:
    """When slots move, all who watch a name ask for it at once, and it may have thousands of ranges."""
    async with Server(Config(port=0, shards=SHARDS)) as server, connected(server) as client:
        told = [await client.call("SHARD.MAP")]
        written = shard_commands._ranges_told.cache_info().misses
        told += [await client.call("SHARD.MAP")]
        assert shard_commands._ranges_told.cache_info().misses == written
        ranges = [[each.first, each.last, each.shard] for each in even_map(SHARDS).ranges]
        assert [each["ranges"] for each in told] == [ranges, ranges]
        assert server.shards is not None
        moved = server.shards.map = even_map(SHARDS).moved([0], 1)
        ranges = [[each.first, each.last, each.shard] for each in moved.ranges]
        assert (await client.call("SHARD.MAP"))["ranges"] == ranges


@pytest.mark.parametrize("led_here", [True, False])
async def test_lists_go_from_shard_to_shard(led_here: bool) -> None:
    """By any node every name and every session is told once, on whatever node its shard is led."""
    async with sharded(SHARDS, "a") as cluster:
        await until(lambda: cluster.led() == {"a": SHARDS})
        server = cluster.servers["a"] if led_here else await cluster.start("b")
        names = sorted(f"name:{number}" for number in range(40))
        async with aio.connect(f"fencehold://127.0.0.1:{cluster.servers['a'].port}") as holder:
            holds = [await holder.lock(name).acquire() for name in names]
            positions = [host.node.position for host in cluster.servers["a"].hosts]
            await until(
                lambda: all(
                    host.node.position >= position for host, position in zip(server.hosts, positions, strict=True)
                )
            )
            async with connected(server) as client:
                found, sessions, cursor, pages = [], 0, "", 0
                while True:
                    cursor, page = await client.call("LOCK.LIST", "PREFIX", "name:", "CURSOR", cursor, "COUNT", 7)
                    found += [each["name"] for each in page]
                    pages += 1
                    if not cursor:
                        break
                number = 0
                while True:
                    number, page = await client.call("SESSION.LIST", "COUNT", 1, "CURSOR", number)
                    sessions += len(page)
                    if not number:
                        break
                assert await client.refusal("LOCK.LIST", "CURSOR", "99/x") == "USAGE"
                assert await client.refusal("LOCK.LIST", "CURSOR", "x") == "USAGE"
            assert sorted(found) == names
            assert pages > SHARDS
            assert sessions == SHARDS
            for hold in holds:
                await hold.release()


async def test_a_client_of_a_redis_cluster_is_sent_to_the_shard_of_a_name() -> None:
    """redis-py's RedisCluster locks names that two nodes lead, though it was told of one of them."""
    async with sharded(SHARDS, "a", "b") as cluster:
        await until(lambda: cluster.led() == {"a": 2, "b": 2})
        first, second = cluster.servers.values()
        granted = await asyncio.to_thread(_locked_by_redis_cluster, first.port)
        assert granted == dict.fromkeys(NAMES, 1)
        led = {shard for shard, host in enumerate(second.hosts) if host.node.leads}
        async with connected(first) as client:
            for name in NAMES:
                if home(name) in led:
                    failure = await client.failure("LOCK.ACQUIRE", name)
                    assert failure.detail == f"{slot_of(name)} 127.0.0.1:{second.port}"
            nodes = (await client.call("CLUSTER", "NODES")).splitlines()
            assert len(nodes) == 2
            assert sum("myself" in node for node in nodes) == 1
            told = await client.call("CLUSTER", "SHARDS")
            assert [each["slots"] for each in told][:1] == [[0, 4095]]
            assert await client.call("CLUSTER", "KEYSLOT", "{a}b") == slot_of("a")
            assert "cluster_state:ok" in await client.call("CLUSTER", "INFO")
            assert await client.refusal("CLUSTER", "MEET") == "USAGE"


def _locked_by_redis_cluster(port: int) -> dict[str, int]:
    client = RedisCluster("127.0.0.1", port, protocol=3)
    try:
        call: Callable[..., Any] = client.execute_command
        granted = {name: call("LOCK.ACQUIRE", name) for name in NAMES}
        fences = {name: int(told[b"fence"]) for name, told in granted.items()}
        for name, fence in fences.items():
            assert call("LOCK.RELEASE", name, fence) == b"OK"
        # The map goes by what was learned when it connected: a wrong one is set right by MOVED.
        slots = client.nodes_manager.slots_cache
        first = slots[slot_of("a")]
        for name in NAMES:
            slots[slot_of(name)] = first
        for name in NAMES:
            assert call("LOCK.INFO", name)
        return fences
    finally:
        client.close()


def test_a_circle_is_told_without_what_may_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of another shard is not one's own for having the same number."""
    seen = SimpleNamespace(sees=lambda name: name == "mine")
    monkeypatch.setattr(guard, "rights_of", lambda _: seen)
    connection: Any = SimpleNamespace(
        member=SimpleNamespace(session=7), node=SimpleNamespace(home=HomeShard(0, 2))
    )
    circle = (ShardLink(7, "me", "theirs", 3, 10, 0), ShardLink(7, "another", "mine", 4, 20, 1))
    mine, other = guard.redacted(connection, DeadlockAcross(circle))
    assert mine == ShardLink(7, "me", "theirs", 0, -1, 0)
    assert other == ShardLink(0, "", "mine", 4, 20, 1)
