"""Frames and header blocks: what is written can be read by others, and what is read is checked."""

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.frames import Broken, Frame

some_frames = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=50)),
    max_size=8,
)


def read(decoder: Decoder, block: bytes) -> dict[str, str]:
    return {str(name): str(value) for name, value in decoder.decode(block)}


@given(some_frames, st.data())
def test_frames_survive_any_cut(given_frames: list[tuple[int, int, int, bytes]], data: st.DataObject) -> None:
    """However they come in."""
    whole = b"".join(frames.frame(*each) for each in given_frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    splitter = frames.Splitter()
    found: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += splitter.feed(whole[start:end])
    assert found == [Frame(*each) for each in given_frames]


def test_a_frame_larger_than_agreed_breaks() -> None:
    """Before it has come: nobody makes this side keep it."""
    with pytest.raises(Broken, match="16385 bytes"):
        list(frames.Splitter().feed(frames.frame(0, 0, 1, bytes(16_385))[:9]))


def test_a_request_is_read_by_others() -> None:
    """Also with values longer than one byte can tell, as tokens are; and it says the same each time."""
    token = "t" * 5_000
    block = frames.request_block("https", "[::1]:2379", "/etcdserverpb.KV/Txn", 1500, (("token", token),))
    decoder = Decoder()
    for _ in range(2):
        assert read(decoder, block) == {
            ":method": "POST",
            ":scheme": "https",
            ":path": "/etcdserverpb.KV/Txn",
            ":authority": "[::1]:2379",
            "te": "trailers",
            "content-type": "application/grpc",
            "user-agent": "fencehold",
            "grpc-timeout": "1500m",
            "token": token,
        }


def test_a_call_without_a_deadline_tells_none() -> None:
    """A timeout of nought would end it at once."""
    block = frames.request_block("http", "localhost:1", "/watch", 0, ())
    assert "grpc-timeout" not in read(Decoder(), block)


@given(st.dictionaries(st.text("abcdefghijkl-", min_size=1), st.text(st.characters(codec="ascii")), max_size=5))
def test_headers_are_read_without_a_table(headers: dict[str, str]) -> None:
    """As one writes them who was told that there is no table."""
    encoder = Encoder()
    encoder.header_table_size = 0
    for _ in range(2):
        assert frames.headers_in(encoder.encode(headers.items())) == headers


def test_headers_that_need_a_table_break() -> None:
    """Read without it they would mean something else."""
    encoder = Encoder()
    encoder.encode([("grpc-status", "0")])
    with pytest.raises(Broken, match="cannot be read"):
        frames.headers_in(encoder.encode([("grpc-status", "0")]))


@pytest.mark.parametrize(
    ("frame", "carried"),
    [
        (Frame(frames.DATA, 0, 1, b"abc"), b"abc"),
        (Frame(frames.DATA, 0x8, 1, b"\x02abc\0\0"), b"abc"),
        (Frame(frames.HEADERS, 0x20, 1, b"-----abc"), b"abc"),
        (Frame(frames.HEADERS, 0x28, 1, b"\x01-----abc\0"), b"abc"),
    ],
)
def test_what_only_fills_a_frame_is_dropped(frame: Frame, carried: bytes) -> None:
    """Padding, and how urgent somebody finds it."""
    assert frames.plain(frame) == carried


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x05abc"])
def test_a_frame_that_is_all_padding_breaks(payload: bytes) -> None:
    """There is nothing in it."""
    with pytest.raises(Broken, match="padding"):
        frames.plain(Frame(frames.DATA, 0x8, 1, payload))
