"""Hostile input: a clear error or a bounded end, and a well-behaved client on the same server never notices."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
import uvloop

from fencehold.core.limits import Limits
from fencehold.doors.resp.arguments import INTEGER_MAX
from fencehold.doors.resp.bounds import Bounds
from tests.stopwatch import Stopwatch
from tests.unit.doors.box import Box, Client, Word, frame, serving
from tests.unit.node.doubles import until

Loop = Callable[[], asyncio.AbstractEventLoop]
loops = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@asynccontextmanager
async def undisturbed(box: Box, seconds_max: float = 10.0) -> AsyncIterator[None]:
    """Another client acquires and releases all the while; each time it is answered in time."""
    good = await box.client(3, session=60_000)
    longest = 0.0

    async def work() -> None:
        nonlocal longest
        while True:
            started = time.monotonic()
            grant = await good.call("LOCK.ACQUIRE", "good", "WAIT", 0)
            assert await good.call("LOCK.RELEASE", "good", grant["fence"]) == "OK"
            longest = max(longest, time.monotonic() - started)
            await asyncio.sleep(0.002)

    working = asyncio.create_task(work())
    try:
        yield
        await asyncio.sleep(0.01)
        assert not working.done(), working.exception()
    finally:
        working.cancel()
        await asyncio.wait({working})
    assert longest < seconds_max


WRONG: list[tuple[str, list[Word]]] = [
    ("ERR", ["NONSENSE"]),
    ("ERR", [b"\xff\xfe\x00"]),
    ("ERR", [""]),
    ("ERR", ["GET", "x"]),
    ("ERR", [5_000 * "X"]),
    ("USAGE", ["LOCK.ACQUIRE"]),
    ("USAGE", ["LOCK.ACQUIRE", b"\xff\xfe"]),
    ("LIMIT", ["LOCK.ACQUIRE", ""]),
    ("LIMIT", ["LOCK.ACQUIRE", 257 * "x"]),
    ("LIMIT", ["LOCK.ACQUIRE", 60_000 * "x"]),
    ("LIMIT", ["LOCK.ACQUIRE", "a", "META", 1_025 * "x"]),
    ("LIMIT", ["LOCK.ACQUIRE", "a", "OWNER", 129 * "x"]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "META", b"\xff"]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "META"]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "b"]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", 0, "WAIT", 0]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", -1]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", "soon"]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", "1.5"]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", ""]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", 60_000 * "9"]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", INTEGER_MAX]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", INTEGER_MAX + 1]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "WAIT", "\u0663"]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "TTL", INTEGER_MAX]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "DELAY", INTEGER_MAX]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "ATLEAST", INTEGER_MAX]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "LIMIT", 0]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "LIMIT", INTEGER_MAX]),
    ("USAGE", ["LOCK.ACQUIRE", "a", "MODE", "Q"]),
    ("USAGE", ["LOCK.MACQUIRE", 2, "a"]),
    ("USAGE", ["LOCK.MACQUIRE", 0, "a"]),
    ("USAGE", ["LOCK.MACQUIRE", INTEGER_MAX, "a"]),
    ("USAGE", ["LOCK.MACQUIRE", "x", "a"]),
    ("USAGE", ["LOCK.MACQUIRE", 2, "a", "a"]),
    ("LIMIT", ["LOCK.MACQUIRE", 65, *(str(number) for number in range(65))]),
    ("USAGE", ["LOCK.RELEASE", "a"]),
    ("USAGE", ["LOCK.RELEASE", "a", "x"]),
    ("USAGE", ["LOCK.RELEASE", "a", -1]),
    ("USAGE", ["LOCK.RELEASE", "a", 1, "REQUEST"]),
    ("NOTOWNER", ["LOCK.RELEASE", "a", INTEGER_MAX]),
    ("USAGE", ["LOCK.MRELEASE", 1, "a"]),
    ("USAGE", ["LOCK.EXTEND", "a", 1]),
    ("USAGE", ["LOCK.EXTEND", "a", 1, INTEGER_MAX]),
    ("USAGE", ["LOCK.MEXTEND", 1, "a", 1]),
    ("USAGE", ["LOCK.CANCEL"]),
    ("USAGE", ["LOCK.CANCEL", 1, 2]),
    ("USAGE", ["LOCK.BREAK"]),
    ("USAGE", ["LOCK.BREAK", "a", "FENCE"]),
    ("USAGE", ["LOCK.INFO"]),
    ("USAGE", ["LOCK.INFO", b"\xff"]),
    ("USAGE", ["LOCK.LIST", "COUNT", "all"]),
    ("USAGE", ["LOCK.LIST", "CURSOR"]),
    ("USAGE", ["LOCK.WATCH"]),
    ("USAGE", ["LOCK.WATCH", b"\xff"]),
    ("USAGE", ["LOCK.WATCH", "a", "FROM", "here"]),
    ("USAGE", ["SESSION.OPEN"]),
    ("USAGE", ["SESSION.OPEN", "TTL"]),
    ("USAGE", ["SESSION.OPEN", "TTL", "x"]),
    ("USAGE", ["SESSION.RESUME"]),
    ("USAGE", ["SESSION.KEEPALIVE", "x"]),
    ("USAGE", ["SESSION.CLOSE", "x"]),
    ("USAGE", ["SESSION.LIST", "x"]),
    ("USAGE", ["HELLO", "-3"]),
    ("USAGE", ["HELLO", 3, "SETNAME", 5_000 * "x"]),
    ("USAGE", ["CLIENT"]),
    ("USAGE", ["CLIENT", "SETNAME", 5_000 * "x"]),
    ("USAGE", ["PING", "a", "b"]),
    ("USAGE", ["ECHO"]),
    ("USAGE", ["SELECT", "x"]),
    ("USAGE", ["CONFIG"]),
]


@loops
async def test_what_is_wrong_is_refused_and_the_connection_goes_on(loop_factory: Loop) -> None:
    """Every wrong command has an error with the right code on one line, and the next command is answered."""
    async with serving() as box:
        client = await box.client(3, session=60_000)
        async with undisturbed(box):
            for code, words in WRONG:
                failed = await client.failure(*words)
                assert failed.code == code, (words, str(failed))
                assert len(str(failed)) < 300
                assert await client.call("PING") == "PONG"
        assert list(box.state.held) in ([], ["good"])


@pytest.mark.parametrize(
    "words",
    [
        ("SESSION.OPEN", "TTL", 0),
        ("SESSION.OPEN", "TTL", INTEGER_MAX),
        ("SESSION.OPEN", "TTL", 100, "GRACE", 101),
        ("SESSION.OPEN", "TTL", 100, "META", 1_025 * "x"),
    ],
)
async def test_a_session_that_is_not_to_be_had_is_none(words: tuple[Word, ...]) -> None:
    """A session beyond the limits is refused, and the connection may open another."""
    async with serving() as box:
        client = await box.client()
        assert await client.refusal(*words) in ("USAGE", "LIMIT")
        assert (await client.map("SESSION.OPEN", "TTL", 100))["session"] == 1


async def test_limits_of_the_machine_are_told_as_such() -> None:
    """Sessions, holds, waiters and remembered answers end at their limits with LIMIT or QUEUEFULL."""
    limits = Limits(sessions_max=2, holds_per_session_max=2, waiters_per_name_max=1, answers_per_session_max=2)
    async with serving(limits=limits) as box:
        client, other = await box.client(3, session=60_000), await box.client(3, session=60_000)
        third = await box.client()
        assert await third.refusal("SESSION.OPEN", "TTL", 100) == "LIMIT"
        assert await third.refusal("LOCK.ACQUIRE", "a") == "LIMIT"
        await client.call("LOCK.ACQUIRE", "a")
        await client.call("LOCK.ACQUIRE", "b")
        assert await client.refusal("LOCK.ACQUIRE", "c") == "LIMIT"
        await other.call("LOCK.ACQUIRE", "a", "REQUEST", 1, "ASYNC")
        assert await other.refusal("LOCK.ACQUIRE", "a", "REQUEST", 2, "ASYNC") == "QUEUEFULL"
        assert await other.refusal("LOCK.RELEASE", "x", 99, "REQUEST", 3) == "NOTOWNER"
        assert await other.refusal("LOCK.RELEASE", "x", 1, "REQUEST", 4) == "LIMIT"


NOT_RESP: list[bytes] = [
    b"PING\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"*0\r\n",
    b"*-1\r\n",
    b"*1\r\n*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n:5\r\n*1\r\n:1\r\n",
    b"*1\r\n:5\r\n",
    b"*2\r\n$12\r\nLOCK.ACQUIRE\r\n:5\r\n",
    b"*2\r\n$12\r\nLOCK.ACQUIRE\r\n*1\r\n$1\r\na\r\n",
    b"*3\r\n$12\r\nLOCK.ACQUIRE\r\n$1\r\na\r\n$-1\r\n",
    b"*4\r\n$12\r\nLOCK.ACQUIRE\r\n$1\r\na\r\n$4\r\nWAIT\r\n:0\r\n",
    b"*3\r\n$12\r\nLOCK.RELEASE\r\n%1\r\n+a\r\n:1\r\n$1\r\n1\r\n",
    b"*2\r\n$4\r\nECHO\r\n,3.5\r\n",
    b"*2\r\n$4\r\nECHO\r\n-ERR no\r\n",
    b"*2\r\n$4\r\nPING\r\n%1\r\n*1\r\n:1\r\n:2\r\n",
    b"$4\r\nPING\r\n",
    b":1\r\n",
    b"+PING\r\n",
    b"-ERR\r\n",
    b"_\r\n",
    b"#t\r\n",
    b"%1\r\n+a\r\n:1\r\n",
    b"~1\r\n$4\r\nPING\r\n:1\r\n",
    b">1\r\n$4\r\nPING\r\n",
    b"*abc\r\n",
    b"*1\r\n$abc\r\n",
    b"*1\r\n$-2\r\n",
    b"*1\r\n" * 5_000,
    b"*1000000000\r\n",
    b"*999999\r\n$4\r\nPING\r\n",
    b"*2\r\n*100000000\r\n",
    b"*3\r\n$-1\r\n*100000000\r\n",
    b"*3\r\n$5\r\n$11\r\n\r\n*100000000\r\n",
    b"*3\r\n$3\r\n$11\r\n*100000000\r\n",
    b"*3\r\n:5\r\n*100000000\r\n",
    b"*3\r\n$?\r\n*100000000\r\n",
    b"*3\r\n>100000000\r\n",
    b"*3\r\n~100000000\r\n",
    b"*4294967295\r\n",
    b"*99999999999999999999\r\n",
]


@loops
@pytest.mark.parametrize("data", NOT_RESP, ids=lambda data: repr(data[:30]))
async def test_what_is_no_command_ends_its_connection(loop_factory: Loop, data: bytes) -> None:
    """Bytes that are no array of bulk strings are answered with an error, if with anything, and a close."""
    async with serving() as box:
        client = await box.client()
        async with undisturbed(box):
            client.writer.write(data + frame("LOCK.ACQUIRE", "never"))
            last = await client.ended()
            assert last.startswith(("ERR protocol error", "LIMIT"))
        assert "never" not in box.state.held


async def test_a_head_of_a_huge_array_in_pieces_is_found() -> None:
    """However it is cut, the head of an array no command can be costs the server nothing."""
    async with serving() as box:
        head = b"*1000000000\r\n"
        for cut in range(1, len(head)):
            client = await box.client()
            client.writer.write(head[:cut])
            await client.writer.drain()
            await asyncio.sleep(0.001)
            client.writer.write(head[cut:])
            watch = Stopwatch()
            assert "flat array" in await client.ended()
            assert watch.passed_s < 1


async def test_texts_that_look_like_heads_are_texts() -> None:
    """A name or metadata with stars, dollars and digits is no array."""
    async with serving() as box:
        client = await box.client(2, session=60_000)
        for name in ("*1000000000", "$1000000000", "a\r\n*123456", ">123456789", "a*123456789\r\n", "\n|1234567"):
            assert (await client.map("LOCK.ACQUIRE", name, "META", name))["name"] == name
            words = 200 * frame("ECHO", name)
            for at in range(0, len(words), 7):
                client.writer.write(words[at : at + 7])
                await asyncio.sleep(0)
            assert [await client.reply() for _ in range(200)] == [name] * 200
            client.writer.write(frame("ECHO", 60_000 * "x") + frame("ECHO", name))
            assert [await client.reply() for _ in range(2)][1] == name


@loops
async def test_a_command_has_a_largest_size(loop_factory: Loop) -> None:
    """Just below it is answered; above it, whole or in pieces, announced or endless, the connection is ended."""
    bounds = Bounds(frame_bytes_max=10_000)

    async with serving(door=bounds) as box:
        client = await box.client()
        async with undisturbed(box):
            for _ in range(3):
                client.send("PING")
                assert await client.reply() == "PONG"
                assert len(await client.call("ECHO", 9_900 * "x")) == 9_900
            too_large: list[list[bytes]] = [
                [frame("ECHO", 10_001 * "x")],
                [frame("PING") + frame("ECHO", 20_000 * "x")],
                [b"*2\r\n$4\r\nECHO\r\n$2000000000\r\n", *([5_000 * b"x"] * 4)],
                [b"*99999\r\n", *([500 * b"$1\r\na\r\n"] * 8)],
                [b"*99999\r\n" + 20_000 * b"$1\r\na\r\n"],
                [b"*2\r\n$4\r\nECHO\r\n", 200_000 * b"$"],
            ]
            for pieces in too_large:
                client = await box.client()
                for piece in pieces:
                    if not client.writer.transport.is_closing():
                        client.writer.write(piece)
                    await asyncio.sleep(0.002)
                assert (await client.ended()).startswith(("LIMIT a command has at most", "ERR protocol error"))
                await client.close()
        await until(lambda: len(box.server.door.connections) < 3)


@loops
async def test_half_a_command_and_then_nothing_is_ended(loop_factory: Loop) -> None:
    """Also when it trickles; but a client that is merely silent between commands stays, however long."""
    async with serving(door=Bounds(frame_seconds_max=0.05)) as box:
        idle = await box.client()
        assert await idle.call("PING") == "PONG"
        halves = [await box.client() for _ in range(20)]
        async with undisturbed(box):
            for client in halves:
                client.writer.write(b"*2\r\n$4\r\nECHO\r\n$9\r\nab")
            trickling = await box.client()

            async def trickle() -> None:
                trickling.writer.write(b"*2\r\n$4\r\nECHO\r\n$9999\r\n")
                while True:
                    trickling.writer.write(b"x")
                    await asyncio.sleep(0.005)

            task = asyncio.create_task(trickle())
            for client in (*halves, trickling):
                assert await client.ended() == "LIMIT an incomplete command, then silence"
            task.cancel()
        await until(lambda: len(box.server.door.connections) <= 2)
        assert await idle.call("PING") == "PONG"


@loops
async def test_half_commands_one_after_the_other_are_no_half_command(loop_factory: Loop) -> None:
    """Who always has half of the next one under way is not ended for the time that all of them took."""
    async with serving() as box:
        client = await box.client()
        command = frame("ECHO", 100 * "x")
        [connection] = box.server.door.connections
        times = count(1)
        box.server.door.now = lambda: float(next(times))  # type: ignore[method-assign]
        client.writer.write(command[:50])
        await until(lambda: connection.partial_since is not None)
        for number in range(3):
            since = connection.partial_since
            client.writer.write(command[50:] + command[:50])
            await client.reply()
            await until(lambda before=since: connection.partial_since != before)  # type: ignore[misc]
            assert connection.commands == number + 1


async def _unread(client: Client) -> None:
    """Let nothing more be read from the connection."""
    transport = client.writer.transport
    transport.pause_reading()  # type: ignore[attr-defined]


async def _ask_much(client: Client) -> None:
    request = 200 * frame("LOCK.LIST", "COUNT", 1_000, "STALE")
    with_drain = client.writer.drain
    for _ in range(50):
        client.writer.write(request)
        try:
            await asyncio.wait_for(with_drain(), 0.02)
        except (TimeoutError, ConnectionError):
            return


async def _ask_behind_a_blocked_one(client: Client) -> None:
    client.send("LOCK.ACQUIRE", "held")
    for _ in range(200):
        if client.writer.transport.is_closing():
            break
        client.writer.write(10 * frame("LOCK.LIST", "COUNT", 1_000))
        await asyncio.sleep(0)


async def _watch(client: Client) -> None:
    client.send("LOCK.WATCH", "", "FROM", 0)


@loops
@pytest.mark.parametrize("ask", [_ask_much, _ask_behind_a_blocked_one, _watch])
async def test_a_client_that_never_reads_costs_a_bounded_amount(
    loop_factory: Loop, ask: Callable[[Client], Awaitable[None]]
) -> None:
    """What waits for it, sent or not, stays below a bound; beyond it the client is let go of at once."""
    bounds = Bounds(unsent_bytes_high=10_000, unsent_bytes_max=300_000, frame_seconds_max=0.05)

    async with serving(door=bounds) as box:
        holder = await box.client(3, session=60_000)
        await holder.call("LOCK.ACQUIRE", "held")
        for number in range(300):
            await holder.call("LOCK.ACQUIRE", f"{number:03}" + 200 * "x")
        silent = await box.client(3, session=60_000)
        [connection] = [c for c in box.server.door.connections if c.member and c.member.session == 2]
        await _unread(silent)
        async with undisturbed(box):
            await ask(silent)
            for _ in range(40):
                await asyncio.sleep(0.005)
                if connection.closed:
                    break
                unsent = connection.unsent_bytes
                assert unsent < 2 * bounds.unsent_bytes_max
            if ask is not _watch:
                await until(lambda: connection.closed or connection.is_full)
        silent.writer.transport.abort()
        await until(lambda: connection.closed)


@loops
async def test_a_close_that_is_not_taken_is_forced(loop_factory: Loop) -> None:
    """A client that is told to go and does not read what is left of its replies is gone all the same."""
    async with serving(door=Bounds(frame_seconds_max=1.0, unsent_bytes_max=1 << 30)) as box:
        silent = await box.client(3)
        [connection] = box.server.door.connections
        await _unread(silent)
        while not connection.is_full:
            silent.writer.write(20 * frame("ECHO", 50_000 * "x"))
            await asyncio.sleep(0.002)
        connection.end("LIMIT", "go")
        await until(lambda: connection.closed)
        silent.writer.transport.abort()


async def test_commands_in_flight_have_a_bound() -> None:
    """Who pipelines without end behind a command that blocks is ended; what it had in flight is told nothing."""
    async with serving(door=Bounds(in_flight_max=100)) as box:
        holder, client = await box.client(), await box.client(2, session=60_000)
        await holder.call("LOCK.ACQUIRE", "a")
        async with undisturbed(box):
            client.send("LOCK.ACQUIRE", "a")
            client.writer.write(200 * frame("PING"))
            assert await client.ended() == ""
        await until(lambda: len(box.server.door.connections) == 2)


@loops
async def test_connections_have_a_bound(loop_factory: Loop) -> None:
    """Who comes beyond it is told so; when somebody leaves there is room again."""
    async with serving(door=Bounds(connections_max=5)) as box:
        clients = [await box.client() for _ in range(5)]
        for client in clients:
            assert await client.call("PING") == "PONG"
        for _ in range(10):
            late = await box.client()
            assert await late.ended() == "LIMIT at most 5 connections"
        assert await clients[0].call("PING") == "PONG"
        await clients[1].close()
        await until(lambda: len(box.server.door.connections) == 4)
        assert await (await box.client()).call("PING") == "PONG"


@loops
async def test_two_hundred_that_say_nothing_are_no_burden(loop_factory: Loop) -> None:
    """Connections that were opened and never used, or abandoned half way, hold up nobody and leave no trace."""
    async with serving() as box, undisturbed(box):
        silent = [await box.client() for _ in range(200)]
        assert len(box.server.door.connections) == 201
        for client in silent[::2]:
            client.writer.write(b"*3\r\n$12\r\nLOCK")
        await asyncio.sleep(0.01)
        for client in silent:
            client.writer.transport.abort()
        await until(lambda: len(box.server.door.connections) == 1)


def _seeds() -> list[bytes]:
    commands: list[list[Any]] = [words for _, words in WRONG if len(frame(*words)) < 500]
    commands += [
        ["HELLO", 3],
        ["HELLO", 2],
        ["PING"],
        ["SESSION.OPEN", "TTL", 5_000, "GRACE", 10],
        ["SESSION.RESUME", 1, "x"],
        ["SESSION.KEEPALIVE"],
        ["SESSION.CLOSE"],
        ["SESSION.LIST"],
        ["LOCK.ACQUIRE", "a", "WAIT", 5],
        ["LOCK.ACQUIRE", "b", "REQUEST", 1, "ASYNC"],
        ["LOCK.ACQUIRE", "c", "MODE", "S", "OWNER", "o", "META", "{}", "DELAY", 5],
        ["LOCK.ACQUIRE", "f", "OWNER", "o", "WAIT", 0, "ATLEAST", 5],
        ["LOCK.ACQUIRE", "d", "LIMIT", 2, "REQUEST", 2],
        ["LOCK.MACQUIRE", 2, "a", "b", "WAIT", 5],
        ["LOCK.RELEASE", "a", 1, "REQUEST", 1],
        ["LOCK.MRELEASE", 2, "a", "b", 2],
        ["LOCK.EXTEND", "a", 1, 100, "REQUEST", 3, "ANSWERED", 1],
        ["LOCK.CANCEL", 1],
        ["LOCK.SETTLE", 1, 2],
        ["LOCK.BREAK", "a"],
        ["LOCK.INFO", "a"],
        ["LOCK.INFO", "a", "STALE"],
        ["LOCK.LIST", "PREFIX", "a"],
        ["LOCK.WATCH", "", "FROM", 0],
        ["LOCK.UNWATCH", ""],
        ["INFO"],
        ["QUIT"],
    ]
    return [frame(*words) for words in commands] + NOT_RESP


def _mutated(chance: random.Random, data: bytes) -> bytes:
    mutable = bytearray(data)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        at = chance.randrange(len(mutable) + 1)
        match chance.randrange(5):
            case 0:
                mutable[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del mutable[at : at + chance.randrange(1, 9)]
            case 2:
                mutable[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 3:
                mutable[at:at] = chance.choice((b"\r\n", b"*3\r\n", b"$0\r\n\r\n", b":1\r\n", b"%1\r\n", b"-"))
            case _:
                mutable += mutable[at:][:100]
    return bytes(mutable) or b"\r"


@loops
@pytest.mark.parametrize("seed", range(2))
async def test_random_input_neither_kills_the_server_nor_stays_with_it(loop_factory: Loop, seed: int) -> None:
    """Of ten thousand mutated frames none ends the node, raises in the loop, or leaves a connection behind."""
    chance = random.Random(seed)
    seeds = _seeds()

    async def throw(box: Box, frames: int) -> None:
        while frames > 0:
            reader, writer = await asyncio.open_connection("127.0.0.1", box.server.port)
            for _ in range(chance.randrange(1, 20)):
                if writer.transport.is_closing():
                    break
                writer.write(_mutated(chance, chance.choice(seeds)))
                frames -= 1
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            if chance.random() < 0.5:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(0.005):
                        await reader.read()
            writer.transport.abort()

    async with serving() as box:
        async with undisturbed(box, seconds_max=15.0):
            await asyncio.gather(*(throw(box, 2_500) for _ in range(4)))
            await until(lambda: len(box.server.door.connections) == 1)
        await box.pass_time(6_000)
        await until(lambda: not box.state.waiters and len(box.state.sessions) <= 1)
        assert box.server.node.leads
        assert set(box.server.node.routes._listeners) <= set(box.state.sessions)
        assert len(box.server.node.routes.watchers) == 0
