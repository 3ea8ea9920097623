"""The law of a connection from the server's side, against a library that knows the whole of HTTP/2."""

from contextlib import suppress

import pytest
from h2.events import ConnectionTerminated, DataReceived, RemoteSettingsChanged, StreamEnded, StreamReset
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from fencehold.doors.grpc.http2 import heads
from fencehold.doors.grpc.http2.heads import status_block
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Broken, Cause, frame, message, numbered
from tests.unit.doors.grpc.caller import BOUNDS, HEAD, Scene


def greeted(*, initial_window_size: int = 65_535) -> Scene:
    scene = Scene(initial_window_size=initial_window_size)
    scene.exchange()
    return scene


def test_a_call_is_told_whole_and_answered_once() -> None:
    """One request, one answer, a status; and nothing is kept of it."""
    scene = greeted()
    served = scene.call()
    assert (served.messages, served.is_whole, served.head.path) == ([b"asked"], True, "/a.B/C")
    scene.server.answer(served.stream, b"told")
    scene.hear()
    assert [event.data for event in scene.of(DataReceived)] == [message(b"told")]
    assert scene.answered(1)["grpc-status"] == "0"
    assert len(scene.of(StreamEnded)) == 1
    assert scene.server.is_idle
    assert not scene.shelf.kept


def test_settings_say_what_is_taken() -> None:
    """No table, so many streams, so much metadata."""
    scene = greeted()
    (changed,) = scene.of(RemoteSettingsChanged)
    told = {int(each): value.new_value for each, value in changed.changed_settings.items()}
    assert told[frames.HEADER_TABLE_SIZE] == 0
    assert told[frames.MAX_CONCURRENT_STREAMS] == BOUNDS.streams_max
    assert told[frames.MAX_HEADER_LIST_SIZE] == BOUNDS.metadata_bytes_max


def test_no_more_is_sent_than_the_client_has_room_for() -> None:
    """The rest goes when there is room; who sends much waits until then."""
    scene = greeted(initial_window_size=100)
    scene.is_one_request = False
    served = scene.call()
    scene.server.send(served.stream, bytes(2_500))
    scene.hear()
    assert sum(len(event.data) for event in scene.of(DataReceived)) == 100
    assert scene.server.is_full(served.stream)
    kept = scene.shelf.kept
    scene.h2.increment_flow_control_window(2_405, 1)
    scene.exchange()
    assert b"".join(event.data for event in scene.of(DataReceived)) == message(bytes(2_500))
    assert (served.rooms, scene.server.is_full(served.stream), kept - scene.shelf.kept) == (1, False, 2_405)
    scene.server.finish(served.stream, heads.DONE)
    scene.hear()
    assert scene.answered(1)["grpc-status"] == "0"


def test_an_answer_that_nobody_takes_is_bounded_for_all() -> None:
    """Beyond what the listener keeps, the call is reset, and nothing of it stays."""
    scene = greeted(initial_window_size=0)
    served = [scene.call() for _ in range(4)]
    for each in served:
        scene.server.answer(each.stream, bytes(900))
    scene.hear()
    (reset,) = scene.of(StreamReset)
    assert reset.error_code == Cause.ENHANCE_YOUR_CALM
    assert scene.shelf.kept <= BOUNDS.kept_bytes_max
    scene.server.end()
    assert not scene.shelf.kept


def test_messages_that_are_not_whole_are_bounded_for_all() -> None:
    """The call that wants more than there is room for is refused, the others go on."""
    scene = greeted()
    for number in range(1, 9, 2):
        scene.h2.send_headers(number, HEAD)
        scene.h2.send_data(number, message(bytes(1_000))[:900])
    scene.exchange()
    assert [each.is_cancelled for each in scene.served] == [False, False, False, True]
    assert scene.answered(7)["grpc-status"] == str(Code.RESOURCE_EXHAUSTED.value)
    scene.h2.send_data(1, message(bytes(1_000))[900:], end_stream=True)
    scene.exchange()
    assert scene.served[0].messages == [bytes(1_000)]


def test_a_message_too_large_is_refused_by_its_length() -> None:
    """Before it has come."""
    scene = greeted()
    scene.h2.send_headers(1, HEAD)
    scene.h2.send_data(1, message(bytes(1_001))[:5])
    scene.exchange()
    assert scene.answered(1)["grpc-status"] == str(Code.RESOURCE_EXHAUSTED.value)
    assert scene.served[0].is_cancelled
    assert scene.server.is_idle


def test_a_request_that_does_not_come_to_its_end_is_given_up() -> None:
    """Half a message, or none at all, after its time; a stream that says nothing may do so."""
    scene = greeted()
    scene.h2.send_headers(1, HEAD)
    scene.call(None, end=False)
    scene.is_one_request = False
    quiet = scene.call(b"whole", end=False)
    scene.server.late(scene.now)
    assert not any(each.is_cancelled for each in scene.served)
    scene.server.late(scene.now + 1)
    scene.hear()
    assert [each.is_cancelled for each in scene.served] == [True, True, False]
    assert scene.answered(1)["grpc-status"] == str(Code.DEADLINE_EXCEEDED.value)
    assert quiet.messages == [b"whole"]


def test_a_cancelled_call_is_told_once() -> None:
    """What is said in it afterwards goes nowhere."""
    scene = greeted()
    served = scene.call()
    scene.h2.reset_stream(1, Cause.CANCEL)
    scene.exchange()
    assert served.is_cancelled
    scene.server.answer(served.stream, b"late")
    assert scene.server.take() == b""


def test_an_answer_that_was_cancelled_meanwhile_is_taken_back() -> None:
    """The client's cancellation and the answer crossed: nobody has heard of it."""
    scene, taken_back = greeted(), []
    served = scene.call()
    scene.server.answer(served.stream, b"granted", lambda: taken_back.append(1))
    scene.server.take()
    scene.raw(numbered(frames.RST_STREAM, 1, Cause.CANCEL))
    scene.raw(numbered(frames.RST_STREAM, 1, Cause.CANCEL))
    assert taken_back == [1]
    other = scene.call()
    scene.server.answer(other.stream, b"granted", lambda: taken_back.append(2))
    scene.hear()
    # Read, and hung up: it is the client's.
    scene.server.end()
    assert taken_back == [1]


def test_an_answer_that_waits_for_room_is_taken_back_when_the_client_is_gone() -> None:
    """It was not sent."""
    scene, taken_back = greeted(initial_window_size=0), []
    served = scene.call()
    scene.server.answer(served.stream, b"granted", lambda: taken_back.append(1))
    scene.server.end()
    assert taken_back == [1]


def test_streams_beyond_the_bound_are_refused_and_nothing_was_done() -> None:
    """By the cause that lets clients try elsewhere."""
    scene = greeted()
    for _ in range(4):
        scene.call()
    encoder = Encoder()
    block = bytes(encoder.encode([(*each, True) for each in HEAD]))
    scene.raw(frame(frames.HEADERS, frames.END_HEADERS, 9, block))
    assert scene.server.take() == numbered(frames.RST_STREAM, 9, Cause.REFUSED_STREAM)
    assert len(scene.served) == 4


def test_a_server_that_stops_takes_no_more_calls_and_ends_those_it_has() -> None:
    """The client is told which was the last."""
    scene = greeted()
    served = scene.call()
    scene.server.drain()
    scene.hear()
    (gone,) = scene.of(ConnectionTerminated)
    assert (gone.error_code, gone.last_stream_id) == (Cause.NO_ERROR, 1)
    scene.raw(
        frame(frames.HEADERS, frames.END_HEADERS, 3, bytes(Encoder().encode([(*each, True) for each in HEAD])))
    )
    assert scene.server.take() == numbered(frames.RST_STREAM, 3, Cause.REFUSED_STREAM)
    scene.server.answer(served.stream, b"told")
    assert scene.server.take()
    assert scene.server.is_idle


@pytest.mark.parametrize(
    "kind",
    [
        frame(frames.PING, payload=bytes(8)),
        frames.settings({}),
        frame(frames.PRIORITY, 0, 3, bytes(5)),
        frame(0xBB, 0, 0, b"unknown"),
        numbered(frames.WINDOW_UPDATE, 0, 1),
        numbered(frames.WINDOW_UPDATE, 1, 1),
        frame(frames.DATA, 0, 1),
    ],
    ids=["pings", "settings", "priorities", "unknown", "room", "room in a stream", "nothing"],
)
def test_a_client_that_is_busy_for_nothing_is_left(kind: bytes) -> None:
    """Time gives patience back, and so do calls that are answered."""
    scene = greeted()
    scene.call(b"asked", end=False)
    scene.now = 100.0
    for _ in range(BOUNDS.patience_max):
        scene.raw(kind)
    scene.now += 2
    for _ in range(2 * BOUNDS.patience_per_s):
        scene.raw(kind)
    with pytest.raises(Broken) as broken:
        scene.raw(kind)
    assert broken.value.cause == Cause.ENHANCE_YOUR_CALM
    assert frames.GOAWAY in {each.kind for each in frames.Splitter().feed(scene.server.take())}


def test_streams_that_are_reset_at_once_end_the_connection() -> None:
    """CVE-2023-44487; clients that get answers may cancel as much as they like."""
    scene, encoder = greeted(), Encoder()
    block = bytes(encoder.encode([(*each, True) for each in HEAD]))
    for at in range(5 * BOUNDS.patience_max):
        served = scene.call()
        if at % 2:
            scene.h2.reset_stream(served.stream.number, Cause.CANCEL)
            scene.exchange()
        else:
            scene.server.answer(served.stream, b"told")
            scene.hear()
    number = scene.h2.get_next_available_stream_id()
    with pytest.raises(Broken) as broken:
        scene.raw(
            *(
                frame(frames.HEADERS, frames.END_HEADERS, stream, block)
                + numbered(frames.RST_STREAM, stream, Cause.CANCEL)
                for stream in range(number, number + 1_000, 2)
            )
        )
    assert broken.value.cause == Cause.ENHANCE_YOUR_CALM


def head_of(**other: str | None) -> bytes:
    """A block of a call, with other fields; None: without it."""
    said: dict[str, str | None] = dict(HEAD)
    fields = [(name, value, True) for name, value in (said | other).items() if value is not None]
    return bytes(Encoder().encode(fields))


BEGIN = frame(frames.HEADERS, frames.END_HEADERS, 1, head_of())
LATE = frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, head_of())
BREAKING = {
    "3.4 no preface": (b"GET / HTTP/1.1\r\n\r\n", Cause.PROTOCOL_ERROR),
    "3.4 no settings first": (frames.PREFACE + frame(frames.PING, payload=bytes(8)), Cause.PROTOCOL_ERROR),
    "4.2 a frame too large": (frame(frames.DATA, 0, 1, bytes(16_385))[:9], Cause.FRAME_SIZE_ERROR),
    "4.3 headers that need a table": (
        frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xbe"),
        Cause.COMPRESSION_ERROR,
    ),
    "5.1 data in a stream that never began": (frame(frames.DATA, 0, 1, b"x"), Cause.PROTOCOL_ERROR),
    "5.1 a reset of a stream that never began": (numbered(frames.RST_STREAM, 1, 8), Cause.PROTOCOL_ERROR),
    "5.1.1 a stream of the server's": (
        frame(frames.HEADERS, frames.END_HEADERS, 2, head_of()),
        Cause.PROTOCOL_ERROR,
    ),
    "5.1.1 a stream that comes back": (
        BEGIN + numbered(frames.RST_STREAM, 1, 8) + BEGIN,
        Cause.STREAM_CLOSED,
    ),
    "6.1 data in no stream": (frame(frames.DATA, 0, 0, b"x"), Cause.PROTOCOL_ERROR),
    "6.1 all padding": (BEGIN + frame(frames.DATA, 8, 1, b"\x05abc"), Cause.PROTOCOL_ERROR),
    "6.5 settings cut short": (frame(frames.SETTINGS, 0, 0, b"abc"), Cause.FRAME_SIZE_ERROR),
    "6.5 words in an acknowledgement": (frame(frames.SETTINGS, 1, 0, bytes(6)), Cause.FRAME_SIZE_ERROR),
    "6.5.2 a push that is no number": (frames.settings({frames.ENABLE_PUSH: 2}), Cause.PROTOCOL_ERROR),
    "6.6 a push": (frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), Cause.PROTOCOL_ERROR),
    "6.9 no more room": (numbered(frames.WINDOW_UPDATE, 0, 0), Cause.PROTOCOL_ERROR),
    "6.9.1 more room than there can be": (
        numbered(frames.WINDOW_UPDATE, 0, (1 << 31) - 1),
        Cause.FLOW_CONTROL_ERROR,
    ),
    "6.10 headers that do not end": (
        frame(frames.HEADERS, 0, 1, b"") + frame(frames.PING, payload=bytes(8)),
        Cause.PROTOCOL_ERROR,
    ),
    "6.10 a continuation of nothing": (frame(frames.CONTINUATION, 4, 1, b""), Cause.PROTOCOL_ERROR),
    "headers in too many pieces": (
        frame(frames.HEADERS, 0, 1, b"") + 20 * frame(frames.CONTINUATION, 0, 1, b""),
        Cause.ENHANCE_YOUR_CALM,
    ),
    "headers without an end": (
        frame(frames.HEADERS, 0, 1, bytes(4_000)) + frame(frames.CONTINUATION, 0, 1, bytes(4_000)),
        Cause.ENHANCE_YOUR_CALM,
    ),
}


@pytest.mark.parametrize("rule", BREAKING)
def test_what_may_not_be_ends_the_connection(rule: str) -> None:
    """As the RFC says, and the client is told why."""
    said, cause = BREAKING[rule]
    scene = Scene()
    if not rule.startswith("3.4"):
        scene.raw(frames.PREFACE + frames.settings({}) + frame(frames.SETTINGS, frames.ACK))
    with pytest.raises(Broken) as broken:
        scene.raw(said)
    assert broken.value.cause == cause
    *_, last = frames.Splitter().feed(scene.server.take())
    assert (last.kind, frames.goaway_in(last.payload).cause) == (frames.GOAWAY, cause)


RESETTING = {
    "5.1 data after the end": (LATE + frame(frames.DATA, 0, 1, b"x"), Cause.STREAM_CLOSED),
    "6.9 no more room in it": (BEGIN + numbered(frames.WINDOW_UPDATE, 1, 0), Cause.PROTOCOL_ERROR),
    "6.9.1 more room in it than there can be": (
        BEGIN + numbered(frames.WINDOW_UPDATE, 1, (1 << 31) - 1),
        Cause.FLOW_CONTROL_ERROR,
    ),
    "8.1 trailers that are not the end": (
        BEGIN + frame(frames.HEADERS, frames.END_HEADERS, 1, b""),
        Cause.PROTOCOL_ERROR,
    ),
    "8.1 a request as trailers": (BEGIN + LATE, Cause.PROTOCOL_ERROR),
    **{
        f"8.2 {why}": (frame(frames.HEADERS, 5, 1, block), Cause.PROTOCOL_ERROR)
        for why, block in {
            "a name with capitals": head_of(Xx="y"),
            "connection": head_of(connection="close"),
            "te": head_of(te="gzip"),
            "a line in a value": head_of(xx="a\r\nb"),
            "no path": head_of(**{":path": None}),
            "an unknown one": head_of(**{":status": "200"}),
            "one behind the others": head_of() + head_of(),
        }.items()
    },
}


@pytest.mark.parametrize("rule", RESETTING)
def test_what_may_not_be_in_a_stream_ends_that_stream(rule: str) -> None:
    """The connection goes on."""
    said, cause = RESETTING[rule]
    scene = Scene()
    scene.raw(frames.PREFACE + frames.settings({}))
    scene.server.take()
    scene.raw(said)
    found = [each for each in frames.Splitter().feed(scene.server.take()) if each.kind == frames.RST_STREAM]
    assert [frames.cause_in(each.payload) for each in found] == [cause]
    assert scene.server.is_idle
    assert all(each.is_cancelled for each in scene.served)


def test_metadata_too_large_is_refused_by_its_call() -> None:
    """And the next one is answered."""
    scene = greeted()
    scene.h2.remote_settings.update({6: 1 << 20})
    scene.h2.send_headers(1, [*HEAD, ("x-large", "y" * 2_000)], end_stream=True)
    scene.exchange()
    assert scene.answered(1)["grpc-status"] == str(Code.RESOURCE_EXHAUSTED.value)
    assert scene.call().messages == [b"asked"]


def test_words_of_errors_survive() -> None:
    """Whatever they are; and they forge no header."""
    scene = greeted()
    served = scene.call()
    words = "100 % not yours:\r\ngrpc-status: 0 — ü"
    scene.server.refuse(served.stream, status_block(Code.ABORTED, words))
    scene.hear()
    told = scene.answered(1)
    assert told["grpc-status"] == "10"
    assert told["grpc-message"] == "100 %25 not yours:%0D%0Agrpc-status: 0 %E2%80%94 %C3%BC"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3_600), ("2M", 120), ("3S", 3), ("250m", 0.25), ("1u", 1e-6), ("99999999n", 0.099999999)],
)
def test_timeouts_are_read(text: str, seconds: float) -> None:
    """In each unit of gRPC."""
    assert heads.timeout_in(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", "²S", " 1S"])
def test_what_is_no_timeout_is_none(text: str) -> None:
    """None is guessed."""
    assert heads.timeout_in(text) is None


some_words = st.one_of(
    st.binary(max_size=30),
    st.builds(frame, st.integers(0, 11), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=40)),
    st.sampled_from([BEGIN, LATE, frame(frames.DATA, 1, 1, message(b"x")), numbered(frames.RST_STREAM, 1, 8)]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(some_words, max_size=12))
def test_whatever_comes_nothing_but_what_is_understood_is_raised(parts: list[bytes]) -> None:
    """And nothing of it stays when the connection ends."""
    scene = Scene()
    scene.raw(frames.PREFACE + frames.settings({}))
    with suppress(Broken):
        scene.raw(*parts)
    for served in scene.served:
        scene.server.answer(served.stream, b"told")
    scene.server.end()
    assert scene.shelf.kept == 0
