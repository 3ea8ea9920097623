"""What RFC 9113 lets nobody send, and what it tells to ignore: the sections are its own."""

from collections.abc import Callable

import pytest
from h2.errors import ErrorCodes as Cause
from h2.events import ConnectionTerminated, StreamReset
from hpack import Encoder

from fencehold.drivers.etcd.http2 import conversation
from fencehold.drivers.etcd.http2.conversation import Conversation, Stream
from fencehold.drivers.etcd.http2.status import Status
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Broken, frame, message, numbered
from tests.unit.drivers.etcd.http2.peer import BEGIN, BLOCK, OK, Asker, Peer, greeted

STREAM, IDLE, EVEN = 1, 3, 2
WINDOW_MAX = (1 << 31) - 1
RESERVED = 1 << 31


def asked() -> tuple[Conversation, Peer, Asker]:
    """Stream 1 is open on both sides."""
    client, peer = greeted()
    asker = Asker()
    client.send(client.begin(BLOCK, asker), message(b"request"), is_last=True)
    peer.exchange(client)
    return client, peer, asker


def answering() -> tuple[Conversation, Peer, Asker]:
    """The same, with an answer begun."""
    client, peer, asker = asked()
    peer.h2.send_headers(STREAM, BEGIN)
    peer.tell(client)
    return client, peer, asker


def headers(*pairs: tuple[str, str]) -> bytes:
    encoder = Encoder()
    encoder.header_table_size = 0
    return bytes(encoder.encode(list(pairs)))


def breaks(client: Conversation, peer: Peer, said: bytes, cause: Cause) -> None:
    """The connection is at an end, and the other side is told why."""
    with pytest.raises(Broken):
        client.feed(said)
    peer.events += peer.h2.receive_data(client.take())
    assert [event.error_code for event in peer.of(ConnectionTerminated)] == [cause]


def ends_stream(client: Conversation, peer: Peer, asker: Asker, said: bytes, cause: Cause) -> None:
    """This call is at an end, and the other side is told why; another goes on."""
    other = Asker()
    stream = client.begin(BLOCK, other)
    client.send(stream, message(b"request"), is_last=True)
    peer.exchange(client)
    client.feed(said)
    assert asker.status is not None
    assert (asker.status.code, asker.status.is_sent) == (Code.INTERNAL, True)
    peer.exchange(client)
    assert [(event.stream_id, event.error_code) for event in peer.of(StreamReset)] == [(STREAM, cause)]
    peer.answer(client, stream.number, b"answer")
    assert other.messages == [b"answer"]


BREAKING: dict[str, tuple[bytes, Cause]] = {
    "5.1 data in an idle stream": (frame(frames.DATA, 0, IDLE, b"x"), Cause.PROTOCOL_ERROR),
    "5.1 headers in an idle stream": (
        frame(frames.HEADERS, frames.END_HEADERS, IDLE, headers(*BEGIN)),
        Cause.PROTOCOL_ERROR,
    ),
    "5.1 a reset of an idle stream": (numbered(frames.RST_STREAM, IDLE, Cause.CANCEL), Cause.PROTOCOL_ERROR),
    "5.1 room in an idle stream": (numbered(frames.WINDOW_UPDATE, IDLE, 1), Cause.PROTOCOL_ERROR),
    "5.1.1 a stream of the server's": (
        frame(frames.HEADERS, frames.END_HEADERS, EVEN, headers(*BEGIN)),
        Cause.PROTOCOL_ERROR,
    ),
    "6.1 data in no stream": (frame(frames.DATA, 0, 0, b"x"), Cause.PROTOCOL_ERROR),
    "6.2 headers in no stream": (
        frame(frames.HEADERS, frames.END_HEADERS, 0, headers(*BEGIN)),
        Cause.PROTOCOL_ERROR,
    ),
    "6.2 headers shorter than what comes before them": (
        frame(frames.HEADERS, frames.END_HEADERS | 0x20, STREAM, b"1234"),
        Cause.FRAME_SIZE_ERROR,
    ),
    "6.2 padding over what comes before headers": (
        frame(frames.HEADERS, frames.END_HEADERS | 0x28, STREAM, b"\x03" + bytes(7)),
        Cause.PROTOCOL_ERROR,
    ),
    "6.3 a priority in no stream": (frame(frames.PRIORITY, 0, 0, bytes(5)), Cause.PROTOCOL_ERROR),
    "6.3 a priority of four bytes": (frame(frames.PRIORITY, 0, STREAM, bytes(4)), Cause.FRAME_SIZE_ERROR),
    "6.4 a reset of no stream": (numbered(frames.RST_STREAM, 0, Cause.CANCEL), Cause.PROTOCOL_ERROR),
    "6.4 a reset of five bytes": (frame(frames.RST_STREAM, 0, STREAM, bytes(5)), Cause.FRAME_SIZE_ERROR),
    "6.5 settings in a stream": (frame(frames.SETTINGS, 0, STREAM), Cause.PROTOCOL_ERROR),
    "6.5 settings in an acknowledgement": (
        frame(frames.SETTINGS, frames.ACK, 0, bytes(6)),
        Cause.FRAME_SIZE_ERROR,
    ),
    "6.5 settings cut short": (frame(frames.SETTINGS, 0, 0, bytes(7)), Cause.FRAME_SIZE_ERROR),
    "6.5.2 a server that would be pushed to": (frames.settings({frames.ENABLE_PUSH: 1}), Cause.PROTOCOL_ERROR),
    "6.5.2 room beyond all measure": (
        frames.settings({frames.INITIAL_WINDOW_SIZE: WINDOW_MAX + 1}),
        Cause.FLOW_CONTROL_ERROR,
    ),
    "6.5.3 a setting that is wrong, and put right in the same frame": (
        frame(frames.SETTINGS, 0, 0, bytes.fromhex("000500000000 000500004000")),
        Cause.PROTOCOL_ERROR,
    ),
    "6.6 a push": (frame(frames.PUSH_PROMISE, frames.END_HEADERS, STREAM, b"\0\0\0\x02"), Cause.PROTOCOL_ERROR),
    "6.7 a ping in a stream": (frame(frames.PING, 0, STREAM, bytes(8)), Cause.PROTOCOL_ERROR),
    "6.7 a ping of seven bytes": (frame(frames.PING, 0, 0, bytes(7)), Cause.FRAME_SIZE_ERROR),
    "6.8 going away in a stream": (frame(frames.GOAWAY, 0, STREAM, bytes(8)), Cause.PROTOCOL_ERROR),
    "6.8 going away in seven bytes": (frame(frames.GOAWAY, 0, 0, bytes(7)), Cause.FRAME_SIZE_ERROR),
    "6.9 no more room": (numbered(frames.WINDOW_UPDATE, 0, 0), Cause.PROTOCOL_ERROR),
    "6.9 room in five bytes": (frame(frames.WINDOW_UPDATE, 0, STREAM, b"\0\0\0\1\0"), Cause.FRAME_SIZE_ERROR),
    "6.9.1 more room than there can be": (
        numbered(frames.WINDOW_UPDATE, 0, WINDOW_MAX),
        Cause.FLOW_CONTROL_ERROR,
    ),
    "6.10 a continuation in no stream": (frame(frames.CONTINUATION, 0, 0, b"x"), Cause.PROTOCOL_ERROR),
    "6.10 something unknown between headers": (
        frame(frames.HEADERS, 0, STREAM, headers(*BEGIN)) + frame(77, 0, 0),
        Cause.PROTOCOL_ERROR,
    ),
    "7541 headers that cannot be read": (
        frame(frames.HEADERS, frames.END_HEADERS, STREAM, b"\xff\xff\xff\xff\xff"),
        Cause.COMPRESSION_ERROR,
    ),
}


@pytest.mark.parametrize("said", BREAKING)
def test_what_breaks_a_connection(said: str) -> None:
    """It ends, whoever asked is told, and the other side hears which rule it was."""
    client, peer, _ = asked()
    breaks(client, peer, *BREAKING[said])


def test_settings_come_first() -> None:
    """3.4: whoever begins with anything else does not speak HTTP/2."""
    client = Conversation()
    with pytest.raises(Broken, match="before the settings"):
        client.feed(frame(frames.PING, payload=bytes(8)))


def test_settings_that_give_a_stream_more_room_than_there_can_be_break() -> None:
    """6.9.2: the stream had been given some already."""
    client, peer, _ = asked()
    client.feed(numbered(frames.WINDOW_UPDATE, STREAM, WINDOW_MAX - frames.WINDOW_BYTES))
    breaks(client, peer, frames.settings({frames.INITIAL_WINDOW_SIZE: 70_000}), Cause.FLOW_CONTROL_ERROR)


FAILING: dict[str, tuple[Callable[[], tuple[Conversation, Peer, Asker]], bytes, Cause]] = {
    "6.9 no more room": (asked, numbered(frames.WINDOW_UPDATE, STREAM, 0), Cause.PROTOCOL_ERROR),
    "6.9.1 more room than there can be": (
        asked,
        numbered(frames.WINDOW_UPDATE, STREAM, WINDOW_MAX),
        Cause.FLOW_CONTROL_ERROR,
    ),
    "8.1 data before headers": (asked, frame(frames.DATA, 0, STREAM, message(b"x")), Cause.PROTOCOL_ERROR),
    "8.1 headers twice": (
        answering,
        frame(frames.HEADERS, frames.END_HEADERS, STREAM, headers(("more", "1"))),
        Cause.PROTOCOL_ERROR,
    ),
    "8.1 a status at the end": (
        answering,
        frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, STREAM, headers(*BEGIN, *OK)),
        Cause.PROTOCOL_ERROR,
    ),
    "8.3.2 headers without a status": (
        asked,
        frame(frames.HEADERS, frames.END_HEADERS, STREAM, headers(BEGIN[1])),
        Cause.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("said", FAILING)
def test_what_ends_a_stream(said: str) -> None:
    """And that alone."""
    scene, words, cause = FAILING[said]
    ends_stream(*scene(), words, cause)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(frame(11, 0xFF, 0, b"anything"), id="4.1 an unknown kind"),
        pytest.param(frame(200, 0, IDLE, b"anything"), id="4.1 an unknown kind in an idle stream"),
        pytest.param(frame(frames.PING, 0xFE | frames.ACK, 0, bytes(8)), id="4.1 flags that a ping has not"),
        pytest.param(frame(frames.SETTINGS, 0xFE | frames.ACK), id="4.1 flags that settings have not"),
        pytest.param(frame(frames.WINDOW_UPDATE, 0xFF, STREAM, b"\0\0\0\1"), id="4.1 flags that room has not"),
        pytest.param(frame(frames.PRIORITY, 0xFF, IDLE, bytes(5)), id="5.1 a priority of an idle stream"),
        pytest.param(frame(frames.PRIORITY, 0, EVEN, bytes(5)), id="5.1 a priority of a server's stream"),
        pytest.param(numbered(frames.WINDOW_UPDATE, 0, RESERVED | 1), id="6.9 the bit before the room"),
        pytest.param(numbered(frames.WINDOW_UPDATE, RESERVED | STREAM, 1), id="4.1 the bit before the stream"),
    ],
)
def test_what_is_to_be_ignored_is(said: bytes) -> None:
    """Nothing is answered, and the call goes on."""
    client, peer, asker = asked()
    client.feed(said)
    assert client.take() == b""
    peer.answer(client, STREAM, b"answer")
    assert (asker.messages, asker.status) == ([b"answer"], Status(Code.OK))


def test_settings_that_nobody_knows_are_acknowledged() -> None:
    """6.5.2: they may mean something to others."""
    client, _, _ = asked()
    client.feed(frames.settings({0x99: 7}))
    assert client.take() == frame(frames.SETTINGS, frames.ACK)


def test_a_continuation_does_not_end_a_stream() -> None:
    """4.1: its flag that would mean so in the frame it continues means nothing here."""
    client, _, asker = asked()
    block = headers(*BEGIN)
    client.feed(frame(frames.HEADERS, 0, STREAM, block[:1]))
    client.feed(frame(frames.CONTINUATION, frames.END_HEADERS | frames.END_STREAM, STREAM, block[1:]))
    assert asker.status is None
    client.feed(frame(frames.DATA, 0, STREAM, message(b"answer")))
    assert asker.messages == [b"answer"]


def test_a_cause_has_no_bit_to_ignore() -> None:
    """6.4: with another bit it is another cause, and not the one that makes certain that nothing happened."""
    client, _, asker = asked()
    client.feed(numbered(frames.RST_STREAM, STREAM, RESERVED | Cause.REFUSED_STREAM))
    assert asker.status == Status(Code.UNAVAILABLE, "the stream was reset: cause 2147483655", is_sent=True)


def test_what_comes_late_is_dropped() -> None:
    """5.1: for a stream that is over, the other side may have said it before it knew."""
    client, peer, _ = answering()
    peer.h2.send_headers(STREAM, OK, end_stream=True)
    peer.tell(client)
    for late in (
        frame(frames.DATA, 0, STREAM, message(b"late")),
        frame(frames.HEADERS, frames.END_HEADERS, STREAM, headers(*BEGIN)),
        numbered(frames.RST_STREAM, STREAM, Cause.NO_ERROR),
        numbered(frames.WINDOW_UPDATE, STREAM, WINDOW_MAX),
        numbered(frames.WINDOW_UPDATE, STREAM, WINDOW_MAX),
    ):
        client.feed(late)
        assert client.take() == b""


def test_that_an_answer_is_on_its_way_is_no_answer() -> None:
    """8.1: any number of headers with a status below 200 may come before it."""
    client, peer, asker = asked()
    for _ in range(3):
        client.feed(frame(frames.HEADERS, frames.END_HEADERS, STREAM, headers((":status", "103"))))
    peer.answer(client, STREAM, b"answer")
    assert (asker.messages, asker.status) == ([b"answer"], Status(Code.OK))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """A window that is soon full."""
    monkeypatch.setattr(conversation, "_STREAM_WINDOW_BYTES", 100_000)
    return 100_000


def unread(client: Conversation, peer: Peer) -> tuple[Stream, Asker]:
    """A stream that is told things, which nobody reads."""
    asker = Asker()
    stream = client.begin(BLOCK, asker)
    client.send(stream, message(b"watch"))
    peer.exchange(client)
    peer.h2.send_headers(stream.number, BEGIN)
    peer.tell(client)
    return stream, asker


@pytest.mark.parametrize("padding", [0, 200])
def test_who_sends_more_than_there_is_room_for_is_broken_with(small: int, padding: int) -> None:
    """6.9.1: what nobody has read is kept up to the window, and not a byte more; padding takes up room as well."""
    client, peer = greeted()
    stream, asker = unread(client, peer)
    flags, around = (0x8, bytes([padding])) if padding else (0, b"")
    payload = around + message(bytes(10_000 - 5 - padding - len(around))) + bytes(padding)
    # Padding is gone as it comes, so its room is given back, together with what is read.
    for _ in range(small // 10_000):
        client.feed(frame(frames.DATA, flags, stream.number, payload))
    assert len(asker.messages) == 10
    breaks(client, peer, frame(frames.DATA, 0, stream.number, b"\0"), Cause.FLOW_CONTROL_ERROR)
    assert len(asker.messages) == 10


def test_a_message_that_does_not_end_takes_no_more_room_than_there_is(small: int) -> None:
    """It is kept in pieces until it is whole."""
    client, peer = greeted()
    stream, _ = unread(client, peer)
    client.feed(frame(frames.DATA, 0, stream.number, message(bytes(1 << 20))[:10_000]))
    for _ in range(9):
        client.feed(frame(frames.DATA, 0, stream.number, bytes(10_000)))
    breaks(client, peer, frame(frames.DATA, 0, stream.number, bytes(10_000)), Cause.FLOW_CONTROL_ERROR)


def test_what_is_read_makes_room(small: int) -> None:
    """As much as the other side was told, and no more."""
    client, peer = greeted()
    stream, asker = unread(client, peer)
    part = frame(frames.DATA, 0, stream.number, message(bytes(10_000 - 5)))
    for _ in range(10):
        client.feed(part)
    for _ in range(6):
        client.on_read(stream, len(asker.messages.pop()))
    assert client.take() == numbered(frames.WINDOW_UPDATE, stream.number, 60_000)
    for _ in range(6):
        client.feed(part)
    breaks(client, peer, frame(frames.DATA, 0, stream.number, b"\0"), Cause.FLOW_CONTROL_ERROR)
