"""The door and the server: where it listens, how it stops, and what is there when it starts again."""

import asyncio
import socket
from pathlib import Path

import pytest

from fencehold.core.commands import Acquire, Entry, OpenSession
from fencehold.doors.resp.bounds import Bounds
from fencehold.doors.resp.door import Door
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import AlreadyOwned, Damaged, UsageError
from fencehold.journal.codec import encode
from fencehold.journal.room import Room
from fencehold.node.leader import Bounds as LeaderBounds
from fencehold.node.node import Node
from fencehold.server import Config, Server
from fencehold.types import Position
from tests.unit.doors.box import Client, as_map, frame, serving
from tests.unit.node.doubles import NOON, HandClock, HandJournal, until


async def _client(server: Server) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", server.port))


def _config(data: Path | None = None, **door: float) -> Config:
    return Config(data=data, port=0, leader=LeaderBounds(tick_s=0.002), listener=Bounds(**door))  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "example.org", "127.0.0.1.example.org"])
async def test_it_listens_on_loopback_unless_the_network_is_trusted(host: str) -> None:
    """An address that other machines may reach is refused before anything listens, unless insecure is said."""
    server = Server(Config(host=host, port=0))
    with pytest.raises(UsageError, match="insecure"):
        await server.start()
    assert not server.node.leads


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost"])
async def test_it_listens_on_any_loopback_address(host: str) -> None:
    """Loopback needs no leave."""
    async with Server(Config(host=host, port=0)) as server:
        reader, writer = await asyncio.open_connection(host, server.port)
        writer.write(frame("PING"))
        assert await reader.readexactly(7) == b"+PONG\r\n"
        writer.close()
        await writer.wait_closed()


async def test_where_insecure_is_said_it_listens_anywhere() -> None:
    """The choice is the operator's."""
    async with Server(Config(host="0.0.0.0", port=0, insecure=True)) as server:
        client = await _client(server)
        assert await client.call("PING") == "PONG"
        await client.close()


async def test_a_port_that_is_taken_is_told_and_the_journal_let_go(tmp_path: Path) -> None:
    """A server that cannot listen raises, and leaves its directory to the next."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config(data=tmp_path / "data", port=taken.getsockname()[1])
        with pytest.raises(OSError, match="address already in use"):
            await Server(config).start()
    async with Server(_config(tmp_path / "data")):
        pass


async def test_a_directory_has_one_server(tmp_path: Path) -> None:
    """A second server on the same directory is refused, and the first goes on."""
    async with Server(_config(tmp_path / "data")) as server:
        with pytest.raises(AlreadyOwned):
            await Server(_config(tmp_path / "data")).start()
        client = await _client(server)
        assert (await client.map("LOCK.ACQUIRE", "a"))["fence"] == 1
        await client.close()


async def test_a_damaged_journal_ends_the_start() -> None:
    """What cannot be read is said when the server starts, and nothing listens."""
    store = MemoryStore()
    journal = MemoryJournal(store)
    await journal.open()
    await journal.append(b"\x63", epoch=await journal.lead(), position=Position(1))
    await journal.close()
    server = Server(_config(), journal=MemoryJournal(store))
    with pytest.raises(Damaged, match="position 1"):
        await server.start()


async def test_a_client_whose_machine_is_gone_is_noticed() -> None:
    """Connections probe their other end: an implicit session must not live for ever behind a dead one."""
    async with serving() as box:
        await box.client()
        await until(lambda: box.server.door.connections)
        [connection] = box.server.door.connections
        sock = connection._transport.get_extra_info("socket")  # type: ignore[union-attr]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 30
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000


@pytest.mark.guarantee("G3")
async def test_stopping_answers_what_was_asked() -> None:
    """What was taken before the stop is appended and answered, what came after it is not; then all are gone."""
    journal = HandJournal()
    server = Server(_config(), journal=journal)
    await server.start()
    client, plain = await _client(server), await _client(server)
    client.send("LOCK.BREAK", "a")
    await until(lambda: len(journal.begun) == 1)
    client.send("LOCK.BREAK", "b")
    client.send("LOCK.INFO", "b")
    plain.send("LOCK.ACQUIRE", "c")
    await asyncio.sleep(0.01)
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0.005)
    client.send("LOCK.BREAK", "too late")
    for _ in range(5):
        if not stopping.done() and journal._under_way:
            await journal.complete()
            await asyncio.sleep(0.002)
    await asyncio.wait_for(stopping, 20)
    assert [as_map(await client.reply())["name"] for _ in range(3)] == ["a", "b", "b"]
    assert await client.ended() == ""
    assert (await plain.ended()).startswith("UNAVAILABLE")
    assert "too late" not in str(journal.begun)
    await client.close()
    await plain.close()


async def test_stopping_ends_implicit_sessions_and_leaves_the_others() -> None:
    """Nobody could come back to an implicit session; an explicit one lives on to be resumed, its waits with it."""
    store = MemoryStore()
    server = Server(_config(), journal=MemoryJournal(store), clock=HandClock())
    await server.start()
    plain, waiting, owner = await _client(server), await _client(server), await _client(server)
    await plain.call("LOCK.ACQUIRE", "plain")
    session = await owner.map("SESSION.OPEN", "TTL", 60_000, "GRACE", 0)
    await owner.call("LOCK.ACQUIRE", "a")
    waiting.send("LOCK.ACQUIRE", "a")
    await until(lambda: server.node.replica.machine.state.waiters)
    await server.stop()
    assert "NOSESSION" in await waiting.ended()
    for client in (plain, waiting, owner):
        await client.close()

    async with Server(_config(), journal=MemoryJournal(store), clock=HandClock()) as again:
        state = again.node.replica.machine.state
        assert (list(state.sessions), list(state.held), len(state.waiters)) == ([2], ["a"], 0)
        client = await _client(again)
        await client.call("SESSION.RESUME", session["session"], session["secret"])
        assert await client.call("LOCK.RELEASE", "a", 2) == "OK"
        await client.close()


async def test_since_does_not_begin_anew_with_the_server() -> None:
    """What is held stays held since then, through a stop of an hour; the age counts the hour, the ttl does not."""
    store, clock = MemoryStore(), HandClock()
    async with Server(_config(), journal=MemoryJournal(store), clock=clock, calendar=clock.unix_ms) as server:
        client = await _client(server)
        await client.call("SESSION.OPEN", "TTL", 60_000)
        await client.call("LOCK.ACQUIRE", "a", "TTL", 50_000)
        await client.close()

    clock = HandClock()
    clock.set(NOON + 3_600_000)
    async with Server(_config(), journal=MemoryJournal(store), clock=clock, calendar=clock.unix_ms) as again:
        client = await _client(again)
        await client.call("LOCK.ACQUIRE", "b")
        held = as_map((await client.map("LOCK.INFO", "a"))["holds"][0])
        dates = (held["since_unix_ms"], held["age_ms"], held["held_ms"], held["left_ms"])
        assert dates == (NOON, 3_600_000, 0, 50_000)
        _, names = await client.call("LOCK.LIST", "HOLD")
        listed = {name["name"]: as_map(name["hold"]) for name in map(as_map, names)}
        assert [listed[name]["since_unix_ms"] - NOON for name in "ab"] == [0, 3_600_000]
        assert [listed[name]["age_ms"] for name in "ab"] == [3_600_000, 0]
        sessions = [as_map(session) for session in (await client.call("SESSION.LIST"))[1]]
        assert [session["since_unix_ms"] - NOON for session in sessions] == [0, 3_600_000]
        clock.advance(100)
        clock.set(NOON - 3_600_000)
        held = as_map((await client.map("LOCK.INFO", "a"))["holds"][0])
        assert (held["since_unix_ms"], held["age_ms"], held["left_ms"]) == (NOON, 100, 49_900)
        await client.close()


async def test_what_was_held_before_there_were_anchors_has_no_time_of_day() -> None:
    """A journal of an older version: its holds are told with a null, and the age that the service has counted."""
    store, clock = MemoryStore(), HandClock()
    journal = MemoryJournal(store)
    await journal.open()
    epoch = await journal.lead()
    older = Entry(0, (OpenSession(60_000, secret="s"), Acquire(1, ("old",))))
    await journal.append(encode(older), epoch=epoch, position=Position(1))
    await journal.close()
    async with Server(_config(), journal=MemoryJournal(store), clock=clock, calendar=clock.unix_ms) as server:
        client = await _client(server)
        held = as_map((await client.map("LOCK.INFO", "old"))["holds"][0])
        assert (held["since_unix_ms"], held["age_ms"]) == (None, 0)
        await client.close()


async def test_stopping_does_not_wait_for_who_does_not_read() -> None:
    """A client that takes nothing of what is left for it is let go of after a while."""
    server = Server(_config(closing_seconds_max=0.05, unsent_bytes_max=1 << 30))
    await server.start()
    other = await _client(server)
    assert await other.call("PING") == "PONG"
    await other.close()
    client = await _client(server)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: any(not c.closed for c in server.door.connections))
    [connection] = server.door.connections
    while not connection.is_full:
        client.writer.write(20 * frame("ECHO", 50_000 * "x"))
        await asyncio.sleep(0.002)
    await asyncio.wait_for(server.stop(), 20)
    assert not server.door.connections
    assert connection.closed
    client.writer.transport.abort()


async def test_who_comes_while_it_stops_is_sent_away() -> None:
    """A connection that was accepted just before the stop is told so, and does not keep the server up."""
    node = Node(MemoryJournal(MemoryStore()), HandClock())
    door = Door(node)
    port = await door.open("127.0.0.1", 0)
    clients = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(3)]
    door.drain()
    await asyncio.wait_for(door.close(), 20)
    for client in clients:
        assert await client.ended() in ("", "UNAVAILABLE stopping")
        await client.close()
    await until(lambda: not door.connections)


@pytest.mark.guarantee("G1")
async def test_a_restart_on_the_same_directory_loses_nothing(tmp_path: Path) -> None:
    """Sessions are resumed within their ttl, holds and queues are there, and fences go on where they were."""
    data = tmp_path / "data"
    fences: list[int] = []
    async with Server(_config(data)) as server:
        client, waiter = await _client(server), await _client(server)
        session = await client.map("SESSION.OPEN", "TTL", 60_000, "GRACE", 0)
        other = await waiter.map("SESSION.OPEN", "TTL", 60_000)
        for number in range(5):
            fences.append((await client.map("LOCK.ACQUIRE", f"n{number}"))["fence"])
        waiter.send("LOCK.ACQUIRE", "n0", "REQUEST", 1)
        await until(lambda: server.node.replica.machine.state.waiters)
        hashed = server.node.replica.machine.state_hash()
        now_at = server.node.replica.machine.now_at
    for one in (client, waiter):
        assert await one.ended() == ""
        await one.close()
    for _ in range(3):
        async with Server(_config(data)) as server:
            state = server.node.replica.machine.state
            assert sorted(state.held) == [f"n{number}" for number in range(5)]
            assert len(state.waiters) == 1
            assert state.now_at >= now_at
            client, waiter = await _client(server), await _client(server)
            await client.call("SESSION.RESUME", session["session"], session["secret"])
            await waiter.call("SESSION.RESUME", other["session"], other["secret"])
            fences.append((await client.map("LOCK.ACQUIRE", "again"))["fence"])
            assert await client.call("LOCK.RELEASE", "again", fences[-1]) == "OK"
        for one in (client, waiter):
            await one.close()
    assert hashed
    assert fences == sorted(set(fences))
    async with Server(_config(data)) as server:
        client, waiter = await _client(server), await _client(server)
        await client.call("SESSION.RESUME", session["session"], session["secret"])
        await client.call("LOCK.RELEASE", "n0", fences[0])
        await waiter.call("SESSION.RESUME", other["session"], other["secret"])
        granted = await waiter.map("LOCK.ACQUIRE", "n0", "REQUEST", 1)
        assert granted["fence"] > fences[-1]
        for one in (client, waiter):
            await one.close()


async def test_a_server_says_where_its_journal_is_and_how_much_room_there_is(tmp_path: Path) -> None:
    """As it sees it; also how long its appends took, once there were some."""
    async with Server(_config(tmp_path / "data")) as server:
        client = await _client(server)
        await client.call("LOCK.ACQUIRE", "a")
        told = await client.map("NODE.HEALTH")
        assert (told["engine"], told["data"]) == ("file", str(tmp_path / "data"))
        assert 0 < told["disk_free_bytes"] <= told["disk_total_bytes"]
        assert told["appends"] >= 1
        assert 0 <= told["append_p50_us"] <= told["append_max_us"]
        assert (told["members"], told["members_total"], told["note"]) == ([], 0, "")
        await client.close()


async def test_a_server_that_keeps_nothing_has_no_disk_to_speak_of() -> None:
    """Null, and not zero."""
    async with serving() as box:
        told = await (await box.client(3)).map("NODE.HEALTH")
        assert (told["engine"], told["data"], told["disk_free_bytes"]) == ("memory", None, None)


async def test_a_server_whose_journal_is_nearly_full_says_when_to_come_back(tmp_path: Path) -> None:
    """New work is BUSY, with the milliseconds first; releases go on; INFO and NODE.HEALTH say how full it is."""

    async def nearly_full(within_s: float) -> Room:
        return Room("the shelf", 90 << 20, 100 << 20)

    async with Server(_config(tmp_path / "data")) as server:
        client = await _client(server)
        fence = (await client.map("LOCK.ACQUIRE", "a"))["fence"]
        server.node.journal.room = nearly_full  # type: ignore[method-assign]
        await server.node.room.look()
        busy = await client.failure("LOCK.ACQUIRE", "b")
        assert (busy.code, str(busy).split()[1]) == ("BUSY", "1000")
        assert "the shelf: 90.0 of 100 MiB are in use" in str(busy)
        assert await client.call("LOCK.RELEASE", "a", fence) == "OK"
        told = await client.map("NODE.HEALTH")
        assert (told["room"], told["room_what"], told["held_back_s"]) == ("tight", "the shelf", 0)
        facts = dict(line.split(":", 1) for line in (await client.call("INFO")).split("\r\n") if ":" in line)
        assert (facts["room"], facts["room_allowed_bytes"]) == ("tight", str(100 << 20))
        await client.close()
