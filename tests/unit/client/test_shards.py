"""Both clients with a service of several shards: they look as before, and go to the shard of each name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import fencehold
from fencehold import aio
from fencehold.client.aio import watch as watch_module
from fencehold.client.aio.channel import Channel
from fencehold.client.aio.watch import Watch
from fencehold.drivers.resp.wire import Arriving
from fencehold.errors import HoldLost, Unavailable, UsageError
from fencehold.locks.places import read_places
from fencehold.locks.views import Event
from fencehold.placement.map import even_map
from fencehold.placement.slots import slot_of
from fencehold.server import Config, Server
from tests.unit.node.doubles import until
from tests.unit.node.sharded import ShardedCluster, sharded

SHARDS = 4
NAMES = ("a", "b", "c", "d")
FAILURES = 4
"""More than open a circuit."""


def home(name: str) -> int:
    return even_map(SHARDS).shard_of(slot_of(name))


def url_of(server: Server) -> str:
    return f"fencehold://127.0.0.1:{server.port}"


@pytest.mark.parametrize("lazy", [False, True])
async def test_names_go_to_their_shards(lazy: bool) -> None:
    """Locking, asking, extending, breaking and releasing go where the name is at home, connected lazily or not."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        client = aio.connect(url_of(server), lazy=True) if lazy else await aio.connect(url_of(server))
        async with client:
            holds = [await client.lock(name, timeout=30).acquire() for name in NAMES]
            for name, hold in zip(NAMES, holds, strict=True):
                assert hold is not None
                (holder,) = (await client.explain(name)).holders
                state = server.hosts[home(name)].node.replica.machine.state
                assert state.held[name].fence == hold.fence == holder.fence
                await hold.extend(60)
            assert holds[0] is not None
            assert await client.break_hold("a") > holds[0].fence
            await until(lambda: holds[0] is not None and not holds[0].safe_for())
            for hold in holds[1:]:
                assert hold is not None
                await hold.release()
        await until(lambda: not any(host.node.replica.machine.state.sessions for host in server.hosts))


async def test_a_session_is_opened_in_a_shard_when_it_is_needed() -> None:
    """A client that uses names of one shard has no sessions elsewhere, but for the one it connected with."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        async with aio.connect(url_of(server)) as client, client.lock("a"):
            opened = [len(host.node.replica.machine.state.sessions) for host in server.hosts]
            assert opened == [int(shard in (0, home("a"))) for shard in range(SHARDS)]


async def test_an_acquire_that_crosses_a_close_leaves_no_session() -> None:
    """A task that has not seen the close opens no session in an unused shard: nobody would end it."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        client = await aio.connect(url_of(server))
        used, other = [name for name in NAMES if home(name)][:2]
        async with client.lock(used):
            pass
        late = client.lock(other)
        closing = asyncio.create_task(client.close())
        # It runs when the close has begun, and waits for the sessions of the other shards to end.
        acquiring = asyncio.create_task(late.acquire())
        with pytest.raises(UsageError, match="the client is closed"):
            await acquiring
        await closing
        await until(lambda: not any(host.node.replica.machine.state.sessions for host in server.hosts))


async def test_a_shard_that_is_away_is_nobody_elses_concern() -> None:
    """Its own names are `Unavailable`; the others are locked as before, by who is connected and who comes then."""
    async with sharded(SHARDS, "a") as cluster:
        await until(lambda: cluster.led() == {"a": SHARDS})
        first = next(name for name in NAMES if home(name) == 0)
        async with aio.connect(cluster.url, connect_timeout=2) as client:
            for name in NAMES:
                async with client.lock(name):
                    pass
            async with away(cluster, "a"):
                await _only(client, "a")
        async with away(cluster, first), aio.connect(cluster.url, connect_timeout=2) as newcomer:
            await _only(newcomer, first)


@asynccontextmanager
async def away(cluster: ShardedCluster, name: str) -> AsyncIterator[None]:
    """The journal of the shard of a name is out of reach."""
    node, faults = cluster.servers["a"].hosts[home(name)].node, cluster.faults[home(name)]
    faults.is_away = True
    await until(lambda: not node.leads)
    yield
    faults.is_away = False
    await until(lambda: node.leads)


async def _only(client: aio.Client, gone: str) -> None:
    """See that all names but one can be locked."""
    with pytest.raises(Unavailable):
        await client.lock(gone, timeout=1).acquire()
    for name in NAMES:
        if name != gone:
            async with client.lock(name, timeout=30):
                pass


async def test_one_shard_that_is_away_opens_no_circuit() -> None:
    """A client with several sources has circuit breakers; that of a service is not opened by one of its shards."""
    async with sharded(SHARDS, "a") as cluster:
        await until(lambda: cluster.led() == {"a": SHARDS})
        async with aio.connect(correctness=cluster.url, efficiency="memory://", connect_timeout=0.5) as client:
            for name in NAMES:
                async with client.lock(name, timeout=30):
                    pass
            async with away(cluster, "a"):
                for _ in range(FAILURES):
                    with pytest.raises(Unavailable, match="cannot reach"):
                        await client.lock("a", timeout=1).acquire()
                async with client.lock("c", timeout=30):
                    pass


async def test_several_names_are_of_one_shard() -> None:
    """Others are refused before anything is asked, with the hint that helps."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        with pytest.raises(UsageError, match=r"common \{tag\}"):
            await client.multi(["a", "b"]).acquire()
        async with client.multi(["{7}.stock", "{7}.payment"]) as hold:
            assert hold.fence == 1


async def test_names_of_several_shards_are_taken_all_or_nothing() -> None:
    """Asked for by name, they are held together, with a fence for each; what cannot be had whole holds nothing."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        states = [host.node.replica.machine.state for host in server.hosts]
        async with client.multi([*NAMES, "{a}2"], across_shards=True, timeout=30) as hold:
            assert hold.fences == {name: states[home(name)].held[name].fence for name in (*NAMES, "{a}2")}
            with pytest.raises(UsageError, match=r"hold\.fences\[name\]"):
                assert hold.fence
            await hold.extend(60)
            hold.check()
            assert "fence=1" in repr(hold)
        await until(lambda: not any(state.held for state in states))
        async with aio.connect(url_of(server)) as other, other.lock(max(NAMES, key=home)):
            assert await client.multi(NAMES, across_shards=True, timeout=0.1).acquire() is None
            await until(lambda: sum(len(state.held) for state in states) == 1)
        async with client.multi(["{x}1", "{x}2"], across_shards=True) as hold:
            assert hold.fence


async def test_a_part_that_is_granted_at_the_deadline_leaves_no_time_for_names_that_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who waits a second for names of several shards is told after a second, not as late as a try for one name."""
    in_order = sorted(NAMES, key=home)
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        states = [host.node.replica.machine.state for host in server.hosts]
        real, late_s = Channel.acquire_here, 0.0
        clock = client._channel.clock
        client._channel.clock = lambda: clock() + late_s

        async def acquire_here(channel: Channel, terms: Any, who: Any, owner: Any) -> Any:
            nonlocal late_s
            if in_order[1] in terms.names:
                late_s += 0.1
                raise Arriving("its slot is on its way")
            grant = await real(channel, terms, who, owner)
            late_s = 1.0
            return grant

        monkeypatch.setattr(Channel, "acquire_here", acquire_here)
        assert await client.multi(NAMES, across_shards=True, timeout=1).acquire() is None
        assert late_s < 2
        await until(lambda: not any(state.held for state in states))


async def test_to_lose_one_shard_of_several_is_to_lose_all() -> None:
    """The hold is lost, and what else it held is free for others."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        hold = await client.multi(NAMES, across_shards=True).acquire()
        await client.break_hold("b")
        assert "'b'" in await hold.lost
        assert hold.safe_for() == 0
        with pytest.raises(HoldLost, match="'a', 'b', 'c', 'd' are lost"):
            await hold.release()
        for name in NAMES:
            async with client.lock(name, timeout=30):
                pass


async def test_who_is_cancelled_between_two_shards_holds_nothing() -> None:
    """Whatever ends the waiting, nothing stays behind."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        states = [host.node.replica.machine.state for host in server.hosts]
        last = max(NAMES, key=home)
        async with aio.connect(url_of(server)) as other, other.lock(last):
            waiting = asyncio.create_task(client.multi(NAMES, across_shards=True).acquire())
            await until(lambda: len(states[home(last)].waiters) == 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await until(lambda: sum(len(state.held) for state in states) == 1)


async def test_a_watch_is_of_all_shards() -> None:
    """Events of names with a prefix come from wherever they are at home."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        async with client.watch() as watch:
            for name in NAMES:
                async with client.lock(name):
                    pass
            seen = [await anext(watch) for _ in range(2 * len(NAMES))]
            assert all(event.shard == home(event.names[0]) for event in seen)
        with pytest.raises(UsageError, match="one shard"):
            await client.watch(after=(1, 0)).__aenter__()
        assert sorted((event.names[0], event.kind) for event in seen) == sorted(
            (name, kind) for name in NAMES for kind in ("acquired", "released")
        )


async def locked(client: aio.Client, names: tuple[str, ...]) -> None:
    """Lock each name for a moment."""
    for name in names:
        async with client.lock(name):
            pass


async def several(watch: Watch, count: int) -> list[Event]:
    """The next events of names. Sessions begin and end besides."""
    seen: list[Event] = []
    while len(seen) < count:
        event = await anext(watch)
        seen += [event] if event.names else []
    return seen


def told(event: Event) -> tuple[int, int, int, str]:
    return event.shard, event.position, event.index, event.kind


async def test_a_watch_of_all_shards_goes_on_after_a_place_in_each() -> None:
    """After those events that were looked at, not after those that had come: none is told twice or left out."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        async with client.watch() as whole, client.watch() as first:
            with pytest.raises(UsageError, match="begun"):
                _ = client.watch().places
            await locked(client, NAMES)
            seen = await several(first, 3)
            places = first.places
        await locked(client, NAMES)
        assert places.count(",") == SHARDS - 1
        async with aio.connect(url_of(server)) as other, other.watch(after=places) as again:
            seen += await several(again, 4 * len(NAMES) - 3)
            await locked(client, NAMES[:1])
            seen += await several(again, 2)
            places = again.places
            assert read_places(places, SHARDS)[home(NAMES[0])] == seen[-1].place
        async with client.watch(after=places) as last:
            await locked(client, NAMES[1:2])
            seen += await several(last, 2)
        assert whole.places.count(",") == SHARDS - 1
        assert len(set(map(told, seen))) == len(seen) == 4 * len(NAMES) + 4
        kinds = sorted((event.names[0], event.kind) for event in seen)
        assert kinds == sorted(
            (name, kind) for name in (*NAMES, *NAMES, *NAMES[:2]) for kind in ("acquired", "released")
        )


async def test_places_of_another_number_of_shards_are_refused() -> None:
    """And so is what is no place; a watch that was refused ends, and does not wait for ever."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        for said, why in (("17-0", "this service has 4"), ("x,,,", "not a place"), ("1,2", "2 shards")):
            watch = client.watch(after=said)
            with pytest.raises(UsageError, match=why):
                await anext(watch)
            with pytest.raises(StopAsyncIteration):
                await anext(watch)
        with pytest.raises(UsageError, match="after= is the places"):
            client.watch(after=(1, 2, 3))  # type: ignore[arg-type]
    async with Server(Config(port=0)) as server, aio.connect(url_of(server)) as client:
        async with client.watch() as watch:
            await locked(client, NAMES)
            seen = await several(watch, 2)
            assert watch.places == f"{seen[-1].position}-{seen[-1].index}"
        async with client.watch(after=watch.places) as again:
            assert [(await anext(again)).names[0] for _ in range(2)] == ["b", "b"]


async def test_a_blocking_watch_goes_on_after_a_place_in_each_shard() -> None:
    """As the async one does."""

    def seen(url: str) -> list[Event]:
        with fencehold.connect(url) as client:
            with client.watch() as watch:
                for name in NAMES:
                    with client.lock(name):
                        pass
                first = [next(watch) for _ in range(3)]
                places = watch.places
            with client.watch(after=places) as again:
                return first + [next(again) for _ in range(2 * len(NAMES) - 3)]

    async with Server(Config(port=0, shards=SHARDS)) as server:
        assert len(set(map(told, await asyncio.to_thread(seen, url_of(server))))) == 2 * len(NAMES)


async def test_what_a_watch_of_several_shards_dropped_is_a_gap_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of two shards are not those of one gap; and who goes on after the gaps misses nothing else."""
    monkeypatch.setattr(watch_module, "EVENTS_MAX", 3 * len(NAMES))
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        async with client.watch() as watch, client.watch() as all_of_it:
            for _ in range(2):
                await locked(client, NAMES)
                seen = await several(all_of_it, 2 * len(NAMES))
            gaps = [await anext(watch) for _ in {home(name) for name in NAMES}]
            assert [event.kind for event in gaps] == ["gap"] * len(gaps)
            assert sorted(event.shard for event in gaps) == sorted({home(name) for name in NAMES})
            rest = await several(watch, len(NAMES))
            assert list(map(told, rest)) == list(map(told, seen))[len(NAMES) :]
            assert read_places(watch.places, SHARDS) == read_places(all_of_it.places, SHARDS)


async def test_an_election_hears_of_its_own_shard() -> None:
    """Who waits to lead is woken when the one before it steps back, whatever the shard."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        async with aio.connect(url_of(server)) as one, aio.connect(url_of(server)) as other:
            for name in NAMES:
                async with one.lock(name, timeout=30):
                    waiting = asyncio.create_task(other.lock(name, timeout=30).acquire())
                    state = server.hosts[home(name)].node.replica.machine.state
                    await until(lambda state=state: len(state.waiters) == 1)  # type: ignore[misc]
                hold = await waiting
                assert hold is not None
                await hold.release()


@pytest.mark.parametrize("lazy", [False, True])
async def test_threads_go_to_the_shards_of_their_names(lazy: bool) -> None:
    """The blocking client does the same."""

    def locked(url: str) -> list[int]:
        with fencehold.connect(url, lazy=lazy) as client:
            fences = []
            for name in NAMES:
                with client.lock(name, timeout=30) as hold:
                    fences.append(hold.fence)
                    hold.extend(30)
                    assert [each.fence for each in client.explain(name).holders] == [hold.fence]
            with client.multi(NAMES, across_shards=True, timeout=30) as whole:
                assert whole.fences == dict.fromkeys(NAMES, 2)
            return fences

    async with Server(Config(port=0, shards=SHARDS)) as server:
        assert await asyncio.to_thread(locked, url_of(server)) == [1] * SHARDS


@pytest.mark.parametrize("shards", [1, SHARDS])
async def test_a_watch_that_goes_on_misses_nothing_beside_one_that_is_told_what_happens(
    shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes for the other one, before the service knows of this one, is no news of this one's past."""
    async with Server(Config(port=0, shards=shards)) as server, aio.connect(url_of(server)) as client:
        async with client.watch("") as beside:
            places = beside.places
            await locked(client, NAMES)
            wanted = await several(beside, 2 * len(NAMES))
            asked = Channel.read

            async def late(channel: Channel, words: bytes) -> Any:
                if b"FROM" in words:
                    monkeypatch.undo()
                    await locked(client, NAMES)
                    wanted.extend(await several(beside, 2 * len(NAMES)))
                return await asked(channel, words)

            monkeypatch.setattr(Channel, "read", late)
            async with client.watch("", after=places) as again:
                seen = await several(again, len(wanted))
            assert sorted(map(told, seen)) == sorted(map(told, wanted))
            for shard in range(shards):
                own = [event.place for event in seen if event.shard == shard]
                assert own == sorted(set(own))


async def test_two_watches_that_go_on_at_once_each_miss_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told again for one, after its place, is not the past of the other."""
    async with Server(Config(port=0)) as server, aio.connect(url_of(server)) as client:
        async with client.watch("") as beside:
            places = [beside.places]
            wanted: list[list[Event]] = []
            for _ in range(3):
                await locked(client, NAMES)
                wanted.append(await several(beside, 2 * len(NAMES)))
                places.append(beside.places)
        again = [client.watch("", after=after) for after in places[2::-1]]
        asked = Channel.read

        async def late(channel: Channel, words: bytes) -> Any:
            monkeypatch.undo()
            reply = await asked(channel, words)
            await until(lambda: len(again[0]._events) == 2 * len(NAMES))
            return reply

        monkeypatch.setattr(Channel, "read", late)
        await asyncio.gather(*(watch.__aenter__() for watch in again))
        for count, watch in enumerate(again, 1):
            seen = await several(watch, 2 * len(NAMES) * count)
            assert list(map(told, seen)) == [told(event) for each in wanted[-count:] for event in each]
            await watch.close()


async def test_a_watch_that_was_given_up_while_it_began_begins_in_all_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who waits for an event only so long gives up the beginning, too; the next time it is told by every shard."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        await locked(client, NAMES)
        watch = client.watch()
        beginning = asyncio.create_task(anext(watch))
        asked = Channel.read

        async def given_up(channel: Channel, words: bytes) -> Any:
            if b"LOCK.WATCH" in words and channel.watches.shard == SHARDS // 2:
                monkeypatch.undo()
                beginning.cancel()
            return await asked(channel, words)

        monkeypatch.setattr(Channel, "read", given_up)
        with pytest.raises(asyncio.CancelledError):
            await beginning
        with pytest.raises(UsageError, match="begun"):
            _ = watch.places
        async with watch:
            await locked(client, NAMES)
            seen = await several(watch, 2 * len(NAMES))
        kinds = sorted((event.names[0], event.kind) for event in seen)
        assert kinds == sorted((name, kind) for name in NAMES for kind in ("acquired", "released"))


async def test_a_watch_that_could_not_begin_leaves_nothing_and_may_begin_again() -> None:
    """A shard of its own is away: who watches is told so, and is told everything when it is back."""
    async with sharded(SHARDS, "a") as cluster:
        await until(lambda: cluster.led() == {"a": SHARDS})
        async with aio.connect(cluster.url, connect_timeout=2) as client:
            await locked(client, NAMES)
            watch = client.watch()
            async with away(cluster, next(name for name in NAMES if home(name) == min(map(home, NAMES)))):
                with pytest.raises(Unavailable):
                    await anext(watch)
            async with watch:
                await locked(client, NAMES)
                seen = await several(watch, 2 * len(NAMES))
        assert len(set(map(told, seen))) == 2 * len(NAMES)


async def test_who_leaves_a_watch_is_told_by_no_shard_any_more() -> None:
    """Also if one of them is away, and cannot be told that."""
    async with sharded(SHARDS, "a") as cluster:
        await until(lambda: cluster.led() == {"a": SHARDS})
        async with aio.connect(cluster.url, connect_timeout=2) as client:
            await locked(client, NAMES)
            watch = client.watch()
            await watch.__aenter__()
            watches = list(watch._watches)
            async with away(cluster, next(name for name in NAMES if home(name) == min(map(home, NAMES)))):
                with pytest.raises(Unavailable):
                    await watch.close()
            assert [each._watches for each in watches] == [[]] * SHARDS


async def test_a_watch_that_is_closed_while_it_begins_is_told_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """By none of the shards in which it had begun, or was about to; and its iteration is at its end."""
    async with Server(Config(port=0, shards=SHARDS)) as server, aio.connect(url_of(server)) as client:
        watch = client.watch()
        asked = Channel.read
        used: list[Channel] = []

        async def closed(channel: Channel, words: bytes) -> Any:
            used.append(channel)
            if b"LOCK.WATCH" in words and channel.watches.shard == SHARDS // 2:
                await watch.close()
            return await asked(channel, words)

        monkeypatch.setattr(Channel, "read", closed)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)
        assert {channel.watches.shard for channel in used} == set(range(SHARDS // 2 + 1))
        assert not any(channel.watches._watches for channel in used)
