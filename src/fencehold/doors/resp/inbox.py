"""The inbox: bytes in, commands out, one at a time.

1. A command is a flat array of bulk strings; nothing else is made of what comes in (`heads`).
2. The reader is given a portion at a time. So it keeps little, and does little before anybody else has a turn.
3. It is known how much there is of a command that is not there whole: that has a bound in bytes, and in seconds.
"""

import hiredis

from fencehold.doors.resp.heads import ELEMENTS_MAX, Unread, suspect

_PORTION = 16 << 10


class NoCommand(Exception):
    """What came in is no command, or too large a one: the connection cannot go on."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def not_flat() -> NoCommand:
    """What is said of anything but a flat array of bulk strings."""
    return NoCommand("ERR", f"protocol error: a command is a flat array of at most {ELEMENTS_MAX} bulk strings")


class Inbox:
    """The incoming side of one connection."""

    __slots__ = ("_bytes_max", "_fed", "_gets", "_input", "_portion", "_read", "_reader", "_unread", "commands")

    def __init__(self, frame_bytes_max: int) -> None:
        self._bytes_max = frame_bytes_max
        self._reader = hiredis.Reader()
        self._gets = self._reader.gets
        self._unread = Unread()
        self._input = b""
        self._fed = 0
        """How much of the input the reader has had."""
        self._portion = b""
        """What it was given last."""
        self._read = 0
        """How many commands it read since."""
        self.commands = 0
        """How many were read before that."""

    @property
    def partial_bytes(self) -> int:
        """How much there is of a command that is not there whole."""
        return len(self._unread.bytes)

    def put(self, data: bytes) -> None:
        """Take what came."""
        self._input = self._input[self._fed :] + data if self._fed < len(self._input) else data
        self._fed = 0

    def next(self) -> list[bytes] | None:
        """The next command; None if there is none whole.

        Raises:
            NoCommand: there is something else.
        """
        while True:
            try:
                words = self._gets()
            except (hiredis.HiredisError, MemoryError, TypeError) as error:
                # A TypeError is the reader's: a map with a key that can be none.
                raise NoCommand("ERR", f"protocol error: {error}") from error
            if words is not False:
                self._read += 1
                if type(words) is not list or not words or type(words[0]) is not bytes:
                    raise not_flat()
                if self._read == 1 and len(self._unread.bytes) + len(self._portion) > self._bytes_max:
                    self._refuse_if_large(words)
                return words
            if not self._feed():
                return None

    def _feed(self) -> bool:
        """Give the reader the next portion, when it has read all of the one before; False if there is none."""
        if self._portion:
            self._unread.keep(self._portion, self._read, self._reader.has_data())
            self.commands += self._read
            self._read = 0
        start = self._fed
        self._portion = portion = self._input[start : start + _PORTION]
        if not portion:
            self._input, self._fed = b"", 0
            return False
        if (self._unread.bytes or suspect(portion)) and self._unread.is_wrong(portion):
            raise not_flat()
        self._fed = start + len(portion)
        self._reader.feed(portion)
        return True

    def _refuse_if_large(self, words: list[object]) -> None:
        if sum(len(word) for word in words if type(word) is bytes) > self._bytes_max:
            raise self.too_large()

    def too_large(self) -> NoCommand:
        """What is said of a command that has too many bytes."""
        return NoCommand("LIMIT", f"a command has at most {self._bytes_max} bytes")
