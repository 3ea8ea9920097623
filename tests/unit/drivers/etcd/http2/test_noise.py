"""Whatever comes: no error but the one that callers understand, nobody told twice, and no more kept than agreed.

The windows are small here, so that a few frames fill them. `FENCEHOLD_EXAMPLES` is how often each is tried.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from fencehold.drivers.etcd.http2 import conversation
from fencehold.drivers.etcd.http2.conversation import Conversation, Stream
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Broken, frame, headers_in, message
from tests.unit.drivers.etcd.http2.peer import BEGIN, BLOCK, OK, Asker, Peer

WINDOW_BYTES = 4_000
MESSAGE_BYTES_MAX = 1_000
BLOCK_BYTES_MAX = 3_000
tried = settings(max_examples=int(os.environ.get("FENCEHOLD_EXAMPLES", "100")), deadline=None)
CALLS = 3
"""In streams 1, 3 and 5; the last one goes on."""
REQUEST = message(bytes(1_000))


class Listener(Asker):
    """Keeps all that it is told, as one does who never reads."""

    @property
    def unread_bytes(self) -> int:
        return sum(frames.MESSAGE_HEAD_BYTES + len(each) for each in self.messages)


class Scene:
    """A conversation with calls under way, and an eye on what it keeps."""

    def __init__(self) -> None:
        self.client = Conversation()
        self.calls: list[tuple[Stream, Listener]] = []
        for number in range(CALLS):
            listener = Listener()
            stream = self.client.begin(BLOCK, listener)
            self.client.send(stream, REQUEST, is_last=number < CALLS - 1)
            self.calls.append((stream, listener))
        self.said_bytes = len(self.client.take())
        self.fed_bytes = 0

    def feed(self, parts: Iterable[bytes]) -> None:
        """All of it, as far as it makes sense."""
        with suppress(Broken):
            for part in parts:
                self.fed_bytes += len(part)
                try:
                    self.client.feed(part)
                finally:
                    self.see_bounds()
        self.client.end(Code.UNAVAILABLE, "over")
        assert all(listener.status is not None for _, listener in self.calls)

    def see_bounds(self) -> None:
        for stream, listener in self.calls:
            assert listener.unread_bytes + len(stream.heard) <= WINDOW_BYTES
        assert self.client._pieces.kept <= BLOCK_BYTES_MAX
        assert len(self.client._splitter._rest) < frames.FRAME_BYTES + 9
        # A word for a word: nobody makes this side say more than some bytes for each frame, or than it was to say.
        self.said_bytes += len(self.client.take())
        assert self.said_bytes <= 3 * self.fed_bytes + CALLS * (len(REQUEST) + len(BLOCK) + 100) + 200


@contextmanager
def small() -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversation, "_STREAM_WINDOW_BYTES", WINDOW_BYTES)
        patch.setattr(conversation, "_WINDOW_BYTES", 70_000)
        patch.setattr(conversation, "MESSAGE_BYTES_MAX", MESSAGE_BYTES_MAX)
        patch.setattr(conversation, "_BLOCK_BYTES_MAX", BLOCK_BYTES_MAX)
        yield Scene()


GREETING = frames.settings({})
BEGUN = frame(frames.HEADERS, frames.END_HEADERS, 5, Encoder().encode([(*each, True) for each in BEGIN]))


@tried
@given(st.booleans(), st.lists(st.binary(max_size=200), max_size=8))
def test_bytes_that_mean_nothing(is_greeted: bool, noise: list[bytes]) -> None:
    """Before the greeting and after it."""
    with small() as scene:
        scene.feed([GREETING, *noise] if is_greeted else noise)


payloads = st.one_of(
    st.binary(max_size=40),
    st.integers(0, (1 << 32) - 1).map(lambda number: number.to_bytes(4, "big")),
    st.integers(0, 2 * WINDOW_BYTES).map(bytes),
    st.integers(0, 2 * MESSAGE_BYTES_MAX).map(lambda size: message(bytes(size))),
    st.sampled_from([bytes(5), bytes(6), bytes(8), b"\x88", b"\x88" + bytes(5), message(b"x")]),
)
some_frames = st.builds(
    frame,
    st.integers(0, 11),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D, 0xFF]),
    st.sampled_from([0, 1, 2, 3, 5, 7, 1 << 31]),
    payloads,
)


@tried
@given(st.lists(some_frames, max_size=25))
def test_frames_that_make_no_sense(soup: list[bytes]) -> None:
    """They look right, each of them."""
    with small() as scene:
        scene.feed([GREETING, BEGUN, *soup])


def told() -> list[bytes]:
    """What a server says that does everything right: three answers, one of them large, and a farewell."""
    client, peer = Conversation(), Peer()
    for number in range(CALLS):
        client.send(client.begin(BLOCK, Asker()), REQUEST, is_last=number < CALLS - 1)
    said: list[bytes] = []

    def note() -> None:
        data = peer.h2.data_to_send()
        said.extend(_cut(data))

    note()
    peer.h2.receive_data(client.take())
    peer.h2.send_headers(1, BEGIN)
    peer.h2.send_data(1, message(b"answer"), pad_length=7)
    peer.h2.send_headers(1, OK, end_stream=True)
    peer.h2.ping(b"12345678")
    note()
    peer.h2.send_headers(5, BEGIN)
    for _ in range(3):
        peer.h2.send_data(5, message(bytes(900)))
    peer.h2.increment_flow_control_window(1_000)
    peer.h2.increment_flow_control_window(1_000, 5)
    note()
    peer.h2.send_headers(3, [*BEGIN, ("grpc-status", "14"), ("grpc-message", "no")], end_stream=True)
    peer.h2.reset_stream(5)
    peer.h2.close_connection(11, b"too_many_pings")
    note()
    return said


def _cut(data: bytes) -> list[bytes]:
    return [frame(*each) for each in frames.Splitter().feed(data)]


TOLD = told()


def test_what_is_not_spoilt_is_understood() -> None:
    """So that it is the spoiling that the next test tries."""
    with small() as scene:
        for each in TOLD:
            scene.client.feed(each)
        (_, first), (_, second), (_, third) = scene.calls
        assert (first.messages, second.messages, third.unread_bytes) == ([b"answer"], [], 3 * 905)
        assert [each.status.code for each in (first, second, third) if each.status] == [
            Code.OK,
            Code.UNAVAILABLE,
            Code.UNAVAILABLE,
        ]
        assert scene.client.is_too_many_pings


@st.composite
def spoilt(draw: st.DrawFn) -> list[bytes]:
    """The same with frames left out, said twice, moved and changed, cut anywhere."""
    said = list(TOLD)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(said) - 1))
        match draw(st.sampled_from(["drop", "repeat", "move", "byte", "shorten", "flags", "stream"])):
            case "drop":
                del said[at]
            case "repeat":
                said[at:at] = [said[at]] * draw(st.integers(1, 5))
            case "move":
                one = said.pop(at)
                said.insert(draw(st.integers(0, len(said))), one)
            case "byte":
                data = bytearray(said[at])
                data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
                said[at] = bytes(data)
            case "shorten":
                said[at] = said[at][: draw(st.integers(1, len(said[at])))]
            case "flags":
                said[at] = said[at][:4] + bytes([draw(st.integers(0, 255))]) + said[at][5:]
            case "stream":
                said[at] = said[at][:5] + draw(st.integers(0, 8)).to_bytes(4, "big") + said[at][9:]
    whole = b"".join(said)
    cuts = draw(st.lists(st.integers(0, len(whole)), max_size=6))
    return [whole[start:end] for start, end in pairwise([0, *sorted(cuts), len(whole)])]


@tried
@given(spoilt())
def test_what_was_right_and_is_spoilt(said: list[bytes]) -> None:
    """One bit of another server's fault is enough to be far from anything that is random."""
    with small() as scene:
        scene.feed(said)


@tried
@given(st.binary(max_size=300))
def test_headers_that_mean_nothing(block: bytes) -> None:
    """They are read, or they break."""
    with suppress(Broken):
        assert all(isinstance(value, str) for value in headers_in(block).values())
