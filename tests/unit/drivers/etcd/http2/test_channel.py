"""Calls over a socket: connecting, waiting, giving up, and going on with another connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    PingReceived,
    RequestReceived,
    StreamReset,
)

from fencehold.drivers.etcd.http2 import connection as lines
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import message
from rig.processes import free_port
from tests.unit.drivers.etcd.http2.peer import BEGIN
from tests.unit.drivers.etcd.http2.server import Server, call, serving


async def test_calls_share_one_connection(loop_factory: Any) -> None:
    """Also those that begin before it is there."""
    async with serving() as (server, channel):
        words = [b"%d" % number for number in range(50)]
        assert await asyncio.gather(*(call(channel, word) for word in words)) == words
        assert len(server.connections) == 1


async def test_a_call_that_is_late_is_given_up_and_withdrawn(loop_factory: Any) -> None:
    """It may have been acted upon; the other side is told that nobody waits, and the next call goes on."""
    async with serving() as (server, channel):
        server.is_mute = True
        asked = asyncio.create_task(call(channel, timeout=0.2))
        await server.until(lambda: server.of(DataReceived))
        # A sign of life, without which the connection would be left.
        server.connections[-1].ping(bytes(8))
        server.say()
        with pytest.raises(CallFailed) as caught:
            await asked
        assert (caught.value.code, caught.value.is_sent) == (Code.DEADLINE_EXCEEDED, True)
        await server.until(lambda: server.of(StreamReset))
        assert dict(server.of(RequestReceived)[0].headers)["grpc-timeout"] == "200m"
        server.is_mute = False
        assert await call(channel) == b"hello"


async def test_a_call_that_is_cancelled_is_withdrawn(loop_factory: Any) -> None:
    """The other side is told."""
    async with serving() as (server, channel):
        server.is_mute = True
        task = asyncio.create_task(call(channel))
        await server.until(lambda: server.of(DataReceived))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.of(StreamReset))


async def test_a_connection_that_broke_is_made_anew(loop_factory: Any) -> None:
    """The call under way is in doubt; the next one is not kept waiting."""
    async with serving() as (server, channel):
        server.is_mute = True
        task = asyncio.create_task(call(channel))
        await server.until(lambda: server.of(DataReceived))
        server.writers[0].close()
        with pytest.raises(CallFailed) as caught:
            await task
        assert (caught.value.code, caught.value.is_sent) == (Code.UNAVAILABLE, True)
        server.is_mute = False
        assert await call(channel) == b"hello"
        assert len(server.connections) == 2


async def test_who_goes_away_is_left_when_its_calls_are_done(loop_factory: Any) -> None:
    """A call under way ends on the old connection, a new one begins on another; then the old one is closed."""
    async with serving() as (server, channel):
        server.is_mute = True
        old = asyncio.create_task(call(channel, b"old"))
        await server.until(lambda: server.of(DataReceived))
        asked = server.of(DataReceived)[0]
        server.is_mute = False
        server.writers[0].write(frames.frame(frames.GOAWAY, payload=bytes([0, 0, 0, 1, 0, 0, 0, 0])))
        while len(server.connections) < 2:
            with suppress(CallFailed):
                assert await call(channel, b"new") == b"new"
        assert not old.done()
        server.answer(server.connections[0], asked)
        server.say(0)
        assert await old == b"old"
        await server.until(lambda: 0 in server.ended)
        assert await call(channel, b"newer") == b"newer"
        assert len(server.connections) == 2


async def test_nobody_there_is_told_at_once(loop_factory: Any) -> None:
    """And certainly nothing happened."""
    channel = Channel(f"127.0.0.1:{free_port()}")
    with pytest.raises(CallFailed, match=r"refused|Connect call failed") as caught:
        await call(channel)
    assert (caught.value.code, caught.value.is_sent) == (Code.UNAVAILABLE, False)
    await channel.close()


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(40)])
async def test_who_does_not_speak_http2_was_asked_nothing(loop_factory: Any, words: bytes) -> None:
    """Nothing is sent before the other side has said that it understands."""
    async with serving() as (server, channel):
        server.first_words = words
        with pytest.raises(CallFailed) as caught:
            await call(channel, timeout=5)
        assert (caught.value.code, caught.value.is_sent) == (Code.UNAVAILABLE, False)


async def test_who_takes_connections_and_says_nothing_was_asked_nothing(loop_factory: Any) -> None:
    """The caller's own deadline is kept."""
    kept: list[asyncio.StreamWriter] = []
    mute = await asyncio.start_server(lambda _, writer: kept.append(writer), "127.0.0.1", 0)
    channel = Channel(f"127.0.0.1:{mute.sockets[0].getsockname()[1]}")
    with pytest.raises(CallFailed) as caught:
        await call(channel, timeout=0.05)
    assert (caught.value.code, caught.value.is_sent) == (Code.DEADLINE_EXCEEDED, False)
    await channel.close()
    for writer in kept:
        writer.close()
    mute.close()


async def test_a_connection_that_gives_no_sign_of_life_is_given_up(
    loop_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody waits it is asked; one that answers is kept, and one where nobody waits is not asked."""
    monkeypatch.setattr(lines, "_SILENCE_S", 0.05)
    monkeypatch.setattr(lines, "_SIGN_S", 0.2)

    async with serving() as (server, channel):
        assert await call(channel) == b"hello"
        server.is_mute = True
        waiting = asyncio.create_task(call(channel))
        await server.until(lambda: len(server.of(PingReceived)) >= 3)
        assert not waiting.done()
        server.writers[0].transport.pause_reading()
        with pytest.raises(CallFailed, match="no keep-alive was answered") as caught:
            await waiting
        assert (caught.value.code, caught.value.is_sent) == (Code.UNAVAILABLE, True)


async def test_who_was_not_heard_since_a_late_call_is_left(loop_factory: Any) -> None:
    """A connection that somebody on the way has dropped says nothing for ever: the next call uses another."""
    async with serving() as (server, channel):
        assert await call(channel) == b"hello"
        server.writers[0].transport.pause_reading()
        with pytest.raises(CallFailed) as caught:
            await call(channel, timeout=0.05)
        assert caught.value.is_sent
        assert await call(channel, timeout=5) == b"hello"
        assert len(server.connections) == 2


@pytest.mark.parametrize(
    "last_words", [b"", frames.frame(frames.GOAWAY, payload=bytes(8))], ids=["gone", "goaway"]
)
async def test_who_greets_and_goes_was_asked_nothing(loop_factory: Any, last_words: bytes) -> None:
    """Also by a talk, which has no deadline that would end it."""
    async with serving() as (server, channel):
        server.first_words = frames.settings({}) + last_words
        for _ in range(3):
            with pytest.raises(CallFailed) as caught:
                await call(channel, timeout=20)
            assert (caught.value.code, caught.value.is_sent) == (Code.UNAVAILABLE, False)
            with pytest.raises(CallFailed):
                await asyncio.wait_for(channel.stream_stream("/watch", bytes, bytes)().read(), 20)


async def test_a_line_that_ends_is_closed_when_its_last_call_is_cancelled(loop_factory: Any) -> None:
    """Not only when it is answered."""
    async with serving() as (server, channel):
        server.is_mute = True
        task = asyncio.create_task(call(channel))
        await server.until(lambda: server.of(DataReceived))
        line = channel._line
        server.writers[0].write(frames.frame(frames.GOAWAY, payload=bytes([0, 0, 0, 1, 0, 0, 0, 0])))
        while line is not None and line.is_open:  # noqa: ASYNC110 - it comes with the next turns of the loop
            await asyncio.sleep(0)
        task.cancel()
        await server.until(lambda: 0 in server.ended)


async def test_a_talk_goes_back_and_forth(loop_factory: Any) -> None:
    """Until it is cancelled, which the other side is told, or its time is up."""
    async with serving() as (server, channel):
        server.is_mute = True
        talk = channel.stream_stream("/watch", bytes, bytes)(timeout=30)
        await talk.write(b"one")
        await server.until(lambda: server.of(DataReceived))
        server.connections[0].send_headers(1, BEGIN)
        server.connections[0].send_data(1, message(b"first") + message(b"second"))
        server.say()
        assert [await talk.read(), await talk.read()] == [b"first", b"second"]
        reading = asyncio.create_task(talk.read())
        await asyncio.sleep(0)
        talk.cancel()
        talk.cancel()
        with pytest.raises(CallFailed, match="cancelled here"):
            await reading
        with pytest.raises(CallFailed, match="cancelled here"):
            await talk.write(b"two")
        await server.until(lambda: server.of(StreamReset))
        late = channel.stream_stream("/watch", bytes, bytes)(timeout=0.05)
        await late.write(b"one")
        with pytest.raises(CallFailed) as caught:
            await late.read()
        assert caught.value.code is Code.DEADLINE_EXCEEDED


async def test_a_talk_that_is_over_says_so(loop_factory: Any) -> None:
    """None after its last words; the other side ended it."""
    async with serving() as (_, channel):
        talk = channel.stream_stream("/watch", bytes, bytes)()
        await talk.write(b"one")
        assert [await talk.read(), await talk.read(), await talk.read()] == [b"one", None, None]


async def test_after_closing_nothing_is_called(loop_factory: Any) -> None:
    """Calls under way fail, later ones are refused, and no task is left."""
    async with serving() as (server, channel):
        server.is_mute = True
        waiting = asyncio.create_task(call(channel))
        await server.until(lambda: server.of(DataReceived))
        await channel.close()
        with pytest.raises(CallFailed, match="closed here"):
            await waiting
        with pytest.raises(CallFailed, match="closed here") as caught:
            await call(channel)
        assert not caught.value.is_sent


async def test_closing_ends_an_attempt_to_connect(loop_factory: Any) -> None:
    """Those who waited for the connection are told."""
    kept: list[asyncio.StreamWriter] = []
    came = asyncio.Event()

    def keep(_: object, writer: asyncio.StreamWriter) -> None:
        kept.append(writer)
        came.set()

    mute = await asyncio.start_server(keep, "127.0.0.1", 0)
    channel = Channel(f"127.0.0.1:{mute.sockets[0].getsockname()[1]}")
    waiting = asyncio.create_task(call(channel))
    await came.wait()
    await channel.close()
    with pytest.raises(CallFailed, match="closed here"):
        await waiting
    for writer in kept:
        writer.close()
    mute.close()


async def test_a_call_begun_while_the_transport_closes_was_not_sent(loop_factory: Any) -> None:
    """Between the other side's hanging up and our hearing of it nothing is written any more."""
    async with serving() as (server, channel):
        assert await call(channel) == b"hello"
        line = channel._line
        assert line is not None
        line._transport.close()
        with pytest.raises(CallFailed) as caught:
            await line.ask(channel.block("/call", 5, ()), b"hello", 5)
        assert (caught.value.code, caught.value.is_sent) == (Code.UNAVAILABLE, False)
        assert len(server.of(DataReceived)) == 1


async def test_a_call_begun_while_the_transport_closes_finds_another_connection(loop_factory: Any) -> None:
    """The caller does not notice."""
    async with serving() as (server, channel):
        assert await call(channel) == b"hello"
        line = channel._line
        assert line is not None
        line._transport.close()
        assert await call(channel, timeout=20) == b"hello"
        assert len(server.connections) == 2


async def test_a_call_begun_after_the_others_last_word_finds_another_connection(loop_factory: Any) -> None:
    """It has ended its side; over TLS the transport does not say yet that it is closing."""
    async with serving() as (server, channel):
        assert await call(channel) == b"hello"
        line = channel._line
        assert line is not None
        line.eof_received()
        assert not line.is_open
        assert await call(channel, timeout=20) == b"hello"
        assert len(server.connections) == 2


async def test_who_breaks_the_rules_is_told_and_left(loop_factory: Any) -> None:
    """The call under way is in doubt, and the next one goes elsewhere."""
    async with serving() as (server, channel):
        server.is_mute = True
        waiting = asyncio.create_task(call(channel))
        await server.until(lambda: server.of(DataReceived))
        server.writers[0].write(frames.frame(frames.DATA, 0, 99, b"x") * 2)
        with pytest.raises(CallFailed, match="never began") as caught:
            await asyncio.wait_for(waiting, 20)
        assert (caught.value.code, caught.value.is_sent) == (Code.UNAVAILABLE, True)
        await server.until(lambda: 0 in server.ended)
        assert [event.error_code for event in server.of(ConnectionTerminated)] == [ErrorCodes.PROTOCOL_ERROR]
        server.is_mute = False
        assert await call(channel) == b"hello"


@asynccontextmanager
async def deaf_server() -> AsyncIterator[tuple[Any, Any, "asyncio.Task[bytes]"]]:
    """A server that reads no more, a line to it that is full, and a call that waits there."""
    async with serving() as (server, channel):
        server.is_mute = True
        waiting = asyncio.create_task(call(channel))
        await server.until(lambda: server.of(DataReceived))
        line = channel._line
        assert line is not None
        server.writers[0].transport.pause_reading()
        line._transport.write(bytes(64 << 20))
        yield server, line, waiting


async def test_who_breaks_the_rules_and_does_not_listen_is_left_all_the_same(
    loop_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not take is thrown away after a moment."""
    monkeypatch.setattr(lines, "_FAREWELL_S", 0.05)

    async with deaf_server() as (server, line, waiting):
        server.writers[0].write(frames.frame(frames.DATA, 0, 99, b"x"))
        with pytest.raises(CallFailed, match="never began"):
            await asyncio.wait_for(waiting, 20)
        async with asyncio.timeout(20):
            await line._over


async def test_who_asks_and_does_not_listen_is_left(loop_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ping is answered, and answers that nobody takes are kept only up to a bound."""
    monkeypatch.setattr(lines, "_UNTAKEN_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(lines, "_FAREWELL_S", 0.05)

    async with deaf_server() as (server, line, waiting):
        server.writers[0].write(frames.frame(frames.PING, payload=bytes(8)))
        with pytest.raises(CallFailed, match="does not read the replies") as caught:
            await asyncio.wait_for(waiting, 20)
        assert caught.value.is_sent
        async with asyncio.timeout(20):
            await line._over


async def test_a_ping_is_answered_though_nothing_else_is_to_be_said(loop_factory: Any) -> None:
    """A moment later at the most; a call that comes before does not wait for it."""
    async with serving() as (server, channel):
        await call(channel)
        server.connections[-1].ping(b"12345678")
        server.say()
        assert await call(channel) == b"hello"
        await server.until(lambda: server.of(PingAckReceived))
        assert server.of(PingAckReceived)[0].ping_data == b"12345678"


class Strict(Server):
    """Hangs up on its first two callers when they ask for a sign of life, in the words of servers of gRPC."""

    def __init__(self) -> None:
        super().__init__()
        self.is_mute = True
        self.begun_at = 0.0
        self.pings_after_s: list[float] = []

    def on_event(self, h2: H2Connection, event: Event) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(event, RequestReceived):
            self.begun_at = now
        elif isinstance(event, PingReceived):
            self.pings_after_s.append(now - self.begun_at)
            if len(self.connections) < 3:
                h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM, b"too_many_pings")
                self.say()
                self.writers[-1].close()


async def test_who_is_asked_too_often_is_asked_half_as_often(
    loop_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reason is told; a connection after it waits longer, and is kept when that is long enough."""
    monkeypatch.setattr(lines, "_SILENCE_S", 0.05)

    async with serving(Strict()) as (server, channel):
        for silence_s in (0.1, 0.2):
            with pytest.raises(CallFailed, match="hung up: ENHANCE_YOUR_CALM: too_many_pings") as caught:
                await asyncio.wait_for(call(channel), 20)
            assert (caught.value.code, caught.value.is_sent) == (Code.UNAVAILABLE, True)
            assert channel._pace.silence_s == silence_s
        quiet = asyncio.create_task(call(channel))
        await server.until(lambda: len(server.pings_after_s) == 3)
        assert server.pings_after_s[2] > 0.15
        assert not quiet.done()
        quiet.cancel()


def test_there_is_an_end_to_asking_less_often() -> None:
    """A server that is never content must not make a dead connection go unnoticed for ever."""
    pace = lines.KeepAlivePace()
    for _ in range(100):
        pace.slow_down()
    assert pace.silence_s == 320.0
