"""Watching: events of the names asked for, in order, with gaps told, and never at the cost of others."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.core.events import Event, Kind
from fencehold.doors.resp import replies
from fencehold.doors.resp.bounds import Bounds
from fencehold.doors.resp.watch_commands import shortest
from fencehold.node.ring import Ring
from tests.unit.doors.box import Box, Client, Failed, as_map, serving
from tests.unit.node.doubles import NOON, until


async def event(client: Client) -> dict[str, Any]:
    kind, told = await client.push()
    assert kind == "event"
    return dict(told)


async def kinds(client: Client, count: int) -> list[str]:
    return [(await event(client))["kind"] for _ in range(count)]


async def test_a_place_that_has_not_happened_yet_is_refused() -> None:
    """Who is of another journal is told so, and where this one is; it would wait without a word for very long."""
    async with serving() as box:
        watcher = await box.client(3)
        newest = box.server.node.position
        with pytest.raises(Failed, match=f"USAGE position {newest + 1_000} has not happened yet: the newest is "):
            await watcher.call("LOCK.WATCH", "", "FROM", newest + 1_000)
        begun = as_map(await watcher.call("LOCK.WATCH", "", "FROM", box.server.node.position))
        assert begun["position"] >= newest


async def test_what_happens_to_watched_names_is_pushed() -> None:
    """Events come in order, only of names with the prefix, and stop when it is no longer watched."""
    async with serving() as box:
        watcher, client = await box.client(3), await box.client(3, session=50_000)
        told = as_map(await watcher.call("LOCK.WATCH", "job:"))["position"]
        # It may have moved on since, by a tick.
        assert 0 < told <= box.server.node.position
        await client.call("LOCK.ACQUIRE", "other")
        await client.call("LOCK.ACQUIRE", "job:1", "OWNER", "o")
        told = await event(watcher)
        assert 0 < told.pop("position") <= box.server.node.position
        assert told == {
            "kind": "acquired",
            "index": 1,
            "shard": 0,
            "at": 0,
            "session": 1,
            "owner": "o",
            "names": ["job:1"],
            "fence": 2,
            "detail": "",
            "unix_ms": NOON,
            "session_meta": "",
            "by": "",
            "principal": "",
            "mode": "X",
            "meta": "",
        }
        await client.call("LOCK.ACQUIRE", "job:1", "WAIT", 10, "REQUEST", 1, "ASYNC")
        await box.pass_time(10)
        await client.call("LOCK.EXTEND", "job:1", 2, 500)
        await box.pass_time(500)
        await client.call("LOCK.ACQUIRE", "job:2")
        await client.call("LOCK.BREAK", "job:2")
        await client.call("LOCK.ACQUIRE", "job:3")
        await client.call("LOCK.RELEASE", "job:3", 5)
        assert await kinds(watcher, 9) == [
            "queued",
            "timed_out",
            "extended",
            "expired",
            "acquired",
            "fence_raised",
            "broken",
            "acquired",
            "released",
        ]
        assert await watcher.call("LOCK.UNWATCH", "job:") == "OK"
        await client.call("LOCK.ACQUIRE", "job:4")
        await watcher.no_push()
        await watcher.call("LOCK.WATCH", "")
        await client.call("SESSION.CLOSE")
        assert (await event(watcher))["kind"] == "session_ended"


async def test_who_is_gone_is_still_named() -> None:
    """Events that are told late name the client, though its session has ended, and say who broke what when."""
    async with serving() as box:
        client = await box.client(3)
        await client.call("SESSION.OPEN", "TTL", 50_000, "META", '{"client":"billing"}')
        await client.call("LOCK.ACQUIRE", "a")
        await box.pass_time(700)
        await client.call("LOCK.BREAK", "a", "BY", "alice")
        await client.call("SESSION.CLOSE")
        assert not box.state.sessions
        watcher = await box.client(3)
        await watcher.call("LOCK.WATCH", "", "FROM", 0)
        told = [await event(watcher) for _ in range(5)]
        [raised] = [told.pop(2)]
        assert (raised["kind"], raised["by"], raised["fence"]) == ("fence_raised", "alice", 2)
        assert [one["kind"] for one in told] == ["opened", "acquired", "broken", "session_ended"]
        assert {one["session_meta"] for one in told} == {'{"client":"billing"}'}
        assert [one["by"] for one in told] == ["", "", "alice", ""]
        assert [one["unix_ms"] - NOON for one in told] == [0, 0, 700, 700]


async def test_watching_from_a_position_tells_what_was_missed() -> None:
    """With FROM, all that happened after that position comes first."""
    async with serving() as box:
        client = await box.client(3, session=50_000)
        for number in range(5):
            await client.call("LOCK.ACQUIRE", f"a{number}")
        first = await box.client(3)
        await first.call("LOCK.WATCH", "a", "FROM", 0)
        events = [await event(first) for _ in range(5)]
        assert [told["names"] for told in events] == [[f"a{number}"] for number in range(5)]
        assert "position" in as_map(await first.call("LOCK.WATCH", "b"))
        assert await first.refusal("LOCK.WATCH", "b", "INDEX", 1) == "USAGE"
        second = await box.client(3)
        await second.call("LOCK.WATCH", "a", "FROM", events[2]["position"])
        assert [(await event(second))["names"] for _ in range(2)] == [["a3"], ["a4"]]


async def test_watching_from_the_middle_of_an_entry_tells_its_rest() -> None:
    """With INDEX, what is after that event of the position comes; all of a connection can be told again."""
    async with serving() as box:
        client, first = await box.client(3, session=50_000), await box.client(3)
        await client.call("LOCK.MACQUIRE", 3, "a1", "a2", "a3")
        await client.call("SESSION.CLOSE")
        begun = await first.call("LOCK.WATCH", "a", "FROM", 0)
        assert as_map(begun)["position"] == 0
        told = [await event(first) for _ in range(4)]
        assert len({one["position"] for one in told[1:]}) == 1
        places = [(one["position"], one["index"]) for one in told]
        assert places == sorted(set(places))
        second = await box.client(3)
        await second.call("LOCK.WATCH", "a", "FROM", places[1][0], "INDEX", places[1][1])
        assert [await event(second) for _ in range(2)] == told[2:]
        await second.call("LOCK.WATCH", "b", "FROM", places[2][0], "INDEX", places[2][1])
        assert await second.push() == ["again", *places[2]]
        assert await event(second) == told[3]
        await second.call("LOCK.WATCH", "b", "FROM", box.server.node.position)
        await second.no_push()


async def test_a_watcher_that_comes_too_late_is_told_of_the_gap() -> None:
    """What fell out of the ring is told as one event of kind gap, with the position up to which it is gone."""
    async with serving() as box:
        box.server.node.ring = Ring(things_max=4)
        client, watcher = await box.client(3, session=50_000), await box.client(3)
        for number in range(10):
            await client.call("LOCK.ACQUIRE", f"a{number}")
        await watcher.call("LOCK.WATCH", "", "FROM", 0)
        gap = await event(watcher)
        lost = box.server.node.ring.lost_up_to
        missing = {"from": 1, "from_index": 0, "to": lost}
        assert gap == {"kind": "gap", "position": lost, "index": 0, "shard": 0, **missing}
        events = [await event(watcher) for _ in range(4)]
        assert [told["names"] for told in events] == [["a6"], ["a7"], ["a8"], ["a9"]]
        assert events[0]["position"] > gap["position"]


async def test_watching_needs_pushes_and_has_bounds() -> None:
    """In RESP2 it is a usage error; more prefixes than allowed, or endless ones, are a limit."""
    async with serving(door=Bounds(prefixes_max=3)) as box:
        plain, watcher = await box.client(2), await box.client(3)
        assert await plain.refusal("LOCK.WATCH", "a") == "USAGE"
        assert await plain.call("LOCK.UNWATCH", "a") == "OK"
        for number in range(3):
            assert "position" in as_map(await watcher.call("LOCK.WATCH", number))
        assert await watcher.refusal("LOCK.WATCH", "one more") == "LIMIT"
        assert "position" in as_map(await watcher.call("LOCK.WATCH", 1))
        assert await watcher.refusal("LOCK.WATCH", 5_000 * "x") == "LIMIT"
        assert await watcher.call("LOCK.UNWATCH", 1) == "OK"
        assert "position" in as_map(await watcher.call("LOCK.WATCH", "one more"))


@pytest.mark.slow
async def test_a_watcher_that_reads_slowly_holds_up_nobody() -> None:
    """While it does not read, others go on; when it does, it gets what the ring still has, in order."""
    async with serving(door=Bounds(unsent_bytes_high=1_000)) as box:
        box.server.node.ring = Ring(things_max=200)
        watcher, client = await box.client(3), await box.client(3, session=50_000)
        await watcher.call("LOCK.WATCH", "")
        [connection] = [c for c in box.server.door.connections if c.watching is not None]
        names = [f"{number:02}" + 240 * "x" for number in range(64)]
        fence = 0
        while not connection.is_full:
            fence = (await client.call("LOCK.MACQUIRE", 64, *names))["fence"]
            await client.call("LOCK.MRELEASE", 64, *names, fence)
        position = box.server.node.position
        for _ in range(300):
            fence = (await client.call("LOCK.ACQUIRE", "last"))["fence"]
            await client.call("LOCK.RELEASE", "last", fence)
        assert not connection.closed
        told: dict[str, Any] = {"kind": ""}
        positions = []
        while not (told["kind"] == "released" and told["fence"] == fence):
            told = await event(watcher)
            positions.append(told["position"])
            if told["kind"] == "gap":
                assert told["position"] > position
        assert positions == sorted(positions)


async def test_a_long_past_is_told_in_portions() -> None:
    """A watcher that reads is not taken for one that does not, though more is to be told than may wait unsent."""
    async with serving(door=Bounds(unsent_bytes_high=50_000, unsent_bytes_max=1_000_000)) as box:
        client, watcher = await box.client(3, session=50_000), await box.client(3)
        names = [f"{number:03}" + 240 * "x" for number in range(64)]
        for _ in range(200):
            fence = (await client.call("LOCK.MACQUIRE", len(names), *names))["fence"]
            await client.call("LOCK.MRELEASE", len(names), *names, fence)
        await watcher.call("LOCK.WATCH", "", "FROM", 0)
        told = [await event(watcher) for _ in range(401)]
        assert [len(one["names"]) for one in told[1:]] == [64] * 400


async def test_an_entry_with_a_long_story_is_told_in_portions() -> None:
    """The end of a session with many holds is one entry; who watches it and reads hears all of it, and stays."""
    async with serving(door=Bounds(unsent_bytes_high=50_000, unsent_bytes_max=1_000_000)) as box:
        client, watcher = await box.client(3), await box.client(3)
        await client.call("SESSION.OPEN", "TTL", 50_000, "META", 1_000 * "m")
        for first in range(0, 4_096, 64):
            await client.call("LOCK.MACQUIRE", 64, *(f"n{number:04}" for number in range(first, first + 64)))
        await watcher.call("LOCK.WATCH", "")
        await client.call("SESSION.CLOSE")
        other = await box.client()
        await other.call("LOCK.ACQUIRE", "after")
        told = [await event(watcher) for _ in range(1 + 4_096 + 2)]
        assert [one["names"] for one in told[1:-2]] == [[f"n{number:04}"] for number in range(4_096)]
        assert len({one["position"] for one in told[:-2]}) == 1
        assert [one["kind"] for one in (told[0], *told[-2:])] == ["session_ended", "opened", "acquired"]


async def test_a_watcher_that_is_gone_is_forgotten() -> None:
    """Nothing is made or kept for a watcher whose connection ended."""
    async with serving() as box:
        watcher = await box.client(3)
        await watcher.call("LOCK.WATCH", "")
        assert len(box.server.node.routes.watchers) == 1
        await watcher.close()
        await until(lambda: not box.server.node.routes.watchers)
        client = await box.client()
        await client.call("LOCK.ACQUIRE", "a")
        await asyncio.sleep(0)


async def test_one_event_is_told_once_though_several_prefixes_match() -> None:
    """However its prefixes overlap, and as they come and go, a connection hears of each thing once."""
    async with serving() as box:
        watcher, client = await box.client(3), await box.client(3, session=50_000)
        for prefix in ("ab", "a", "b", "abc"):
            await watcher.call("LOCK.WATCH", prefix)
        for number, names in enumerate((["abc", "b"], ["ab"], ["a"], ["c"], ["abcd"])):
            await client.call("LOCK.MACQUIRE", len(names), *(f"{name}{number}" for name in names))
            if number == 1:
                # Of what begins with "a", "ab" is left.
                await watcher.call("LOCK.UNWATCH", "a")
        told = [(await event(watcher))["names"] for _ in range(3)]
        assert told == [["abc0", "b0"], ["ab1"], ["abcd4"]]
        await watcher.no_push()


async def test_a_prefix_that_comes_later_is_told_what_happens_after_the_position_of_its_reply() -> None:
    """From the position that the reply names on, all of it is told, of the new prefix and the old."""
    async with serving() as box:
        watcher, client = await box.client(3), await box.client(3, session=50_000)
        await watcher.call("LOCK.WATCH", "a")
        await client.call("LOCK.ACQUIRE", "a1")
        assert (await event(watcher))["names"] == ["a1"]
        await client.call("LOCK.ACQUIRE", "b1")
        position = box.server.node.position
        await until(lambda: _told_up_to(box) >= position)
        reply = as_map(await watcher.call("LOCK.WATCH", "b"))
        assert reply["position"] >= position
        await client.call("LOCK.ACQUIRE", "b2")
        await client.call("LOCK.ACQUIRE", "a2")
        told = [await event(watcher) for _ in range(2)]
        assert [one["names"] for one in told] == [["b2"], ["a2"]]
        assert all(one["position"] > reply["position"] for one in told)


def _told_up_to(box: Box) -> int:
    [watching] = [c.watching for c in box.server.door.connections if c.watching is not None]
    return watching.place[0]


async def test_a_watcher_that_does_not_read_gets_a_gap_and_the_others_everything() -> None:
    """Nobody waits for it, and little is kept for it; when it reads, it hears that something is missing."""
    async with serving(door=Bounds(unsent_bytes_high=1_000)) as box:
        box.server.node.ring = Ring(things_max=50)
        slow, quick, client = await box.client(3), await box.client(3), await box.client(3, session=50_000)
        await slow.call("LOCK.WATCH", "n")
        [connection] = [c for c in box.server.door.connections if c.watching is not None]
        await quick.call("LOCK.WATCH", "n")
        [broadcast] = box.server.door.broadcasts.values()
        names = [f"n{number:02}" + 240 * "x" for number in range(64)]
        last, told = 0, []

        async def lock_all() -> None:
            nonlocal last
            last = (await client.call("LOCK.MACQUIRE", 64, *names))["fence"]
            await client.call("LOCK.MRELEASE", 64, *names, last)
            told.extend([await event(quick) for _ in range(2)])

        while not connection.is_full:
            await lock_all()
        # As much as is kept for those who are behind, and more than the ring has.
        broadcast.shelf._bytes_max = 500_000
        for _ in range(60):
            await lock_all()
        assert [(one["kind"], one["fence"]) for one in told[-2:]] == [("acquired", last), ("released", last)]
        assert len(told) % 2 == 0
        assert all(one["kind"] == ("acquired", "released")[index % 2] for index, one in enumerate(told))
        assert broadcast.shelf.size_bytes <= 500_000
        positions = [one["position"] for one in told]
        heard: list[dict[str, Any]] = []
        while not heard or heard[-1]["position"] < positions[-1]:
            heard.append(await event(slow))
        [gap] = [one["position"] for one in heard if one["kind"] == "gap"]
        kept = [one["position"] for one in heard if one["kind"] != "gap"]
        assert kept == [one for one in positions if one in kept]
        assert [one for one in kept if one > gap] == [one for one in positions if one > gap]


@given(st.lists(st.text("ab", max_size=5), max_size=8), st.text("ab", max_size=7))
def test_only_the_shortest_prefixes_matter(prefixes: list[str], name: str) -> None:
    """Without those that another one begins, the same names are begun, and by one prefix each."""
    found = shortest(dict.fromkeys(prefixes))
    assert any(map(name.startswith, prefixes)) == any(map(name.startswith, found))
    assert sum(map(name.startswith, found)) <= 1


@given(
    st.builds(
        Event,
        st.sampled_from(Kind),
        st.integers(0),
        st.integers(0),
        st.integers(0),
        st.text(),
        st.lists(st.text()).map(tuple),
        st.integers(0),
        st.text(),
        st.text(),
        st.text(),
        st.text(),
        st.none() | st.integers(),
        st.text(),
        st.text(),
        st.integers(0),
    )
)
def test_an_event_is_pushed_as_a_map_of_its_fields(told: Event) -> None:
    """What is written by hand is what would be made of the map, byte by byte."""
    fields = {
        "kind": told.kind.value,
        "position": told.position,
        "index": told.index,
        "shard": 3,
        "at": told.at_ms,
        "session": told.session,
        "owner": told.owner,
        "names": list(told.names),
        "fence": told.fence,
        "detail": told.detail,
        "unix_ms": told.unix_ms,
        "session_meta": told.session_meta,
        "by": told.by,
        "principal": told.principal,
        "mode": told.mode,
        "meta": told.meta,
    }
    assert replies.push_event(told, 3) == replies.push("event", fields)
