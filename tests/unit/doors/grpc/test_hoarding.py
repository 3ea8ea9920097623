"""Clients that have answers made and take none, or send requests and let none be answered."""

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest
from h2.events import DataReceived, StreamReset

from fencehold.doors.grpc.calls import Calls, Method
from fencehold.doors.grpc.http2.connection import Begin, ConnectionBounds, GrpcConnection
from fencehold.doors.grpc.http2.conversation import Conversation
from fencehold.doors.grpc.http2.heads import Head
from fencehold.doors.grpc.http2.streams import ConversationBounds, Shelf, Stream
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Broken, Cause, frame, message, numbered
from fencehold.drivers.http2.header_blocks import field
from tests.unit.doors.grpc.caller import BOUNDS, HEAD, Scene, Served

BLOCK = b"\x83\x86" + field(b":path", b"/a.B/C") + field(b"content-type", b"application/grpc")
GREETING = frames.PREFACE + frames.settings({frames.INITIAL_WINDOW_SIZE: 0}) + frame(frames.SETTINGS, frames.ACK)


def greeted(*, initial_window_size: int = 65_535) -> Scene:
    scene = Scene(initial_window_size=initial_window_size)
    scene.exchange()
    return scene


class Counted(Stream):
    """A stream that counts how often it is looked at for something to send."""

    looks = 0

    @property
    def to_send(self) -> bytearray:
        Counted.looks += 1
        return self._to_send

    @to_send.setter
    def to_send(self, value: bytearray) -> None:
        self._to_send = value


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda _: numbered(frames.WINDOW_UPDATE, 0, 1), id="room for all of them together"),
        pytest.param(lambda _: frames.settings({frames.INITIAL_WINDOW_SIZE: 0}), id="settings as they were"),
        pytest.param(lambda n: frames.settings({frames.MAX_FRAME_SIZE: 16_384 + n}), id="other settings"),
        pytest.param(
            lambda n: frames.settings({frames.INITIAL_WINDOW_SIZE: 0}) if n % 2 else frames.settings({4: 1}),
            id="room, and none again",
        ),
    ],
)
def test_a_frame_that_gives_no_stream_room_has_none_looked_at(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand answers that wait, each would be looked at, thousands of times for one read."""
    monkeypatch.setattr("fencehold.doors.grpc.http2.conversation.Stream", Counted)
    bounds, streams = ConversationBounds(), []

    def begin(stream: Stream, head: Head) -> Served:
        streams.append(stream)
        return Served(stream, head, is_one_request=True)

    server = Conversation(bounds, Shelf(bounds.kept_bytes_max), begin, 0.0)
    server.feed(GREETING, 0.0)
    for number in range(1, 2 * bounds.streams_max, 2):
        whole = frame(frames.DATA, frames.END_STREAM, number, message(b"asked"))
        server.feed(frame(frames.HEADERS, frames.END_HEADERS, number, BLOCK) + whole, 0.0)
    for stream in streams:
        server.answer(stream, bytes(5_000))
    Counted.looks = 0
    with suppress(Broken):
        for each in range(4_000):
            server.feed(given(each), 0.0)
    assert Counted.looks < 500 * bounds.streams_max


def test_who_waits_for_room_is_told_when_there_is_however_it_came() -> None:
    """A client may take what is sent bit by bit."""
    scene = greeted(initial_window_size=0)
    scene.is_one_request = False
    served = scene.call()
    scene.server.send(served.stream, bytes(2_500))
    assert scene.server.is_full(served.stream)
    for _ in range(5):
        scene.h2.increment_flow_control_window(501, 1)
        scene.exchange()
    assert sum(len(event.data) for event in scene.of(DataReceived)) == 2_505
    assert served.rooms == 1


def test_who_sends_much_waits_until_it_is_written() -> None:
    """A window may have room for gigabytes: what is made in one turn has a bound, and what is not taken."""
    scene = greeted(initial_window_size=(1 << 31) - 1)
    scene.h2.increment_flow_control_window((1 << 31) - 1 - frames.WINDOW_BYTES)
    scene.is_one_request = False
    served = scene.call()
    sent = 0
    while not scene.server.is_full(served.stream):
        scene.server.send(served.stream, bytes(900))
        sent += 905
        assert sent < 10_000
    scene.server.hold()
    first = scene.server.take()
    assert len(first) < 2 * BOUNDS.unsent_bytes_max
    assert scene.server.take() == b""
    assert (scene.server.is_full(served.stream), served.rooms) == (True, 0)
    scene.events += scene.h2.receive_data(first)
    scene.server.go_on()
    scene.hear()
    assert sum(len(event.data) for event in scene.of(DataReceived)) == sent
    assert served.rooms == 1


def test_an_answer_waits_while_nothing_is_taken() -> None:
    """The one answer of a call as well."""
    scene = greeted()
    served = scene.call()
    scene.server.hold()
    scene.server.answer(served.stream, bytes(900))
    head = scene.server.take()
    assert bytes(900) not in head
    scene.events += scene.h2.receive_data(head)
    scene.server.go_on()
    scene.hear()
    assert scene.answered(1)["grpc-status"] == "0"
    assert not scene.shelf.kept


def test_whole_requests_that_wait_for_their_end_are_kept_within_the_bound() -> None:
    """A message that is whole, in a request that is not, is kept as one that is cut."""
    scene = greeted()
    scene.now = 1.0
    for number in range(1, 9, 2):
        scene.h2.send_headers(number, HEAD)
        scene.h2.send_data(number, message(bytes(1_000)))
    scene.exchange()
    assert [each.is_cancelled for each in scene.served] == [False, False, False, True]
    assert scene.answered(7)["grpc-status"] == str(Code.RESOURCE_EXHAUSTED.value)
    scene.server.end()
    assert not scene.shelf.kept


def test_messages_that_are_read_are_kept_no_more() -> None:
    """In a stream there is room for as many as are read."""
    scene = greeted()
    scene.is_one_request = False
    served = scene.call(bytes(900), end=False)
    for _ in range(50):
        scene.server.on_read(served.stream, 900)
        scene.hear()
        scene.h2.send_data(1, message(bytes(900)))
        scene.exchange()
    assert (len(served.messages), served.is_cancelled) == (51, False)


def test_the_largest_message_comes_through_whatever_was_read_before() -> None:
    """Its length and its head fit into a window of which half was read, and not given back yet."""
    size = BOUNDS.message_bytes_max
    for first in range(size - 20, size + 1):
        scene = greeted()
        scene.is_one_request = False
        served = scene.call(bytes(first), end=False)
        scene.server.on_read(served.stream, first)
        scene.exchange()
        scene.hear()
        scene.h2.send_data(1, message(bytes(size)))
        scene.exchange()
        assert served.messages == [bytes(first), bytes(size)]


def test_who_hoards_leaves_room_for_others() -> None:
    """A connection keeps no more than is left, and one that takes what it is sent needs none of it."""
    hoarder, other = greeted(initial_window_size=0), greeted()
    other.server = Conversation(BOUNDS, hoarder.shelf, other._begin, 0.0)
    other.h2 = Scene().h2
    other.exchange()
    hoarder.is_one_request = other.is_one_request = False
    for each in [hoarder.call() for _ in range(4)]:
        for _ in range(10):
            hoarder.server.send(each.stream, bytes(900))
    hoarder.hear()
    assert {event.error_code for event in hoarder.of(StreamReset)} == {Cause.ENHANCE_YOUR_CALM}
    assert hoarder.shelf.left >= BOUNDS.kept_bytes_max // 2 - 1_000
    served = other.call()
    for _ in range(60):
        other.server.send(served.stream, bytes(900))
        other.hear()
    assert not other.of(StreamReset)
    other.server.end()
    hoarder.server.end()
    assert not hoarder.shelf.kept


class Wire:
    """A transport whose other end takes nothing."""

    def __init__(self) -> None:
        self.written = 0
        self.is_reading = True
        self.is_gone = False
        self.connection: GrpcConnection | None = None

    def write(self, data: bytes) -> None:
        self.written += len(data)
        if self.written > 65_536 and self.is_reading and self.connection is not None:
            self.connection.pause_writing()

    def pause_reading(self) -> None:
        self.is_reading = False

    def is_closing(self) -> bool:
        return self.is_gone

    def abort(self) -> None:
        self.is_gone = True

    def get_extra_info(self, _name: str) -> Any:
        return None


def connected(calls: Calls, wire: Wire, clock: ConnectionBounds = ConnectionBounds()) -> GrpcConnection:  # noqa: B008
    bounds = ConversationBounds()
    begin = Begin(calls.begin, lambda _: None, lambda _: None)
    connection = GrpcConnection(begin, Shelf(bounds.kept_bytes_max), bounds, clock)
    wire.connection = connection
    connection.connection_made(cast(asyncio.BaseTransport, wire))
    return connection


class _Said:
    def SerializeToString(self) -> bytes:
        return bytes(50_000)


def _calls(calls_max: int = 16_384) -> Calls:
    async def endless(_request: Any, _call: Any) -> Any:
        while True:
            yield _Said()

    method = Method(bytes, endless, is_client_streaming=False, is_server_streaming=True)
    return Calls(
        {"/a.B/C": method},
        lambda error: (Code.RESOURCE_EXHAUSTED, str(error), ()),
        calls_max=calls_max,
        message_bytes_max=65_536,
    )


async def test_a_client_that_takes_nothing_has_little_made_for_it() -> None:
    """With windows as large as can be, and calls whose answers have no end."""
    wire, calls = Wire(), _calls()
    connection = connected(calls, wire)
    much = frames.settings({frames.INITIAL_WINDOW_SIZE: frames.WINDOW_BYTES_MAX})
    connection.data_received(frames.PREFACE + much + numbered(frames.WINDOW_UPDATE, 0, 1 << 30))
    for number in range(1, 21, 2):
        whole = frame(frames.DATA, frames.END_STREAM, number, message(b"asked"))
        connection.data_received(frame(frames.HEADERS, frames.END_HEADERS, number, BLOCK) + whole)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not wire.is_reading
    assert wire.written < 4 * 65_536
    connection.connection_lost(None)
    await calls.close()


async def test_a_client_that_hoards_calls_leaves_some_for_others() -> None:
    """A connection has no more than are left for all others."""
    calls = _calls(calls_max=16)
    connections = [connected(calls, Wire()) for _ in range(5)]
    for each in connections:
        each.data_received(GREETING)
        for number in range(1, 41, 2):
            whole = frame(frames.DATA, frames.END_STREAM, number, message(b"asked"))
            each.data_received(frame(frames.HEADERS, frames.END_HEADERS, number, BLOCK) + whole)
    assert [each.conversation.streams for each in connections] == [8, 4, 2, 1, 1]
    for each in connections:
        each.connection_lost(None)
    await calls.close()


async def test_a_greeting_has_its_time_however_slowly_it_comes() -> None:
    """A byte now and then is not a greeting."""
    wire = Wire()
    connection = connected(_calls(), wire, ConnectionBounds(ping_s=0.02, ping_answer_s=600.0, request_s_max=0.1))
    slowly = iter(frames.PREFACE + frame(frames.SETTINGS, payload=bytes(6_000)))
    async with asyncio.timeout(50):
        while not wire.is_gone:
            connection.data_received(bytes([next(slowly)]))
            await asyncio.sleep(0.01)
    connection.connection_lost(None)
