"""Heads: scans the input, before the reader parses it, for what no command can be.

A command is a flat array of bulk strings. Hiredis accepts more: arrays in arrays to any depth, and of each it
allocates the whole list as soon as it has read the head, however long it is. ``*1000000000`` costs gigabytes that
are never touched, a thousand nested ``*99999`` as much, and seconds when they are freed again, in which no client
is served. It has no bound for that, so such heads must not reach it.

1. A quick search shows nearly always that there is nothing of the kind: it finds arrays
   of a hundred elements and more, and the other kinds of collections; and texts that look like it.
2. If there may be, the heads are walked from one to the next, and what is not a command is refused.
3. An incomplete command is walked as well, as far as it has arrived: an array in an array is found only so. Until
   then it is at most one portion of the input, and a list of less than a hundred elements for each head.
"""

import re
from typing import Final

ELEMENTS_MAX = 1_024
"""Of one command. Sixty-four names and all options are less than a hundred."""

_HEAD_BYTES_MAX = 12
_SHORT_BYTES_MAX: Final = 4 << 10
_RETURN: Final = ord("\r")
# As numbers: a byte is found in bytes ten times as fast by its number as by a text of one.
_PUSH: Final = ord(">")
_SET: Final = ord("~")
_ATTRIBUTE: Final = ord("|")
_long_array = re.compile(rb"\*\d{3}").search
_head = re.compile(rb"([*$])(\d{1,9})\r\n").fullmatch


def suspect(data: bytes) -> bool:
    """Whether there may be such a head in the input. Nearly always there is none.

    Every byte is looked at, of every client: each of these looks for one byte first, which costs next to nothing.
    """
    return _long_array(data) is not None or _PUSH in data or _SET in data or _ATTRIBUTE in data


def is_one(data: bytes) -> bool:
    """Whether the input looks like one short command of less than a hundred elements, as it nearly always does.

    A star is a command's head, or stands in a text: with one alone, at the start, nothing else is an array.
    """
    return (
        3 < len(data) <= _SHORT_BYTES_MAX
        and data.rfind(b"*") == 0
        and (data[2] == _RETURN or data[3] == _RETURN)
        and not (_PUSH in data or _SET in data or _ATTRIBUTE in data)
    )


class NotFlat(Exception):
    """The input is not a flat array of bulk strings, or too long a one."""


class Walk:
    """Goes from head to head, and tracks its position in a command. Texts are skipped, whatever they hold."""

    __slots__ = ("_head", "_left", "_skip", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of the command it is in; 0 between two of them."""
        self._reset()

    def _reset(self) -> None:
        self.size = self._skip = 0
        self._left = -1
        self._head = b""

    def to_end(self, data: bytes, at: int = 0) -> int:
        """Continue to the end of the command, and return where that is; the end of the data, if it ends later.

        Raises:
            NotFlat: it is not a command.
        """
        begun_at, end = at, len(data)
        while True:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                if self._skip:
                    break
            if not self._left:
                self._reset()
                return at
            if at >= end:
                break
            at = self._read_head(data, at)
        self.size += at - begun_at
        return at

    def to_last(self, data: bytes) -> None:
        """Continue over all commands, into the incomplete one, if any."""
        at = 0
        while at < len(data):
            at = self.to_end(data, at)

    def _read_head(self, data: bytes, at: int) -> int:
        """Read the next head, or a part of it; returns where that ends."""
        newline = data.find(b"\n", at, at + _HEAD_BYTES_MAX)
        if newline < 0:
            self._head += data[at : at + _HEAD_BYTES_MAX]
            if len(self._head) >= _HEAD_BYTES_MAX:
                raise NotFlat
            return len(data)
        head = _head(self._head + data[at : newline + 1])
        self._head = b""
        if head is None:
            raise NotFlat
        number = int(head[2])
        if self._left < 0:
            if head[1] != b"*" or not 0 < number <= ELEMENTS_MAX:
                raise NotFlat
            self._left = number
        else:
            if head[1] != b"$":
                raise NotFlat
            self._left -= 1
            self._skip = number + 2
        return newline + 1
