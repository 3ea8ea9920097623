"""Slots that move between the shards of running servers: by the leaders themselves, whatever fails meanwhile."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count, islice
from operator import attrgetter
from pathlib import Path

import pytest

import fencehold
from fencehold import aio
from fencehold.client.aio.carriers import channel_of
from fencehold.client.aio.channel import Channel
from fencehold.client.aio.shards import ShardChannels
from fencehold.client.aio.watch import Watch, Watches
from fencehold.core.state import Stage
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import LimitExceeded
from fencehold.locks.places import Place
from fencehold.node import slot_mover
from fencehold.node.slot_mover import SlotMover, Standing
from fencehold.placement.map import ShardMap, even_map
from fencehold.placement.slots import slot_of
from fencehold.runtime.faults import Faults
from fencehold.server import Config, Server
from fencehold.types import Position
from tests.unit.doors.box import Failed
from tests.unit.doors.test_shards import connected
from tests.unit.node.doubles import HandClock, until
from tests.unit.node.sharded import ShardedCluster, sharded

SHARDS = 4


def map_of(server: Server) -> ShardMap:
    assert server.shards is not None
    return server.shards.map


def is_settled(server: Server, version: int) -> bool:
    assert server.shards is not None
    return server.shards.map.version == version and server.shards.mover.is_settled


async def move(server: Server, names: tuple[str, ...], to: int) -> int:
    """Ask a server for the next map, in which the slots of these names are a shard's; its version."""
    version = map_of(server).version + 1
    async with connected(server, "SHARD", 0) as client:
        for _ in range(2):
            # Told again, it is answered the same.
            reply = await client.call("SHARD.PLACE", version, to, ",".join(str(slot_of(name)) for name in names))
            assert reply == {"version": version}, reply
    return version


def holder(server: Server, name: str) -> list[int]:
    return [shard for shard, host in enumerate(server.hosts) if name in host.node.replica.machine.state.held]


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G4")
async def test_a_name_moves_with_its_queue_served_in_order() -> None:
    """A holder keeps what it has; who waits is served where it waits; newcomers wait where it goes."""
    async with Server(Config(port=0, shards=SHARDS)) as server, sharded_client(server) as client:
        order: list[str] = []

        async def take(who: str) -> int:
            async with client.lock("a", timeout=60) as hold:
                order.append(who)
                return hold.fence

        source = map_of(server).shard_of_name("a")
        to = (source + 1) % SHARDS
        state = server.hosts[source].node.replica.machine.state
        async with client.lock("a") as hold:
            first = [asyncio.create_task(take("first")), asyncio.create_task(take("second"))]
            await until(lambda: len(state.queues.get("a", ())) == 2)
            version = await move(server, ("a", "b"), to)
            later = asyncio.create_task(take("third"))
            target = server.hosts[to].node.replica.machine.state
            await until(lambda: "a" in target.queues)
            async with client.lock("b"):
                assert holder(server, "b") == [to], "what is free is granted where it goes"
            hold.check()
            await hold.extend(30)
            assert state.slots[slot_of("a")].stage is Stage.CLOSING
        fences = [hold.fence, *await asyncio.gather(*first), await later]
        assert order == ["first", "second", "third"]
        assert fences == sorted(set(fences))
        await until(lambda: is_settled(server, version))
        assert server.volatile is not None


async def test_a_plain_client_releases_what_it_has_of_a_slot_that_leaves() -> None:
    """By the map its name is another shard's already, and what it has is where it was granted."""
    async with Server(Config(port=0, shards=SHARDS)) as server, connected(server) as plain:
        source = map_of(server).shard_of_name("a")
        fence = (await plain.call("LOCK.ACQUIRE", "a"))["fence"]
        both = (await plain.call("LOCK.MACQUIRE", 2, "{a}1", "{a}2"))["fence"]
        version = await move(server, ("a",), (source + 1) % SHARDS)
        assert (await plain.call("LOCK.EXTEND", "a", fence, 5_000))["fence"] == fence
        assert await plain.call("LOCK.RELEASE", "a", fence) == "OK"
        assert await plain.call("LOCK.MRELEASE", 2, "{a}1", "{a}2", both) == "OK"
        await until(lambda: is_settled(server, version))
        assert (await plain.call("LOCK.ACQUIRE", "a"))["fence"] > both
        assert holder(server, "a") == [(source + 1) % SHARDS]


async def test_a_release_that_is_repeated_after_a_move_is_told_that_it_was_released() -> None:
    """As without a move: the client has no session where the name is now, and has not lost the one it has."""
    async with Server(Config(port=0, shards=SHARDS)) as server, connected(server) as plain:
        source = map_of(server).shard_of_name("a")
        fence = (await plain.call("LOCK.ACQUIRE", "a"))["fence"]
        both = (await plain.call("LOCK.MACQUIRE", 2, "{a}1", "{a}2"))["fence"]
        assert await plain.call("LOCK.RELEASE", "a", fence) == "OK"
        assert await plain.call("LOCK.MRELEASE", 2, "{a}1", "{a}2", both) == "OK"
        version = await move(server, ("a",), (source + 1) % SHARDS)
        await until(lambda: is_settled(server, version))
        assert await plain.refusal("LOCK.RELEASE", "a", fence) == "RELEASED"
        assert await plain.refusal("LOCK.MRELEASE", 2, "{a}1", "{a}2", both) == "RELEASED"
        assert await plain.refusal("LOCK.EXTEND", "a", fence, 5_000) == "RELEASED"
        assert await plain.refusal("LOCK.RELEASE", "a", 1 << 40) == "NOSESSION"
        assert (await plain.call("LOCK.ACQUIRE", "a"))["fence"] > both


def sharded_client(server: Server) -> AbstractAsyncContextManager[aio.Client]:
    return aio.connect(f"fencehold://127.0.0.1:{server.port}")


async def test_a_hold_that_does_not_end_is_broken_by_force() -> None:
    """Who waits is sent on and gets the name where it goes; the holder is told that it has lost it."""
    async with Server(Config(port=0, shards=SHARDS)) as server, sharded_client(server) as client:
        source = map_of(server).shard_of_name("a")
        hold = await client.lock("a").acquire()
        assert hold is not None
        waiting = asyncio.create_task(client.lock("a", timeout=60).acquire())
        state = server.hosts[source].node.replica.machine.state
        await until(lambda: "a" in state.queues)
        version = await move(server, ("a",), (source + 1) % SHARDS)
        async with connected(server) as plain:
            told = await plain.call("SHARD.MOVES")
            assert (told["settled"], told["shards"][source]["some"]) == (0, ["a"])
            with pytest.raises(Failed, match="CONFLICT slots are still on their way"):
                await plain.call("SHARD.PLACE", version + 1, 0, "0-16383")
            assert await plain.call("SHARD.FORCE", source) == {"broken": 1, "sent_on": 1}
        await until(lambda: not hold.safe_for())
        again = await waiting
        assert again is not None
        assert again.fence > hold.fence
        await until(lambda: is_settled(server, version))
        assert holder(server, "a") == [(source + 1) % SHARDS]
        await again.release()


async def test_a_try_of_a_name_on_its_way_is_asked_again() -> None:
    """It is acquired as soon as the slot is open; until then it is not said to be taken."""
    async with Server(Config(port=0, shards=SHARDS)) as server, sharded_client(server) as client:
        source = map_of(server).shard_of_name("{a}1")
        async with client.lock("{a}1"):
            version = await move(server, ("a",), (source + 1) % SHARDS)
            trying = asyncio.create_task(client.lock("{a}2", timeout=0).acquire())
            await until(lambda: server.hosts[(source + 1) % SHARDS].node.replica.machine.state.arriving)
            assert not trying.done()
        granted = await trying
        assert granted is not None
        await granted.release()
        await until(lambda: is_settled(server, version))


async def test_a_client_with_an_old_map_explains_and_breaks_where_the_name_is_now() -> None:
    """Who has not heard of a move reads the newest map when told that a name is elsewhere, whatever it asked."""
    async with Server(Config(port=0, shards=SHARDS)) as server, sharded_client(server) as client:
        home = map_of(server).shard_of_name("a")
        for to in ((home + 1) % SHARDS, (home + 2) % SHARDS):
            version = await move(server, ("a",), to)
            await until(lambda version=version: is_settled(server, version))  # type: ignore[misc]
            hold = await client.lock("a").acquire()
            async with sharded_client(server) as late:
                assert [each.fence for each in (await late.explain("a")).holders] == [hold.fence]
            async with sharded_client(server) as late:
                assert await late.break_hold("a") > hold.fence


def names_in(shard: int) -> Iterator[str]:
    """Names of a shard, as long as nothing has moved; each has a slot of its own."""
    return (name for name in map(str, count()) if even_map(SHARDS).shard_of_name(name) == shard)


@pytest.mark.guarantee("G9")
async def test_clients_that_go_by_different_maps_do_not_wait_for_one_another() -> None:
    """Who has some names of several shards in hand, in an order that a move has changed, begins anew."""
    first, last, to = next(names_in(0)), next(names_in(1)), SHARDS - 1
    async with Server(Config(port=0, shards=SHARDS)) as server:
        states = [host.node.replica.machine.state for host in server.hosts]
        async with sharded_client(server) as old, sharded_client(server) as new:

            async def take(client: aio.Client) -> None:
                async with client.multi([first, last], across_shards=True):
                    pass

            async with old.lock(first):
                by_old = asyncio.create_task(take(old))
                await until(lambda: first in states[0].queues)
                version = await move(server, (first,), to)
                # Told that the name is elsewhere, it reads the new map, by which the other one comes first.
                await new.explain(first)
                by_new = asyncio.create_task(take(new))
                await until(lambda: holder(server, last) == [1] and first in states[to].queues)
            async with asyncio.timeout(60):
                await asyncio.gather(by_old, by_new)
        await until(lambda: is_settled(server, version))
        await until(lambda: not any(state.held for state in states))


async def test_names_that_a_move_has_parted_are_taken_together() -> None:
    """Who said `across_shards` and knows them as names of one shard takes them in two, by either client."""
    stays, goes = islice(names_in(0), 2)
    async with Server(Config(port=0, shards=SHARDS)) as server:
        url = f"fencehold://127.0.0.1:{server.port}"

        def take() -> dict[str, int]:
            with fencehold.connect(url) as client, client.multi([stays, goes], across_shards=True) as hold:
                return hold.fences

        async with sharded_client(server) as client:
            version = await move(server, (goes,), 1)
            await until(lambda: is_settled(server, version))
            async with client.multi([stays, goes], across_shards=True) as hold:
                assert [holder(server, name) for name in (stays, goes)] == [[0], [1]]
                blocking = asyncio.create_task(asyncio.to_thread(take))
                await until(lambda: stays in server.hosts[0].node.replica.machine.state.queues)
                fences = hold.fences
            after = await blocking
        assert all(after[name] > fences[name] for name in (stays, goes))


async def test_both_tiers_move() -> None:
    """A claim is asked for where its name goes, too."""
    async with Server(Config(port=0, shards=SHARDS)) as server, sharded_client(server) as client:
        source = map_of(server).shard_of_name("a")
        async with client.lock("a", tier=fencehold.EFFICIENCY):
            version = await move(server, ("a",), (source + 1) % SHARDS)
            await until(lambda: is_settled(server, version))
            async with client.lock("a"), client.lock("{a}2", tier=fencehold.EFFICIENCY, timeout=60):
                pass


@pytest.mark.guarantee("G1")
async def test_leaders_finish_a_move_whichever_of_them_dies() -> None:
    """Slots go on moving when the nodes that lead source or target stop in the middle of it, and come back."""
    async with sharded(SHARDS, "a", "b", "c") as cluster:
        await until(lambda: set(cluster.led().values()) <= {1, 2} and sum(cluster.led().values()) == SHARDS)
        fences = [await fence(cluster.url, "a")]
        for round_ in range(4):
            name = sorted(cluster.servers)[round_ % 3]
            version = await next_map(cluster, "a")
            await cluster.stop(name)
            await cluster.start(name)
            await until(partial(all_settled, cluster, version))
            fences.append(await fence(cluster.url, "a"))
        assert fences == sorted(set(fences))


class Paced(MemoryJournal):
    """A journal that keeps what it was told of its pace."""

    def __init__(self, store: MemoryStore, *, faults: Faults) -> None:
        super().__init__(store, faults=faults)
        self.told: list[bool] = []

    def follow_closely(self, wanted: bool) -> None:
        self.told.append(wanted)


def close(server: Server) -> list[int]:
    """The shards whose journals a server follows closely."""
    journals = [host.node.journal for host in server.hosts]
    return [shard for shard, each in enumerate(journals) if isinstance(each, Paced) and each.told[-1:] == [True]]


async def test_journals_are_followed_closely_while_a_slot_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """All for a moment, by every server; then that of the shard it comes from, by who leads the one it goes to."""
    monkeypatch.setattr(slot_mover, "_HURRY_S", 0.3)
    async with sharded(SHARDS, "a", "b", "c", journal=Paced) as cluster, aio.connect(cluster.url) as client:
        servers = cluster.servers
        await until(lambda: set(cluster.led().values()) <= {1, 2} and sum(cluster.led().values()) == SHARDS)
        assert [close(each) for each in servers.values()] == [[], [], []]
        async with client.lock("a", timeout=60):
            source = map_of(servers["a"]).shard_of_name("a")
            to = (source + 1) % SHARDS
            version = await next_map(cluster, "a")
            for server in servers.values():
                await until(lambda server=server: all(host.node.journal.told for host in server.hosts))  # type: ignore[misc]
            led = {name: server.hosts[to].node.leads for name, server in servers.items()}
            await until(lambda: {name: close(server) == [source] for name, server in servers.items()} == led)
            await until(lambda: [close(servers[name]) for name, leads in led.items() if not leads] == [[], []])
        await until(lambda: all_settled(cluster, version))
        await until(lambda: [close(each) for each in servers.values()] == [[], [], []])


async def test_servers_are_told_of_a_map_before_it_is_taken() -> None:
    """By the leader of the first shard, over the links of its standbys: nothing of it is in a journal yet."""
    async with sharded(SHARDS, "a", "b", "c", journal=Paced) as cluster:
        await until(lambda: set(cluster.led().values()) <= {1, 2} and sum(cluster.led().values()) == SHARDS)
        first = next(each for each in cluster.servers.values() if each.hosts[0].node.leads)
        await until(lambda: len(first.hosts[0].node.standbys.all()) == 2)
        assert first.shards is not None
        first.shards.mover.expect()
        for server in cluster.servers.values():
            await until(lambda server=server: close(server) == list(range(SHARDS)))  # type: ignore[misc]


def all_settled(cluster: ShardedCluster, version: int) -> bool:
    return all(is_settled(each, version) for each in cluster.servers.values())


async def fence(url: str, name: str) -> int:
    """Lock a name for a moment."""
    async with aio.connect(url) as client, client.lock(name, timeout=60) as hold:
        return hold.fence


async def next_map(cluster: ShardedCluster, name: str) -> int:
    """Have a name moved to the next shard, by whoever leads the first."""

    def first() -> Server | None:
        return next((server for server in cluster.servers.values() if server.node.leads), None)

    await until(lambda: (leader := first()) is not None and is_settled(leader, map_of(leader).version))
    leader = first()
    assert leader is not None
    return await move(leader, (name,), (map_of(leader).shard_of_name(name) + 1) % SHARDS)


async def test_a_service_that_starts_again_knows_its_map(tmp_path: object) -> None:
    """The map, what has moved and what is on its way are in the journals, and in snapshots."""
    config = Config(data=str(tmp_path), port=0, shards=SHARDS)
    async with Server(config) as server:
        source = map_of(server).shard_of_name("a")
        async with sharded_client(server) as client, client.lock("a") as hold:
            fence_before = hold.fence
        version = await move(server, ("a",), (source + 1) % SHARDS)
        await until(lambda: is_settled(server, version))
    async with Server(config) as server:
        await until(lambda: is_settled(server, version))
        async with sharded_client(server) as client, client.lock("a") as hold:
            assert hold.fence > fence_before
            assert holder(server, "a") == [(source + 1) % SHARDS]
            async with client.lock("a", tier=fencehold.EFFICIENCY):
                pass


async def saved(server: Server) -> None:
    """Have every shard saved as it is."""
    for host in server.hosts:
        machine = host.node.replica.machine
        await until(lambda node=host.node, machine=machine: node.position == machine.position)  # type: ignore[misc]
        await host.node.journal.save(Position(machine.position), machine.snapshot())


@pytest.mark.parametrize("is_on_its_way", [False, True])
async def test_a_service_that_starts_from_snapshots_knows_its_map(tmp_path: Path, is_on_its_way: bool) -> None:
    """Nothing after a snapshot says that slots have moved, or are to: it is seen all the same."""
    config = Config(data=str(tmp_path), port=0, shards=SHARDS)
    async with Server(config) as server, sharded_client(server) as client:
        source = map_of(server).shard_of_name("a")
        hold = await client.lock("a").acquire()
        assert hold is not None
        if not is_on_its_way:
            await hold.release()
        version = await move(server, ("a",), (source + 1) % SHARDS)
        await until(lambda: all(each.placed.version == version for each in standings(server)))
        await until(lambda: is_on_its_way or is_settled(server, version))
        await saved(server)
    async with Server(config) as server:
        assert map_of(server).version == version
        await until(lambda: is_settled(server, version))
        position = server.node.position
        async with sharded_client(server) as client, client.lock("a", timeout=60):
            assert holder(server, "a") == [(source + 1) % SHARDS]
        assert server.node.position - position < 100, "what is known of the map is not told again and again"


def standings(server: Server) -> list[Standing]:
    assert server.shards is not None
    return server.shards.mover.standings


async def moved_on(server: Server, name: str) -> None:
    """Have a name moved to the next shard, and wait until it is there."""
    version = await move(server, (name,), (map_of(server).shard_of_name(name) + 1) % SHARDS)
    await until(lambda: is_settled(server, version))


async def test_a_watch_goes_on_where_a_name_has_moved_to() -> None:
    """Events of a name come from its old home up to the move, and from its new one after it, each once.

    Those of one shard come in order; between two there is none, as each has a connection of its own.
    """
    async with (
        Server(Config(port=0, shards=SHARDS)) as server,
        sharded_client(server) as client,
        client.watch("a") as watch,
    ):
        fences = []
        for _ in range(SHARDS + 1):
            async with client.lock("a", timeout=60) as hold:
                fences.append(hold.fence)
            await moved_on(server, "a")
        seen = [await anext(watch) for _ in range(2 * len(fences))]
        assert [(each.kind, each.fence) for each in sorted(seen, key=attrgetter("fence"))] == [
            (kind, fence) for fence in fences for kind in ("acquired", "released")
        ]
        assert len({each.shard for each in seen}) == SHARDS
        # Nothing is told late, and so twice.
        async with client.lock("a", timeout=60) as hold:
            assert (await anext(watch)).fence == hold.fence


@pytest.mark.parametrize("knows", [True, False])
async def test_who_observes_an_election_sees_who_leads_after_its_name_has_moved(knows: bool) -> None:
    """Whether it heard of the name moving, or began with an old map; also if the slot is held while it moves."""
    async with (
        Server(Config(port=0, shards=SHARDS)) as server,
        sharded_client(server) as client,
        sharded_client(server) as other,
    ):
        if not knows:
            await moved_on(server, "a")
        async with contextlib.aclosing(client.election("a").observe()) as leaders:
            assert await anext(leaders) is None
            for round_ in range(SHARDS + 1):
                term = await other.election("a").campaign()
                assert term is not None
                seen = await anext(leaders)
                assert seen is not None
                assert seen.fence == term.fence
                if round_ % 2:
                    await term.release()
                    assert await anext(leaders) is None
                    await moved_on(server, "a")
                else:
                    version = await move(server, ("a",), (map_of(server).shard_of_name("a") + 1) % SHARDS)
                    await term.release()
                    assert await anext(leaders) is None
                    await until(partial(is_settled, server, version))


async def test_who_observes_an_election_hears_of_a_move_while_it_was_cut_off() -> None:
    """What was pushed meanwhile is lost: it looks where the name is when it is back."""
    async with (
        Server(Config(port=0, shards=SHARDS)) as server,
        sharded_client(server) as client,
        sharded_client(server) as other,
        contextlib.aclosing(client.election("a").observe()) as leaders,
    ):
        assert await anext(leaders) is None
        old = map_of(server).shard_of_name("a")
        watching = [each for each in server.door.connections if each.watching is not None]
        for connection in watching:
            # Nothing that is pushed reaches the client from here on.
            connection.ending = True
        await moved_on(server, "a")
        for connection in watching:
            connection.let_go()
        term = await other.election("a").campaign()
        assert term is not None
        seen = await anext(leaders)
        assert seen is not None
        assert seen.fence == term.fence
        assert holder(server, "a") == [(old + 1) % SHARDS]
        await term.release()


async def test_a_watch_follows_a_name_that_moves_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map that led to a shard was read before that shard would have told of the next one."""
    async with Server(Config(port=0, shards=SHARDS)) as server, sharded_client(server) as client:
        old = map_of(server).shard_of_name("a")
        channel = channel_of(client._carrier_of(None))
        assert channel is not None
        async with Watch(channel, "a", is_one=True) as watch:
            asked = ShardChannels.newest_home_of

            async def late(shards: ShardChannels, name: str) -> Channel:
                home = await asked(shards, name)
                if home.watches.shard != old:
                    monkeypatch.undo()
                    for connection in [each for each in server.door.connections if each.watching is not None]:
                        # Nothing that is pushed reaches the client from here on.
                        connection.ending = True
                    await until(lambda: is_settled(server, shards.map.version))
                    await moved_on(server, "a")
                return home

            monkeypatch.setattr(ShardChannels, "newest_home_of", late)
            await moved_on(server, "a")
            gaps = [await anext(watch) for _ in range(2)]
            assert [(each.kind, each.shard) for each in gaps] == [
                ("gap", (old + step) % SHARDS) for step in (1, 2)
            ]


async def test_who_may_not_be_told_where_a_name_has_moved_to_is_told_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hear of nothing any more, and take that for peace."""
    async with (
        Server(Config(port=0, shards=SHARDS)) as server,
        sharded_client(server) as client,
        contextlib.aclosing(client.election("a").observe()) as leaders,
    ):
        assert await anext(leaders) is None

        async def refused(watches: Watches, watch: Watch) -> Place:
            raise LimitExceeded("a connection watches at most 128 prefixes")

        monkeypatch.setattr(Watches, "_begun", refused)
        await moved_on(server, "a")
        with pytest.raises(LimitExceeded):
            await anext(leaders)


class Rested(Exception):
    """So many seconds."""


async def test_a_look_that_took_long_is_followed_by_a_long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the node: that of the event loop may stand still meanwhile, as uvloop's does."""
    clock = HandClock()

    async def rest(seconds: float) -> None:
        raise Rested(seconds)

    async with Server(Config(port=0, shards=SHARDS)) as server:
        assert server.shards is not None
        for took_ms, pause_s in ((0, 0.002), (20, 0.1)):
            mover = SlotMover(server.shards.mover._places, map_of(server), lambda _: None)
            with monkeypatch.context() as patch:
                patch.setattr(mover._places[0].node, "clock", clock)
                patch.setattr(mover, "_look", partial(clock.advance, took_ms))
                patch.setattr(asyncio, "sleep", rest)
                mover._wanted.set()
                with pytest.raises(Rested) as rested:
                    await mover.run()
            assert rested.value.args == (pytest.approx(pause_s),)
