"""What is no command is found before the reader has it, however it is cut, and nothing else is taken for it."""

import random

import pytest

from fencehold.doors.resp.heads import ELEMENTS_MAX, NotFlat
from fencehold.doors.resp.inbox import Inbox
from tests.unit.doors.box import frame

NAMES = [
    "*1000000000",
    "a\r\n*123456",
    ">123456789",
    "\n|1234567",
    "~999999\r\n*999999",
    "*2\r\n*3\r\n",
    "\r\n*1\r\n$4\r\nPING\r\n",
    "plain",
    "",
    "$",
    "*",
    "*" * 200,
    "x" * 3_000,
]
DEEP = b"*99\r\n$0\r\n\r\n"
WRONG = {
    "huge": b"*3\r\n$4\r\nECHO\r\n*100000000\r\n",
    "too many": b"*%d\r\n" % (ELEMENTS_MAX + 1),
    "five digits": b"*99999\r\n",
    "nested": b"*2\r\n*2\r\n$1\r\na\r\n",
    "nested and nested": 500 * b"*1\r\n",
    "deep, behind elements": (32 << 10) // len(DEEP) * DEEP,
    "a push": b">99999\r\n",
    "a set": b"~9999\r\n",
    "an attribute": b"|9999\r\n",
    "a push inside": b"*2\r\n$4\r\nECHO\r\n>9999\r\n",
    "no number": b"*99999999999999999999\r\n",
}


def _read(stream: bytes, chance: random.Random, largest: int, inbox: Inbox | None = None) -> list[list[bytes]]:
    """What comes out of an inbox that is given a stream in pieces."""
    inbox, found = inbox or Inbox(64 << 10), []
    while stream:
        size = chance.randrange(1, largest)
        data, stream = stream[:size], stream[size:]
        words = inbox.first(data)
        while words is not None:
            found.append(words)
            words = inbox.next()
    assert inbox.partial_bytes == 0
    assert inbox.next() is None
    return found


@pytest.mark.parametrize("largest", [2, 10, 100, 5_000, 100_000])
def test_commands_come_out_as_they_went_in(largest: int) -> None:
    """Whatever names and texts hold and however the stream is cut, every command comes out, and nothing else."""
    chance = random.Random(largest)
    for _ in range(4 if largest < 100 else 30):
        commands = [chance.choices(NAMES, k=chance.randrange(1, 6)) for _ in range(60)]
        stream = b"".join(frame(*command) for command in commands)
        assert _read(stream, chance, largest) == [[word.encode() for word in command] for command in commands]


@pytest.mark.parametrize("largest", [2, 10, 100, 5_000, 100_000])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_command_is_found(largest: int, wrong: str) -> None:
    """Behind any commands, in any pieces, it is refused."""
    chance = random.Random(largest)
    for _ in range(5 if largest < 100 else 20):
        commands = [frame(*chance.choices(NAMES, k=chance.randrange(1, 6))) for _ in range(chance.randrange(20))]
        with pytest.raises(NotFlat):
            _read(b"".join(commands) + WRONG[wrong] + 2 * frame("PING"), chance, largest)


@pytest.mark.parametrize("largest", [2, 10, 100, 5_000])
def test_the_reader_is_given_no_long_list_to_make(largest: int) -> None:
    """What it has read of something wrong before that is found has few elements, and is not deep."""
    chance = random.Random(largest)
    for wrong in WRONG.values():
        inbox = Inbox(64 << 10)
        with pytest.raises(NotFlat):
            _read(wrong + 10_000 * b"$1\r\na\r\n", chance, largest, inbox)
        assert inbox.partial_bytes <= 8_192


def test_how_much_is_there_of_half_a_command_is_known() -> None:
    """From its first byte to its last but one, in whatever pieces it comes; and nothing of those before it."""
    whole, half = frame("LOCK.ACQUIRE", "*1", "WAIT", "0"), frame("ECHO", "*2\r\n$1\r\nx\r\n")
    for pieces in (1, 3, len(whole)):
        for end in range(1, len(half)):
            inbox = Inbox(1 << 10)
            stream = whole + whole + half[:end]
            for at in range(0, len(stream), pieces):
                words = inbox.first(stream[at : at + pieces])
                while words is not None:
                    words = inbox.next()
            assert inbox.partial_bytes == end
            assert inbox.first(half[end:]) == [b"ECHO", b"*2\r\n$1\r\nx\r\n"]
            assert inbox.next() is None
            assert inbox.partial_bytes == 0
