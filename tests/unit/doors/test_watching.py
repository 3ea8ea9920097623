"""Watching: events of the names asked for, in order, with gaps told, and never at the cost of others."""

import asyncio
from typing import Any

import pytest

from fencehold.doors.resp.door import Bounds
from fencehold.node.ring import Ring
from tests.unit.doors.box import Box, Client, as_map, serve
from tests.unit.node.doubles import NOON, until


async def event(client: Client) -> dict[str, Any]:
    kind, told = await client.push()
    assert kind == "event"
    return dict(told)


async def kinds(client: Client, count: int) -> list[str]:
    return [(await event(client))["kind"] for _ in range(count)]


def test_what_happens_to_watched_names_is_pushed() -> None:
    """Events come in order, only of names with the prefix, and stop when it is no longer watched."""

    async def scenario(box: Box) -> None:
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
            "at": 0,
            "session": 1,
            "owner": "o",
            "names": ["job:1"],
            "fence": 2,
            "detail": "",
            "unix_ms": NOON,
            "session_meta": "",
            "by": "",
        }
        await client.call("LOCK.ACQUIRE", "job:1", "WAIT", 10, "REQUEST", 1, "ASYNC")
        await box.pass_time(10)
        await client.call("LOCK.EXTEND", "job:1", 2, 500)
        await box.pass_time(500)
        await client.call("LOCK.ACQUIRE", "job:2")
        await client.call("LOCK.BREAK", "job:2")
        await client.call("LOCK.ACQUIRE", "job:3")
        await client.call("LOCK.RELEASE", "job:3", 5)
        assert await kinds(watcher, 8) == [
            "queued",
            "timed_out",
            "extended",
            "expired",
            "acquired",
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

    serve(scenario)


def test_who_is_gone_is_still_named() -> None:
    """Events that are told late name the client, though its session has ended, and say who broke what when."""

    async def scenario(box: Box) -> None:
        client = await box.client(3)
        await client.call("SESSION.OPEN", "TTL", 50_000, "META", '{"client":"billing"}')
        await client.call("LOCK.ACQUIRE", "a")
        await box.pass_time(700)
        await client.call("LOCK.BREAK", "a", "BY", "alice")
        await client.call("SESSION.CLOSE")
        assert not box.state.sessions
        watcher = await box.client(3)
        await watcher.call("LOCK.WATCH", "", "FROM", 0)
        told = [await event(watcher) for _ in range(4)]
        assert [one["kind"] for one in told] == ["opened", "acquired", "broken", "session_ended"]
        assert {one["session_meta"] for one in told} == {'{"client":"billing"}'}
        assert [one["by"] for one in told] == ["", "", "alice", ""]
        assert [one["unix_ms"] - NOON for one in told] == [0, 0, 700, 700]

    serve(scenario)


def test_watching_from_a_position_tells_what_was_missed() -> None:
    """With FROM, all that happened after that position comes first; it goes with the first watch only."""

    async def scenario(box: Box) -> None:
        client = await box.client(3, session=50_000)
        for number in range(5):
            await client.call("LOCK.ACQUIRE", f"a{number}")
        first = await box.client(3)
        await first.call("LOCK.WATCH", "a", "FROM", 0)
        events = [await event(first) for _ in range(5)]
        assert [told["names"] for told in events] == [[f"a{number}"] for number in range(5)]
        assert await first.refusal("LOCK.WATCH", "b", "FROM", 0) == "USAGE"
        assert "position" in as_map(await first.call("LOCK.WATCH", "b"))
        second = await box.client(3)
        await second.call("LOCK.WATCH", "a", "FROM", events[2]["position"])
        assert [(await event(second))["names"] for _ in range(2)] == [["a3"], ["a4"]]

    serve(scenario)


def test_a_watcher_that_comes_too_late_is_told_of_the_gap() -> None:
    """What fell out of the ring is told as one event of kind gap, with the position up to which it is gone."""

    async def scenario(box: Box) -> None:
        box.server.node.ring = Ring(things_max=4)
        client, watcher = await box.client(3, session=50_000), await box.client(3)
        for number in range(10):
            await client.call("LOCK.ACQUIRE", f"a{number}")
        await watcher.call("LOCK.WATCH", "", "FROM", 0)
        gap = await event(watcher)
        assert gap == {"kind": "gap", "position": box.server.node.ring.lost_up_to}
        events = [await event(watcher) for _ in range(4)]
        assert [told["names"] for told in events] == [["a6"], ["a7"], ["a8"], ["a9"]]
        assert events[0]["position"] > gap["position"]

    serve(scenario)


def test_watching_needs_pushes_and_has_bounds() -> None:
    """In RESP2 it is a usage error; more prefixes than allowed, or endless ones, are a limit."""

    async def scenario(box: Box) -> None:
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

    serve(scenario, door=Bounds(prefixes_max=3))


@pytest.mark.slow
def test_a_watcher_that_reads_slowly_holds_up_nobody() -> None:
    """While it does not read, others go on; when it does, it gets what the ring still has, in order."""

    async def scenario(box: Box) -> None:
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

    serve(scenario, door=Bounds(unsent_bytes_high=1_000))


def test_a_long_past_is_told_in_portions() -> None:
    """A watcher that reads is not taken for one that does not, though more is to be told than may wait unsent."""

    async def scenario(box: Box) -> None:
        client, watcher = await box.client(3, session=50_000), await box.client(3)
        names = [f"{number:03}" + 240 * "x" for number in range(64)]
        for _ in range(200):
            fence = (await client.call("LOCK.MACQUIRE", len(names), *names))["fence"]
            await client.call("LOCK.MRELEASE", len(names), *names, fence)
        await watcher.call("LOCK.WATCH", "", "FROM", 0)
        told = [await event(watcher) for _ in range(401)]
        assert [len(one["names"]) for one in told[1:]] == [64] * 400

    serve(scenario, door=Bounds(unsent_bytes_high=50_000, unsent_bytes_max=1_000_000))


def test_an_entry_with_a_long_story_is_told_in_portions() -> None:
    """The end of a session with many holds is one entry; who watches it and reads hears all of it, and stays."""

    async def scenario(box: Box) -> None:
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

    serve(scenario, door=Bounds(unsent_bytes_high=50_000, unsent_bytes_max=1_000_000))


def test_a_watcher_that_is_gone_is_forgotten() -> None:
    """Nothing is made or kept for a watcher whose connection ended."""

    async def scenario(box: Box) -> None:
        watcher = await box.client(3)
        await watcher.call("LOCK.WATCH", "")
        assert len(box.server.node.routes._watchers) == 1
        await watcher.close()
        await until(lambda: not box.server.node.routes._watchers)
        client = await box.client()
        await client.call("LOCK.ACQUIRE", "a")
        await asyncio.sleep(0)

    serve(scenario)
