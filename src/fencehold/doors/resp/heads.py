"""Heads: a look at what comes in, before the reader does, for what no command can be.

A command is a flat array of bulk strings. Hiredis takes more: arrays in arrays to any depth, and of each it
makes the whole list as soon as it has read the head, however long it is to be. ``*1000000000`` costs gigabytes
that are never touched, a thousand nested ``*99999`` as much, and seconds when they are freed again, in which
nobody is served. It has no bound for that, so such heads must not come to it.

1. A quick look, at the speed of a search, tells nearly always that there is nothing of the kind: it finds arrays
   of a hundred elements and more, and the other kinds of collections; and texts that look like it.
2. If there may be, the heads are walked from one to the next, and a command that is none is refused.
3. A command that is there in part is walked, too, when it has become long: an array in an array is found only so.
   Until then it is a list of less than a hundred elements for every few bytes, of some kilobytes.
"""

import re

import hiredis

ELEMENTS_MAX = 1_024
"""Of one command. Sixty-four names and all options are less than a hundred."""

LONG_BYTES = 4 << 10
"""From so many bytes on, what is to be one command is walked."""

_head = re.compile(rb"([*$])(\d{1,9})\r\n").match
_begun = re.compile(rb"[*$]\d{0,9}\r?$").fullmatch


_long_array = re.compile(rb"\*\d{3}").search


def suspect(data: bytes) -> bool:
    """Whether there may be such a head in what came. Nearly always there is nothing.

    Every byte is looked at, of every client: each of these looks for one byte first, which costs next to nothing.
    """
    return _long_array(data) is not None or b">" in data or b"~" in data or b"|" in data


class Unread:
    """What is there of a command that is not there whole."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = b""

    def is_wrong(self, data: bytes) -> bool:
        """Whether `data`, coming next, brings such a head. The first look is quick, and nearly always the last."""
        near = self.bytes[-16:] + data if self.bytes else data
        if not suspect(near) and len(self.bytes) < LONG_BYTES:
            return False
        # It may stand in a text, where anything may stand: look at the heads one by one.
        is_flat, _ = walk(self.bytes + data)
        return not is_flat

    def keep(self, data: bytes, commands: int, reader: hiredis.Reader) -> None:
        """Called when the reader has had `data`, with how many commands it read of it, the last in part at most.

        A star is a command's head, or stands in a text. If as many came as commands did, or one more and bytes
        are left, there is none in a text; otherwise only a walk can tell.
        """
        if not commands:
            self.bytes += data
            return
        heads = data.count(b"*") - commands
        if self.bytes:
            heads += 1
        if not heads:
            self.bytes = b""
        elif heads == 1 and reader.has_data():
            self.bytes = data[data.rindex(b"*") :]
        else:
            data = self.bytes + data
            _, begins = walk(data)
            self.bytes = data[begins:]


def walk(data: bytes) -> tuple[bool, int]:
    """Go from command to command: whether all are flat, and where the last begins that is there in part, if any.

    `data` begins where a command does. What the reader will refuse by itself is none of its business.
    """
    at = begins = left = 0
    end = len(data)
    while at < end:
        head = _head(data, at)
        if head is None:
            # Half a head, or what the reader will not take, either.
            return _begun(data, at) is not None and (data[at] == ord("$")) == (left > 0), begins
        number = int(head[2])
        if head[1] == b"*":
            if left or number > ELEMENTS_MAX:
                return False, begins
            begins, left, at = at, number, head.end()
        else:
            if not left:
                return False, begins
            left -= 1
            at = head.end() + number + 2
        if not left and at <= end:
            begins = at
    return True, begins
