"""Heads: a look at what comes in, before the reader does, for arrays that no command can be.

Hiredis makes the whole list as soon as it has read the head of an array, however long: ``*1000000000`` costs
gigabytes that are never touched, and seconds when they are freed again, element by element, in which nobody is
served. It has no bound for that, so such a head must not come to it.
"""

import re

_long_array = re.compile(rb"\*\d{6}").search

_ARRAYS = frozenset(b"*>~|%")
_BULKS = frozenset(b"$=!")
_LINES = frozenset(b"+-:_#,(")
_DIGITS_MAX = 5
_KEPT_BYTES_MAX = 64 << 10


def suspect(data: bytes) -> bool:
    """Whether there may be such a head in what came. Nearly always there is nothing.

    Every byte is looked at, of every client: each of these looks for one byte first, which costs next to nothing.
    """
    return b">" in data or b"~" in data or b"|" in data or _long_array(data) is not None


class Unread:
    """What came since a place where a head begins, unless the reader has read it all and a head comes next."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = b""

    def would_be_huge(self, data: bytes) -> bool:
        """Whether `data`, coming next, brings such a head. The first look is quick, and nearly always the last."""
        near = self.bytes[-_DIGITS_MAX - 2 :] + data if self.bytes else data
        if not suspect(near):
            return False
        # It may stand in a text, where anything may stand: look at the heads one by one.
        is_huge, _ = _walk(self.bytes + data)
        return is_huge

    def keep(self, data: bytes, has_unread: bool) -> None:
        """Called when the reader has had `data`, with whether it has bytes left that it could not read yet."""
        if not has_unread and data[-1:] == b"\n":
            # All was read, and not up to the middle of a head, of which the reader takes the first byte at once.
            self.bytes = b""
            return
        self.bytes += data
        if len(self.bytes) > _KEPT_BYTES_MAX:
            _, last = _walk(self.bytes)
            self.bytes = self.bytes[last:]


def _walk(data: bytes) -> tuple[bool, int]:
    """Go from head to head: whether one is huge, and where the last one is that is there in part, if any.

    Where the reader would refuse to go on there is nothing more to find.
    """
    at = 0
    while at < len(data):
        end = data.find(b"\r\n", at)
        kind, number = data[at], data[at + 1 : end if end >= 0 else None]
        if kind in _ARRAYS and len(number) > _DIGITS_MAX and number[:6].isdigit():
            return True, at
        if end < 0:
            break
        after = end + 2
        if kind in _BULKS and number.isdigit():
            after += int(number[:20]) + 2
        elif kind not in _LINES and not (kind in _ARRAYS and number.isdigit()) and number != b"-1":
            break
        if after > len(data):
            break
        at = after
    return False, at
