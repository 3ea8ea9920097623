"""Header blocks in pieces: put together, in order, and bounded."""

import pytest

from fencehold.drivers.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    Broken,
    Cause,
    Frame,
)
from fencehold.drivers.http2.header_pieces import HeaderPieces


def test_a_block_is_whole_with_its_last_piece() -> None:
    """It is told with the frame that began it; the flags of that frame count, and of the others only the end."""
    pieces, first = HeaderPieces(100), Frame(HEADERS, END_STREAM, 1, b"ab")
    assert pieces.begin(first) is None
    assert pieces.go_on(Frame(CONTINUATION, 0, 1, b"cd")) is None
    assert pieces.kept == 4
    assert pieces.go_on(Frame(CONTINUATION, END_HEADERS, 1, b"ef")) == (first, b"abcdef")
    assert pieces.kept == 0
    assert pieces.begin(Frame(HEADERS, END_HEADERS, 3, b"gh")) == b"gh"


def test_nothing_comes_between_the_pieces() -> None:
    """Another kind of frame, a piece of another stream, and one that continues nothing are refused."""
    pieces = HeaderPieces(100)
    with pytest.raises(Broken, match="without a beginning"):
        pieces.go_on(Frame(CONTINUATION, 0, 1, b""))
    pieces.check(Frame(DATA, 0, 1, b""))
    pieces.begin(Frame(HEADERS, 0, 1, b"ab"))
    pieces.check(Frame(CONTINUATION, 0, 1, b""))
    with pytest.raises(Broken, match="do not end"):
        pieces.check(Frame(DATA, 0, 1, b""))
    with pytest.raises(Broken, match="without a beginning"):
        pieces.go_on(Frame(CONTINUATION, 0, 3, b""))


@pytest.mark.parametrize(("bytes_max", "pieces_max"), [(5, None), (100, 3)])
def test_a_block_has_a_bound(bytes_max: int, pieces_max: int | None) -> None:
    """In bytes, and in pieces where that is asked for."""
    pieces = HeaderPieces(bytes_max, pieces_max)
    pieces.begin(Frame(HEADERS, 0, 1, b"ab"))
    for _ in range(1 if pieces_max is None else 2):
        pieces.go_on(Frame(CONTINUATION, 0, 1, b"cd"))
    with pytest.raises(Broken, match="without an end") as caught:
        pieces.go_on(Frame(CONTINUATION, END_HEADERS, 1, b"ef"))
    assert caught.value.cause == Cause.ENHANCE_YOUR_CALM
    if pieces_max is None:
        with pytest.raises(Broken, match="without an end"):
            HeaderPieces(bytes_max).begin(Frame(HEADERS, END_HEADERS, 1, b"abcdef"))
