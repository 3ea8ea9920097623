"""Turns: a connection that floods is served, and nobody else notices; who floods is known."""

import asyncio
from typing import Any, cast

import pytest

from fencehold.doors.resp.backlog import (
    ALONE_AFTER_MS,
    ALONE_COMMANDS,
    BURST_EVERY_MS,
    BURSTS_MAX,
    QUANTUM,
    Backlog,
    Turns,
)
from fencehold.doors.resp.bounds import Bounds
from fencehold.doors.resp.traffic import Flood, Traffic
from fencehold.node.lanes import BUDGET_MAX
from tests.unit.doors.box import Box, Client, frame, serving
from tests.unit.doors.policies import as_somebody
from tests.unit.doors.test_hostile import Loop, loops
from tests.unit.node.doubles import HandClock, until


class _Sender:
    """Has so many quanta to handle, and notes each turn."""

    def __init__(self, name: str, quanta: int, turns: list[str]) -> None:
        self.name, self.left, self._noted = name, quanta, turns
        self.turns = Turns()

    def go_on(self, until_ms: float) -> bool:
        self._noted.append(self.name)
        self.left -= 1
        return self.left > 0


async def test_those_in_the_backlog_take_turns() -> None:
    """Each goes on once before any goes on twice."""
    turns: list[str] = []
    backlog = Backlog(HandClock())
    for name in "abc":
        backlog.join(_Sender(name, 4, turns))
    await until(lambda: len(turns) == 12)
    assert turns == list("abc") * 4


async def test_a_principal_has_one_turn_with_however_many_connections() -> None:
    """Three of one principal and one of another: each principal goes on once before either goes on twice."""
    turns: list[str] = []
    backlog, shared = Backlog(HandClock()), Turns()
    for name in "abc":
        sender = _Sender(name, 2, turns)
        sender.turns = shared
        backlog.join(sender)
    backlog.join(_Sender("x", 3, turns))
    await until(lambda: len(turns) == 9)
    assert turns == list("axbxcxabc")


async def test_while_a_connection_of_a_principal_waits_for_its_turn_its_others_do() -> None:
    """Else hundreds of connections would have hundreds of first commands handled before anybody's turn."""
    async with serving() as box:
        clients = [await as_somebody(box, who) for who in ("ann", "ann", "bob")]
        one, other, bobs = sorted(box.server.door.connections, key=lambda each: each.number)
        # As if the first had more to handle than it may at once, and its turn had not come.
        one.turns.senders.append(one)
        before = other.commands, bobs.commands
        for connection in (other, bobs):
            connection.data_received(frame("ECHO", "x"))
        assert (other.commands, bobs.commands) == (before[0], before[1] + 1)
        assert list(one.turns.senders) == [one, other]
        one.turns.senders.popleft()
        for client in clients[1:]:
            assert await client.reply() == "x"
        for client in clients:
            await client.close()


async def test_others_are_looked_after_between_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each slice of time the event loop goes round: what else is due is not kept waiting by a backlog."""
    monkeypatch.setattr("fencehold.doors.resp.backlog.SLICE_MS", 0.0)

    turns: list[str] = []
    backlog = Backlog(HandClock())
    for name in "ab":
        backlog.join(_Sender(name, 3, turns))
    seen = []
    while len(turns) < 6:
        await asyncio.sleep(0)
        seen.append(len(turns))
    assert turns == list("ababab")
    assert set(seen) >= {1, 2, 3, 4, 5}


def hear(backlog: Backlog, sender: _Sender) -> None:
    """Something comes from another sender than last time."""
    backlog.last, backlog.others_came = sender, True


async def test_who_is_alone_may_have_more_at_once() -> None:
    """After a while in which nobody else was heard; one word of another ends it."""
    clock = HandClock()
    backlog, one, other = Backlog(clock), _Sender("a", 1, []), _Sender("b", 1, [])
    hear(backlog, one)
    assert backlog.allowance(one)[0] == QUANTUM
    clock.advance(ALONE_AFTER_MS)
    assert backlog.allowance(one)[0] == ALONE_COMMANDS
    hear(backlog, other)
    hear(backlog, one)
    assert backlog.allowance(one)[0] == QUANTUM


async def test_who_comes_with_a_little_now_and_then_is_before_those_that_wait() -> None:
    """Once in a while, and not more than a few of them: hundreds that come at once wait for their turns."""
    clock = HandClock()
    backlog, senders = Backlog(clock), [_Sender("a", 1, []) for _ in range(2 * BURSTS_MAX)]
    backlog.join(_Sender("flood", 1, []))

    def allowed() -> list[int]:
        for sender in senders:
            hear(backlog, sender)
        return [backlog.allowance(sender)[0] for sender in senders]

    assert allowed() == [QUANTUM] * BURSTS_MAX + [0] * BURSTS_MAX
    assert allowed() == [0] * 2 * BURSTS_MAX
    clock.advance(BURST_EVERY_MS)
    assert sum(allowed()) == QUANTUM * BURSTS_MAX
    await until(lambda: not backlog)


async def _replies(client: Client, count: int) -> list[Any]:
    return [await client.reply() for _ in range(count)]


@loops
async def test_a_pipeline_of_any_length_is_answered_in_order(loop_factory: Loop) -> None:
    """Commands that came at once and had to wait for their turns are all answered, each in its place."""
    async with serving() as box:
        client, other = await box.client(2, session=60_000), await box.client()
        count = 3_000
        commands = [
            frame("LOCK.ACQUIRE", f"n{number}", "WAIT", 0) + frame("ECHO", number) for number in range(count)
        ]
        client.writer.write(b"".join(commands))
        assert await other.call("PING") == "PONG"
        found = await _replies(client, 2 * count)
        assert found[1::2] == [str(number) for number in range(count)]
        assert [reply[reply.index("fence") + 1] for reply in found[::2]] == list(range(1, count + 1))


@loops
async def test_a_command_is_in_the_next_entries_whatever_others_send(loop_factory: Loop) -> None:
    """Twenty connections have thousands of commands under way; one that asks for one thing has it soon.

    Counted in entries and in what they did for others meanwhile, not in seconds.
    """
    async with serving() as box:
        floods = [await box.client(2, session=60_000) for _ in range(20)]
        good = await box.client(2, session=60_000)
        for number, flood in enumerate(floods):
            flood.writer.write(2_000 * frame("LOCK.ACQUIRE", f"flood{number}", "WAIT", 0))
        await until(lambda: box.server.node.appends > 30)
        for number in range(20):
            appends, handled = box.server.node.appends, _handled(box)
            await good.call("LOCK.ACQUIRE", f"good{number}", "WAIT", 0)
            assert box.server.node.appends - appends <= 8
            assert _handled(box) - handled <= 20 * BUDGET_MAX
        for flood in floods:
            await _replies(flood, 2_000)


def _handled(box: Box) -> int:
    return sum(connection.commands for connection in box.server.door.connections)


@loops
async def test_a_client_that_does_not_read_stops_being_read(loop_factory: Loop) -> None:
    """What it sends stays with it; it is not ended for that, and goes on when it reads."""
    bounds = Bounds(unsent_bytes_high=10_000)

    async with serving(door=bounds) as box:
        silent, good = await box.client(2, session=60_000), await box.client(2, session=60_000)
        [connection] = [c for c in box.server.door.connections if c.member and c.member.session == 1]
        transport = silent.writer.transport
        transport.pause_reading()  # type: ignore[attr-defined]
        while not connection.is_full:
            silent.writer.write(50 * frame("ECHO", 5_000 * "x"))
            await good.call("PING")
        handled = connection.commands
        silent.writer.write(500 * frame("ECHO", 5_000 * "x"))
        for _ in range(20):
            await good.call("PING")
        assert connection.commands <= handled + 2
        assert not connection.ending
        transport.resume_reading()  # type: ignore[attr-defined]
        assert set(await _replies(silent, handled + 100)) == {5_000 * "x"}
        transport.abort()


@loops
async def test_many_that_do_not_read_are_bounded_together(loop_factory: Loop) -> None:
    """Those with most unread are let go of, until the rest is within the bound; who reads is not touched."""
    bounds = Bounds(unsent_bytes_high=50_000, unsent_bytes_total_max=400_000, frame_seconds_max=0.05)

    async with serving(door=bounds) as box:
        good = await box.client(2, session=60_000)
        silent = [await box.client() for _ in range(10)]
        for client in silent:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        door = box.server.door

        def unsent_bytes() -> int:
            return sum(connection.unsent_bytes for connection in door.connections)

        for _ in range(300):
            for client in silent:
                if not client.writer.transport.is_closing():
                    client.writer.write(frame("ECHO", 50_000 * "x"))
            await good.call("PING")
            if len(door.connections) < 11:
                break
        await until(lambda: unsent_bytes() <= bounds.unsent_bytes_total_max)
        assert await good.call("LOCK.ACQUIRE", "a", "WAIT", 0)
        for client in silent:
            client.writer.transport.abort()


class _Source:
    """A connection, as far as traffic knows it."""

    def __init__(self) -> None:
        self.commands = 0
        self.was_throttled = False


def test_who_sends_most_is_known() -> None:
    """By how much it sent since the last look; nobody, if nobody sends much."""
    traffic = Traffic()
    idle, busy = cast("Any", _Source()), cast("Any", _Source())
    sources = [idle, busy]
    idle.commands = 10
    traffic.look(sources, 1.0)
    traffic.look(sources, 2.0)
    found = [traffic.busiest]
    busy.commands = 10_000
    traffic.look(sources, 4.0)
    found.append(traffic.busiest)
    traffic.look(sources, 5.0)
    found.append(traffic.busiest)
    assert found == [None, Flood(busy, 5_000, is_throttled=False), None]
    assert traffic.throttled == 0


def test_a_flood_is_told_of_now_and_then() -> None:
    """When it was throttled at several looks in a row, and once a minute from then on."""
    traffic, told = Traffic(), []
    traffic.on_flood = lambda flood: told.append(flood.commands_per_s)
    source = cast("Any", _Source())
    for second in range(100):
        source.commands += 500
        source.was_throttled = True
        traffic.look([source], float(second))
        assert traffic.throttled == 1
    assert told == [500, 500]
    assert not source.was_throttled


async def test_info_names_who_floods() -> None:
    """By the name it gave itself, its address, and how much it sends."""
    async with serving() as box:
        wild, good = await box.client(2), await box.client(2)
        await wild.call("CLIENT", "SETNAME", "nightly import")
        assert "busiest_client:\r\n" in await good.call("INFO")
        for _ in range(50):
            wild.writer.write(1_000 * frame("PING"))
            await good.call("PING")
            await _replies(wild, 1_000)
            box.server.door.traffic.look(box.server.door.connections, box.server.door.now())
            info = await good.call("INFO")
            if "busiest_client:nightly" in info and " 0\r\n" not in info:
                break
        [line] = [
            line for line in info.split("\r\n") if line.startswith("busiest_client:nightly import 127.0.0.1:")
        ]
        assert int(line.rpartition(" ")[2]) > 0


async def test_a_flood_of_keep_alives_goes_before_nobody() -> None:
    """A few ride with the next entry; the others are commands like any other. All are answered."""
    async with serving() as box:
        wild, good = await box.client(3, session=60_000), await box.client(3, session=60_000)
        wild.writer.write(2_000 * frame("SESSION.KEEPALIVE"))
        grant = await good.call("LOCK.ACQUIRE", "a", "WAIT", 0)
        assert grant["fence"] == 1
        [connection] = [c for c in box.server.door.connections if c.member and c.member.session == 1]
        assert connection.member is not None
        assert connection.member.renewals <= 8
        assert {reply["ttl_ms"] for reply in await _replies(wild, 2_000)} == {60_000}
