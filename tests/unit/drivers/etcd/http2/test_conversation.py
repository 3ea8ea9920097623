"""One connection as a script: what is said, what is heard, and what whoever asked is told."""

import struct

import pytest
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, SettingsAcknowledged, StreamEnded, StreamReset
from hpack import Encoder

from fencehold.drivers.etcd.http2 import conversation
from fencehold.drivers.etcd.http2.conversation import MESSAGE_BYTES_MAX, Conversation, Stream
from fencehold.drivers.etcd.http2.status import Status
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Broken, message
from tests.unit.drivers.etcd.http2.peer import BEGIN, BLOCK, Asker, Peer, greeted


def ask(client: Conversation, data: bytes = b"request") -> tuple[Stream, Asker]:
    """Begin a call and say all of it."""
    asker = Asker()
    stream = client.begin(BLOCK, asker)
    client.send(stream, message(data), is_last=True)
    return stream, asker


def watch(client: Conversation, peer: Peer) -> tuple[Stream, Asker]:
    """Begin a call that goes on."""
    asker = Asker()
    stream = client.begin(BLOCK, asker)
    client.send(stream, message(b"watch"))
    peer.exchange(client)
    peer.h2.send_headers(stream.number, BEGIN)
    return stream, asker


def test_a_call_is_heard_and_answered() -> None:
    """One request, one answer, and the end."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    assert dict(peer.of(RequestReceived)[0].headers)[":path"] == "/etcdserverpb.KV/Put"
    assert peer.of(DataReceived)[0].data == message(b"request")
    assert peer.of(StreamEnded)
    peer.answer(client, stream.number, b"answer")
    assert (asker.messages, asker.status) == ([b"answer"], Status(Code.OK))
    assert client.is_idle
    assert client.take() == b""


def test_the_first_settings_are_acknowledged() -> None:
    """Each side knows that the other has heard it."""
    _, peer = greeted()
    assert peer.of(SettingsAcknowledged)


def test_calls_are_answered_in_any_order() -> None:
    """Each by its own stream."""
    client, peer = greeted()
    asked = [ask(client) for _ in range(3)]
    peer.exchange(client)
    for stream, asker in reversed(asked):
        peer.answer(client, stream.number, b"%d" % stream.number)
        assert asker.messages == [b"%d" % stream.number]


@pytest.mark.parametrize("size", [65_530, 65_531, 200_000, 1 << 20])
def test_a_large_request_waits_for_room(size: int) -> None:
    """Windows of a stream and of all of them are kept; the library at the other side allows nothing more."""
    client, peer = greeted()
    stream, _ = ask(client, bytes(size))
    peer.exchange(client)
    done = 0
    while not peer.of(StreamEnded):
        heard = peer.of(DataReceived)
        assert len(heard) > done
        for event in heard[done:]:
            peer.h2.acknowledge_received_data(event.flow_controlled_length, stream.number)
        done = len(heard)
        peer.tell(client)
        peer.exchange(client)
    assert b"".join(event.data for event in peer.of(DataReceived)) == message(bytes(size))


def test_room_that_settings_give_or_take_is_for_streams_under_way() -> None:
    """RFC 9113, 6.9.2: the first window of a stream changes for those that began with another."""
    client, peer = greeted(initial_window_size=10)
    stream, _ = ask(client, bytes(20))
    peer.exchange(client)
    assert sum(len(event.data) for event in peer.of(DataReceived)) == 10
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 5})
    peer.tell(client)
    peer.h2.increment_flow_control_window(5, stream.number)
    peer.tell(client)
    peer.exchange(client)
    assert sum(len(event.data) for event in peer.of(DataReceived)) == 10
    peer.h2.update_settings({frames.INITIAL_WINDOW_SIZE: 100})
    peer.tell(client)
    peer.exchange(client)
    assert peer.of(StreamEnded)


def test_no_more_streams_than_the_other_side_takes() -> None:
    """The others begin in their order, as the first ones end; one that nobody waits for any more does not."""
    client, peer = greeted(max_concurrent_streams=2)
    asked = [ask(client, b"%d" % number) for number in range(5)]
    peer.exchange(client)
    assert len(peer.of(RequestReceived)) == 2
    client.cancel(asked[2][0])
    peer.answer(client, asked[0][0].number, b"answer")
    peer.exchange(client)
    assert [event.data for event in peer.of(DataReceived)] == [message(b"0"), message(b"1"), message(b"3")]
    client.cancel(asked[1][0])
    peer.exchange(client)
    assert len(peer.of(RequestReceived)) == 4
    assert len(peer.of(StreamReset)) == 1


def test_messages_in_pieces_and_several_at_once_are_told_one_by_one() -> None:
    """Frames and messages have nothing to do with each other."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    peer.h2.send_headers(stream.number, BEGIN)
    whole = message(b"first") + message(b"") + message(b"third")
    for start in range(0, len(whole), 7):
        peer.h2.send_data(stream.number, whole[start : start + 7])
    peer.tell(client)
    assert asker.messages == [b"first", b"", b"third"]
    assert asker.status is None


def test_an_error_is_told_with_its_words() -> None:
    """They come percent-encoded, and without any answer before them."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    end = [*BEGIN, ("grpc-status", "14"), ("grpc-message", "etcdserver: 100%25 f%C3%BCr")]
    peer.h2.send_headers(stream.number, end, end_stream=True)
    peer.tell(client)
    assert asker.status == Status(Code.UNAVAILABLE, "etcdserver: 100% für")


@pytest.mark.parametrize(
    ("http", "code"),
    [
        ("400", Code.INTERNAL),
        ("401", Code.UNAUTHENTICATED),
        ("403", Code.PERMISSION_DENIED),
        ("404", Code.UNIMPLEMENTED),
        ("429", Code.UNAVAILABLE),
        ("500", Code.UNKNOWN),
        ("502", Code.UNAVAILABLE),
        ("503", Code.UNAVAILABLE),
        ("504", Code.UNAVAILABLE),
        ("302", Code.UNKNOWN),
    ],
)
def test_who_answers_by_http_alone_is_understood(http: str, code: Code) -> None:
    """As gRPC understands it; whether a proxy has passed the request on is not told here."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    peer.h2.send_headers(stream.number, [(":status", http)], end_stream=True)
    peer.tell(client)
    assert asker.status == Status(code, f"HTTP {http} instead of an answer", is_sent=True)


@pytest.mark.parametrize("number", ["x", "99", "", "-1", "+1", " 0", "00", "1" * 5_000])
def test_a_status_that_nobody_knows_leaves_doubt(number: str) -> None:
    """Also one of more digits than Python reads."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    encoder = Encoder()
    encoder.header_table_size = 0
    block = encoder.encode([*BEGIN, ("grpc-status", number)])
    client.feed(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.number, block))
    assert asker.status == Status(Code.UNKNOWN, f"its status is {number[:9]!r}", is_sent=True)


def test_a_page_with_a_good_status_is_no_answer() -> None:
    """A portal that wants to be logged in to says 200 to everything."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    peer.h2.send_headers(stream.number, [(":status", "200"), ("content-type", "text/html")])
    peer.h2.send_data(stream.number, b"<html>")
    peer.tell(client)
    assert asker.status == Status(Code.UNKNOWN, "it answered with something that is not gRPC")


def test_a_page_instead_of_an_answer_is_not_read() -> None:
    """By its status it is known before its end, and no more of it is taken."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    peer.h2.send_headers(stream.number, [(":status", "404"), ("content-type", "text/html")])
    peer.tell(client)
    assert asker.status == Status(Code.UNIMPLEMENTED, "HTTP 404 instead of an answer")
    peer.exchange(client)
    assert peer.of(StreamReset)


def test_an_answer_that_ends_without_a_status_is_none() -> None:
    """Whether it was all of it, nobody knows."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    peer.h2.send_headers(stream.number, BEGIN)
    peer.h2.send_data(stream.number, message(b"answer"), end_stream=True)
    peer.tell(client)
    assert asker.status == Status(Code.INTERNAL, "it ended without a status")


def test_a_message_that_is_too_large_ends_its_call_alone() -> None:
    """It is known by its first bytes, and the rest is not taken."""
    client, peer = greeted()
    (stream, asker), (other, other_asker) = ask(client), ask(client)
    peer.exchange(client)
    peer.h2.send_headers(stream.number, BEGIN)
    peer.h2.send_data(stream.number, message(bytes(MESSAGE_BYTES_MAX + 1))[:100])
    peer.tell(client)
    assert asker.status is not None
    assert asker.status.code is Code.RESOURCE_EXHAUSTED
    assert asker.status.details.startswith("Received message larger than max")
    peer.exchange(client)
    assert [event.stream_id for event in peer.of(StreamReset)] == [stream.number]
    peer.answer(client, other.number, b"answer")
    assert other_asker.messages == [b"answer"]


def test_a_compressed_message_breaks() -> None:
    """Nobody asked for it."""
    client, peer = greeted()
    stream, _ = ask(client)
    peer.exchange(client)
    peer.h2.send_headers(stream.number, BEGIN)
    peer.h2.send_data(stream.number, b"\x01\0\0\0\x01x")
    with pytest.raises(Broken, match="compressed"):
        peer.tell(client)


@pytest.mark.parametrize(
    ("cause", "code", "is_sent"),
    [
        (ErrorCodes.REFUSED_STREAM, Code.UNAVAILABLE, False),
        (ErrorCodes.CANCEL, Code.CANCELLED, True),
        (ErrorCodes.INTERNAL_ERROR, Code.UNAVAILABLE, True),
    ],
)
def test_only_a_refused_stream_is_certain_to_have_done_nothing(
    cause: ErrorCodes, code: Code, is_sent: bool
) -> None:
    """RFC 9113, 8.7; any other reset leaves doubt."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    peer.h2.reset_stream(stream.number, cause)
    peer.tell(client)
    assert asker.status is not None
    assert (asker.status.code, asker.status.is_sent) == (code, is_sent)
    assert client.is_idle


def test_who_goes_away_says_what_it_has_not_looked_at() -> None:
    """Streams up to the last one go on; later ones, and those that wait, certainly did nothing."""
    client, peer = greeted(max_concurrent_streams=2)
    asked = [ask(client) for _ in range(3)]
    peer.exchange(client)
    client.feed(frames.frame(frames.GOAWAY, payload=b"\0\0\0\x01\0\0\0\0"))
    first, second, third = (asker for _, asker in asked)
    assert client.is_ending
    assert first.status is None
    assert second.status == third.status == Status(Code.UNAVAILABLE, "it takes no more calls", is_sent=False)
    client.feed(frames.frame(frames.RST_STREAM, 0, 1, b"\0\0\0\x02"))
    assert client.is_idle


@pytest.mark.parametrize(
    ("cause", "words", "farewell"),
    [
        (ErrorCodes.ENHANCE_YOUR_CALM, b"too_many_pings", "ENHANCE_YOUR_CALM: too_many_pings"),
        (ErrorCodes.NO_ERROR, b"max_age", "max_age"),
        (ErrorCodes.INTERNAL_ERROR, b"", "INTERNAL_ERROR"),
        (0x99, b"caf\xe9", "cause 153: caf\\xe9"),
        (ErrorCodes.NO_ERROR, b"w" * 1_000, "w" * 200),
    ],
)
def test_who_goes_away_says_why(cause: int, words: bytes, farewell: str) -> None:
    """In words that may be anything; they are cut, and put into letters."""
    client, peer = greeted()
    _, asker = ask(client)
    peer.exchange(client)
    client.feed(frames.frame(frames.GOAWAY, payload=struct.pack(">II", 0, cause) + words))
    assert client.farewell == farewell
    assert client.is_too_many_pings == (words == b"too_many_pings")
    assert asker.status == Status(Code.UNAVAILABLE, f"it takes no more calls: {farewell}", is_sent=False)


def test_what_was_never_taken_was_never_sent() -> None:
    """A connection may end between the asking and the writing; then certainly nothing happened."""
    client, peer = greeted()
    (_, sent) = ask(client)
    peer.exchange(client)
    (_, unsent) = ask(client)
    client.end(Code.UNAVAILABLE, "it hung up")
    assert sent.status == Status(Code.UNAVAILABLE, "it hung up", is_sent=True)
    assert unsent.status == Status(Code.UNAVAILABLE, "it hung up", is_sent=False)


def test_when_the_connection_is_gone_all_are_told() -> None:
    """Those that were sent are in doubt; one that waited for its turn is not."""
    client, peer = greeted(max_concurrent_streams=1)
    (_, sent), (_, waiting) = ask(client), ask(client)
    peer.exchange(client)
    client.end(Code.UNAVAILABLE, "it hung up")
    assert sent.status == Status(Code.UNAVAILABLE, "it hung up", is_sent=True)
    assert waiting.status == Status(Code.UNAVAILABLE, "it takes no more calls", is_sent=False)
    assert client.is_ending


def test_what_comes_for_a_call_that_was_cancelled_is_dropped() -> None:
    """The other side had said it before it heard."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    client.cancel(stream)
    peer.answer(client, stream.number, b"answer")
    assert (asker.messages, asker.status) == ([], None)


def test_a_ping_is_answered() -> None:
    """With what it carried; an answer to one of ours is not."""
    client, _ = greeted()
    client.feed(frames.frame(frames.PING, payload=b"12345678"))
    assert client.take() == frames.frame(frames.PING, frames.ACK, payload=b"12345678")
    client.feed(frames.frame(frames.PING, frames.ACK, payload=b"12345678"))
    assert client.take() == b""


def test_answers_to_pings_can_wait_while_they_are_few_and_little_is_sent() -> None:
    """A request is then one write; they are given when asked for, when there are several, or with much."""
    ping, sign = (frames.frame(frames.PING, flags, payload=b"12345678") for flags in (0, frames.ACK))
    client, _ = greeted()
    client.feed(ping)
    assert client.owes_signs
    assert client.take(signs_can_wait=True) == b""
    assert client.take() == sign
    assert client.take() == b""
    client.feed(4 * ping)
    assert client.take(signs_can_wait=True) == 4 * sign
    client.feed(ping)
    client.send(client.begin(b"", Asker()), message(bytes(100)), is_last=True)
    assert sign not in client.take(signs_can_wait=True)
    client.send(client.begin(b"", Asker()), message(bytes(20_000)), is_last=True)
    assert client.take(signs_can_wait=True).endswith(sign)


def test_a_stream_that_is_read_has_room_for_ever() -> None:
    """Windows grow as messages are read: of the stream, and of the connection."""
    client, peer = greeted()
    stream, asker = watch(client, peer)
    part = message(bytes(16_000))
    for _ in range(8_000):
        assert peer.h2.local_flow_control_window(stream.number) >= len(part)
        peer.h2.send_data(stream.number, part)
        peer.tell(client)
        client.on_read(stream, len(asker.messages.pop()))
        peer.exchange(client)


def test_small_messages_and_padding_use_up_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What frames a message counts as well: a stream of many small ones would come to a halt one day."""
    monkeypatch.setattr(conversation, "_STREAM_WINDOW_BYTES", 70_000)
    client, peer = greeted()
    stream, asker = watch(client, peer)
    for number in range(5_000):
        peer.h2.send_data(stream.number, message(b"x"), pad_length=number % 3 or None)
        peer.tell(client)
        client.on_read(stream, len(asker.messages.pop()))
        peer.exchange(client)
        assert peer.h2.local_flow_control_window(stream.number) > 30_000


def test_nothing_begins_on_a_connection_that_ends() -> None:
    """Whoever asks is told at once that nothing was sent."""
    client, _ = greeted()
    client.end(Code.UNAVAILABLE, "it hung up")
    _, asker = ask(client)
    assert asker.status == Status(Code.UNAVAILABLE, "it takes no more calls", is_sent=False)
    assert client.is_idle
    assert client.take() == b""


def test_when_numbers_run_out_those_who_wait_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would wait for ever; there are enough numbers on another connection."""
    monkeypatch.setattr(conversation, "_NUMBER_MAX", 4)
    client, peer = greeted(max_concurrent_streams=1)
    asked = [ask(client) for _ in range(4)]
    peer.exchange(client)
    for stream, _ in asked[:2]:
        peer.answer(client, stream.number, b"answer")
        peer.exchange(client)
    assert [asker.messages for _, asker in asked[:2]] == [[b"answer"], [b"answer"]]
    assert client.is_ending
    for _, asker in asked[2:]:
        assert asker.status is not None
        assert not asker.status.is_sent


def test_headers_in_pieces_are_put_together() -> None:
    """And nothing may come between them."""
    client, peer = greeted()
    stream, asker = ask(client)
    peer.exchange(client)
    long = [*BEGIN, ("grpc-status", "13"), ("grpc-message", "x" * 40_000)]
    peer.h2.send_headers(stream.number, long, end_stream=True)
    peer.tell(client)
    assert asker.status == Status(Code.INTERNAL, "x" * 40_000)
    half = frames.frame(frames.HEADERS, 0, 3, b"\x88")
    client.feed(half)
    with pytest.raises(Broken, match="do not end"):
        client.feed(frames.frame(frames.PING, payload=bytes(8)))


def test_headers_without_beginning_or_end_break() -> None:
    """They are not kept for ever."""
    client, _ = greeted()
    with pytest.raises(Broken, match="beginning"):
        client.feed(frames.frame(frames.CONTINUATION, 0, 1, b"x"))
    more = frames.frame(frames.CONTINUATION, 0, 1, bytes(16_000))
    client.feed(frames.frame(frames.HEADERS, 0, 1, bytes(16_000)) + 3 * more)
    with pytest.raises(Broken, match="without an end"):
        client.feed(2 * more)


def test_a_request_with_large_headers_is_sent_in_pieces() -> None:
    """A token may be longer than a frame."""
    client, peer = greeted(max_header_list_size=1 << 20)
    block = frames.request_block("http", "localhost:1", "/call", 1, (("token", "t" * 40_000),))
    stream = client.begin(block, Asker())
    client.send(stream, message(b"request"), is_last=True)
    peer.exchange(client)
    assert dict(peer.of(RequestReceived)[0].headers)["token"] == "t" * 40_000


def test_room_beyond_all_measure_breaks() -> None:
    """RFC 9113, 6.9.1."""
    client, _ = greeted()
    with pytest.raises(Broken, match="room"):
        client.feed(frames.numbered(frames.WINDOW_UPDATE, 0, (1 << 31) - 1))


@pytest.mark.parametrize(
    "wanted",
    [
        {frames.MAX_FRAME_SIZE: 0},
        {frames.MAX_FRAME_SIZE: 1 << 24},
        {frames.INITIAL_WINDOW_SIZE: 1 << 31},
    ],
)
def test_settings_that_nobody_may_want_break(wanted: dict[int, int]) -> None:
    """RFC 9113, 6.5.2. With frames of no bytes, a request would be cut into pieces for ever."""
    client, _ = greeted()
    with pytest.raises(Broken):
        client.feed(frames.settings(wanted))


HEAD = Encoder().encode([(":status", "200"), ("content-type", "application/grpc")])
DONE = Encoder().encode([("grpc-status", "0")])
FAILED = Encoder().encode([("grpc-status", "14"), ("grpc-message", "etcdserver: no leader")])
NO_GRPC = Encoder().encode([(":status", "200"), ("content-type", "text/html")])


def answer_bytes(
    stream: int, *, head: bytes = HEAD, body: bytes = b"", trailer: bytes = DONE, flags: int = 0, other: int = 0
) -> bytes:
    """Headers, data and trailers, as a server of gRPC writes them at once."""
    return (
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, head)
        + frames.frame(frames.DATA, flags, other or stream, body or message(b"answer"))
        + frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, trailer)
    )


@pytest.mark.parametrize(
    "unusual",
    [
        {},
        {"body": message(b"")},
        {"body": message(bytes(16_000))},
        {"body": message(b"one") + message(b"two")},
        {"body": message(b"cut")[:-1]},
        {"body": b"\x01" + message(b"packed")[1:]},
        {"body": b"\0\0"},
        {"trailer": FAILED},
        {"trailer": HEAD},
        {"trailer": b"\xff\xff\xff"},
        {"head": NO_GRPC},
        {"head": DONE},
        {"head": b"\xff\xff\xff"},
        {"flags": frames.END_STREAM},
        {"other": 3},
    ],
)
def test_an_answer_that_comes_whole_means_what_its_bytes_mean_one_by_one(unusual: dict[str, bytes]) -> None:
    """Nearly all answers are taken in one step; that must make no difference."""

    def told(pieces: int) -> tuple[object, ...]:
        client, peer = greeted()
        stream, asker = ask(client)
        _, other = ask(client)
        peer.exchange(client)
        data, broken = answer_bytes(stream.number, **unusual), ""  # type: ignore[arg-type]
        size = len(data) if pieces == 1 else 1
        try:
            for at in range(0, len(data), size):
                client.feed(data[at : at + size])
        except Broken as error:
            broken = str(error).partition(" from <memory")[0]
        return asker.messages, asker.status, other.messages, other.status, broken, client.take(), client.is_idle

    assert told(1) == told(2)


def test_an_answer_whole_or_not_is_taken_after_others_that_were_cut() -> None:
    """Wherever what comes is cut into pieces."""
    client, peer = greeted()
    asked = [ask(client) for _ in range(3)]
    peer.exchange(client)
    data = b"".join(answer_bytes(stream.number) for stream, _ in asked)
    size = len(data) // 3
    client.feed(data[: size + 5])
    client.feed(data[size + 5 : 2 * size])
    client.feed(data[2 * size :])
    assert [asker.messages for _, asker in asked] == [[b"answer"]] * 3
    assert client.is_idle


def test_answers_taken_whole_use_up_room_and_give_it_back() -> None:
    """As those that come in pieces do."""
    client, _ = greeted()
    body = message(bytes(16_000))
    for _ in range(conversation._WINDOW_BYTES // 2 // len(body) + 1):
        stream, _ = ask(client)
        client.take()
        client.feed(answer_bytes(stream.number, body=body))
    assert client.take().startswith(b"\0\0\4\x08")
