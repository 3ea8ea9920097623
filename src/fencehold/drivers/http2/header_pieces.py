"""A header block that comes in pieces: a frame of headers, and those that continue it (RFC 9113, 6.10).

1. Nothing else comes between them, and a piece that continues nothing is refused.
2. The block, and the number of its pieces, have a bound: a peer that never ends one is disconnected.
"""

from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.frames import Broken, Cause, Frame


class HeaderPieces:
    """The block that is under way in one connection."""

    def __init__(self, bytes_max: int, pieces_max: int | None = None) -> None:
        self._bytes_max = bytes_max
        self._pieces_max = pieces_max
        self._first: Frame | None = None
        self._block = bytearray()
        self._count = 0

    @property
    def is_between(self) -> bool:
        """Whether no block is under way."""
        return self._first is None

    @property
    def kept(self) -> int:
        """How many bytes of a block wait for the rest of it."""
        return len(self._block)

    def check(self, arrived: Frame) -> None:
        """Refuse what comes in the middle of a block.

        Raises:
            Broken: it is in the middle of one.
        """
        if self._first is not None and arrived.kind != frames.CONTINUATION:
            raise Broken("headers that do not end")

    def begin(self, arrived: Frame) -> bytes | None:
        """A frame of headers: its block, if it is whole.

        Raises:
            Broken: it is larger than it may be.
        """
        block = frames.plain(arrived)
        self._check_size(len(block), 1)
        if arrived.flags & frames.END_HEADERS:
            return block
        self._first, self._block, self._count = arrived, bytearray(block), 1
        return None

    def go_on(self, arrived: Frame) -> tuple[Frame, bytes] | None:
        """A frame that continues one: that one, and the block, if it is whole now.

        Raises:
            Broken: it continues nothing, or the block is larger than it may be.
        """
        first = self._first
        if first is None or first.stream != arrived.stream:
            raise Broken("headers without a beginning")
        self._block += arrived.payload
        self._count += 1
        self._check_size(len(self._block), self._count)
        # Of its flags it has this one; others would mean something in the frame that it continues.
        if not arrived.flags & frames.END_HEADERS:
            return None
        block = bytes(self._block)
        self._first, self._block, self._count = None, bytearray(), 0
        return first, block

    def _check_size(self, size: int, count: int) -> None:
        if size > self._bytes_max or (self._pieces_max is not None and count > self._pieces_max):
            raise Broken("headers without an end", Cause.ENHANCE_YOUR_CALM)
