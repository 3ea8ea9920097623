"""The inbox: bytes in, commands out, one at a time.

1. A command is a flat array of bulk strings; nothing else is accepted (`heads`).
2. Nearly always the input is one short, complete command: that is the fast path (`first`).
3. Otherwise the reader is given a portion at a time. So it keeps little, and does little before other connections
   have a turn.
4. The size of an incomplete command is known: it has a bound in bytes, and in seconds.
"""

from typing import Any

import hiredis

from fencehold.doors.resp.heads import ELEMENTS_MAX, NotFlat, Walk, is_one, suspect

_PORTION = 8 << 10


class NoCommand(Exception):
    """The input is not a command, or too large a one: the connection cannot continue."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def not_flat() -> NoCommand:
    """The error for anything but a flat array of bulk strings."""
    return NoCommand(
        "ERR",
        f"protocol error: a command is a flat array of at most {ELEMENTS_MAX} bulk strings, as redis-cli and "
        "every Redis client send it",
    )


def are_bulk(words: list[Any]) -> bool:
    """Whether all words of what the reader took for a command are bulk strings."""
    return all(type(word) is bytes for word in words)


class Inbox:
    """The incoming side of one connection."""

    __slots__ = (
        "_bytes_max",
        "_clean",
        "_fed",
        "_gets",
        "_is_large",
        "_portion",
        "_read",
        "_reader",
        "_rest",
        "_walk",
        "commands",
        "was_all",
    )

    def __init__(self, frame_bytes_max: int) -> None:
        self._bytes_max = frame_bytes_max
        self._reader = hiredis.Reader()
        self._gets = self._reader.gets
        self._walk = Walk()
        """The position in a command of the input that the reader has had."""
        self._rest = b""
        """The input, if it was more than a portion; and how much of it the reader has had."""
        self._fed = 0
        self._portion = b""
        """What it was given last, until it has read all of it."""
        self._clean = 0
        """Where in that the first command begins that was not walked; -1: all were."""
        self._read = 0
        """How many commands it read since; one that was incomplete before is not counted."""
        self._is_large = False
        """The first of them may be larger than a command may be."""
        self.commands = 0
        """How many were read before that."""
        self.was_all = True
        """What `first` gave last was all there is."""

    @property
    def partial_bytes(self) -> int:
        """The bytes of an incomplete command."""
        return self._walk.size

    def first(self, data: bytes) -> list[bytes] | None:
        """Take the input, and return the first command of all that is there; raises what `next` does.

        `was_all` says whether that was all, and all was this command.
        """
        self.was_all = False
        if self._portion or self._rest or self._walk.size or not is_one(data):
            self._put(data)
            return self.next()
        self._reader.feed(data)
        words = self._gets()
        if words is False or self._reader.has_data():
            # A part of one, or something after it: `next` handles that.
            self._portion, self._clean = data, 0
            if words is False:
                return self.next()
            self._read = 1
        else:
            self.commands += 1
            self.was_all = True
        if type(words) is not list or not words or type(words[0]) is not bytes:
            raise NotFlat
        return words

    def keep(self, data: bytes) -> None:
        """Take the input, and handle none of it yet."""
        self.was_all = False
        self._put(data)

    def _put(self, data: bytes) -> None:
        if self._rest:
            self._rest = self._rest[self._fed :] + data
            self._fed = 0
        elif self._portion or len(data) > _PORTION:
            self._rest = data
        else:
            self._feed(data)

    def next(self) -> list[bytes] | None:
        """The next command; None if none is complete.

        Raises:
            NoCommand, NotFlat, hiredis.HiredisError, MemoryError, TypeError: the input is invalid. (The last is
            the reader's, for a map with an unhashable key.)
        """
        words = self._gets()
        while words is False:
            if self._portion:
                self._end_portion()
            if not self._rest:
                return None
            self._feed(self._next_portion())
            words = self._gets()
        self._read += 1
        if type(words) is not list or not words or type(words[0]) is not bytes:
            raise NotFlat
        if self._is_large:
            self._is_large = False
            if sum(len(word) for word in words if type(word) is bytes) > self._bytes_max:
                raise self.too_large()
        return words

    def _next_portion(self) -> bytes:
        start = self._fed
        # Cut between two commands, if that can be seen: then none is incomplete, and nothing has to be walked.
        between = self._rest.rfind(b"\r\n*", start, start + _PORTION) if len(self._rest) - start > _PORTION else -1
        self._fed = start + _PORTION if between < 0 else between + 2
        portion = self._rest[start : self._fed]
        if self._fed >= len(self._rest):
            self._rest = b""
            self._fed = 0
        return portion

    def _feed(self, portion: bytes) -> None:
        """Give the reader the next portion."""
        self._clean = 0
        if size := self._walk.size:
            self._feed_more(portion, size)
        elif suspect(portion):
            self._walk.to_last(portion)
            self._clean = -1
        self._portion = portion
        self._reader.feed(portion)

    def _feed_more(self, portion: bytes, size: int) -> None:
        """Handle the rest of an incomplete command."""
        end = self._walk.to_end(portion)
        if self._walk.size:
            self._clean = -1
            return
        self._is_large = size + end > self._bytes_max
        self._clean = end
        # It is the first that the reader reads, and none of those that begin here.
        self._read = -1
        self.commands += 1
        if suspect(portion):
            self._walk.to_last(portion[end:])
            self._clean = -1

    def _end_portion(self) -> None:
        """The reader has read all of a portion that it can: find out how much it left of the last command."""
        portion, clean, read = self._portion, self._clean, self._read
        self._portion, self._read = b"", 0
        self.commands += read
        # A star is a command's head, or stands in a text. If as many came as commands did, or one more and bytes
        # are left, there is none in a text, and mostly nothing is left at all; otherwise only a walk can tell.
        if clean < 0 or (stars := portion.count(b"*", clean) - read) == 0:
            return
        if stars == 1 and self._reader.has_data():
            self._walk.to_last(portion[portion.rindex(b"*") :])
        else:
            self._walk.to_last(portion[clean:])

    def too_large(self) -> NoCommand:
        """The error for a command that has too many bytes."""
        return NoCommand("LIMIT", f"a command has at most {self._bytes_max} bytes")
