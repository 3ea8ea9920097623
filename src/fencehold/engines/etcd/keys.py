"""Where things are in etcd: the keys of one journal, below its prefix.

1. Positions are digits of one width, so keys sort as positions do, and a range of keys is a range of positions.
2. Every range begins and ends in digits, so it touches no key of a journal whose prefix begins with this one's.
"""

from fencehold.types import Position

POSITION_MAX = (1 << 63) - 1
_AFTER_DIGITS = b":"


class Keys:
    """The keys under one prefix."""

    __slots__ = ("_entries", "_snapshots", "entries_end", "entries_start", "epoch", "snapshot")

    def __init__(self, prefix: str) -> None:
        root = prefix.encode()
        self.epoch = root + b"epoch"
        self.snapshot = root + b"snapshot"
        self._entries = root + b"entries/"
        self._snapshots = root + b"snapshots/"
        self.entries_start = self.entry(Position(0))
        self.entries_end = self._entries + _AFTER_DIGITS

    def entry(self, position: Position) -> bytes:
        return self._entries + b"%020d" % position

    def position(self, key: bytes) -> Position:
        """The position an entry's key stands for."""
        return Position(int(key[len(self._entries) :]))

    def chunk(self, name: str, number: int) -> bytes:
        return self._snapshots + b"%s/%08d" % (name.encode(), number)

    def snapshots_before(self, position: Position) -> tuple[bytes, bytes]:
        """The range of all chunks of snapshots of earlier positions, whose names begin with those."""
        return self._snapshots + b"%020d" % 0, self._snapshots + b"%020d" % position
