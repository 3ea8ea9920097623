"""Several shards on one or several servers: who leads which, and what is kept when that changes."""

import json
from pathlib import Path

import pytest

from fencehold import aio
from fencehold.core.commands import ChangePolicy, FoundShard
from fencehold.core.policy import PolicyChange, Role, Rule, User, Verb
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import UsageError
from fencehold.journal.codec import decode
from fencehold.server import Config, Server
from tests.unit.node.doubles import until
from tests.unit.node.sharded import sharded
from tests.unit.node.test_node import told

NAMES = [f"order:{number}" for number in range(8)]


async def test_leaders_spread_over_the_nodes_that_come_and_go() -> None:
    """A node that joins gets its part of the shards; what one leads that stops is led by the others."""
    async with sharded(4, "a") as cluster:
        await until(lambda: cluster.led() == {"a": 4})
        await cluster.start("b")
        await until(lambda: cluster.led() == {"a": 2, "b": 2})
        await cluster.stop("a")
        await until(lambda: cluster.led() == {"b": 4})


@pytest.mark.guarantee("G1")
async def test_what_is_held_stays_held_when_shards_are_handed_over() -> None:
    """Sessions, holds and fences of a shard are its journal's: another leader goes on with them."""
    async with sharded(4, "a") as cluster:
        await until(lambda: cluster.led() == {"a": 4})
        async with aio.connect(cluster.url) as client:
            holds = {name: await client.lock(name).acquire() for name in NAMES}
            await cluster.start("b")
            await until(lambda: cluster.led() == {"a": 2, "b": 2})
            for name, hold in holds.items():
                (seen,) = (await client.explain(name)).holders
                assert seen.fence == hold.fence
                hold.check()
                await hold.release()
                async with client.lock(name) as again:
                    assert again.fence > hold.fence


async def test_a_journal_is_only_used_with_the_shards_it_was_made_with(tmp_path: Path) -> None:
    """Whatever number it is started with, names would be looked for in the wrong place: it is refused."""
    first = await _fence(Config(data=tmp_path / "two", port=0, shards=2))
    await _fence(Config(data=tmp_path / "one", port=0))
    for data, shards, made in (("two", 1, "2 shards"), ("two", 3, "2 shards"), ("one", 2, "1 shard,")):
        with pytest.raises(UsageError, match=f"made with {made}"):
            await Server(Config(data=tmp_path / data, port=0, shards=shards)).start()
    assert not (tmp_path / "one" / "shard-0001").exists(), "nothing is made beside a journal that is refused"
    assert await _fence(Config(data=tmp_path / "two", port=0, shards=2)) > first


async def _fence(config: Config) -> int:
    """Of a lock that a server grants, which is started for that."""
    async with Server(config) as server, aio.connect(f"fencehold://127.0.0.1:{server.port}") as client:
        hold = await client.lock("a").acquire()
        await hold.release()
        return hold.fence


async def test_a_node_that_follows_a_journal_of_another_number_ends() -> None:
    """Two nodes that begin together with other numbers do not both serve."""
    store = MemoryStore()
    journals = [MemoryJournal(store), MemoryJournal(MemoryStore())]
    async with Server(Config(node="a", port=0, shards=2), journals=journals) as first:
        await until(lambda: first.node.leads)
        with pytest.raises(UsageError, match="made with 2 shards"):
            await Server(Config(node="b", port=0), journal=MemoryJournal(store)).start()


async def test_all_shards_follow_the_policy_of_the_first() -> None:
    """What is changed in one entry of the first shard holds in the others soon after, and in a later leader's."""
    users: dict[str, User | None] = {"root": User(("all",)), "ann": User(("some",))}
    roles: dict[str, Role | None] = {
        "all": Role((Rule((Verb.ADMIN, Verb.ACQUIRE), prefix=""),)),
        "some": Role((Rule((Verb.ACQUIRE,), prefix="a"),)),
    }
    async with sharded(3, "a") as cluster:
        server = cluster.servers["a"]
        await until(lambda: cluster.led() == {"a": 3})
        await told(server.node, ChangePolicy(0, PolicyChange(users, roles)))
        states = [host.node.replica.machine.state for host in server.hosts]
        await until(lambda: all(state.policy.revision == 1 for state in states))
        assert len({json.dumps(sorted(state.policy.users)) for state in states}) == 1
        await until(lambda: all(host.volatile.node.rulebook is not None for host in server.hosts))


async def test_a_shard_says_which_one_it_is_before_anything_else() -> None:
    """The first command of each journal has it, so that no name is ever granted by the wrong machine."""
    async with sharded(3, "a") as cluster:
        await until(lambda: all(store.records for store in cluster.stores))
        for shard, store in enumerate(cluster.stores):
            assert decode(store.records[0].entry).commands[0] == FoundShard(shard, 3)
