"""Heads of arrays that no command can be are found wherever they are, and nothing else is taken for one."""

import random

import hiredis
import pytest

from fencehold.doors.resp.heads import Unread
from tests.unit.doors.box import frame

NAMES = ["*1000000000", "a\r\n*123456", ">123456789", "\n|1234567", "~999999\r\n*999999", "plain", "", "$", "*"]
HUGE = b"*3\r\n$4\r\nECHO\r\n*100000000\r\n"


def _feed(stream: bytes, chance: random.Random, largest: int) -> bool:
    """Feed a stream in pieces as a connection does, and say whether it was found huge."""
    reader, unread, seen = hiredis.Reader(), Unread(), b""
    while stream:
        size = chance.randrange(1, largest)
        data, stream = stream[:size], stream[size:]
        if unread.would_be_huge(data):
            return True
        reader.feed(data)
        assert b"*100000000\r" not in seen + data
        seen = (seen + data)[-12:]
        while reader.gets() is not False:
            pass
        unread.keep(data, reader.has_data())
    return False


@pytest.mark.parametrize("largest", [2, 10, 100, 5_000])
def test_texts_are_never_taken_for_heads(largest: int) -> None:
    """Whatever names and texts hold and however the stream is cut, well-formed commands pass."""
    chance = random.Random(largest)
    for _ in range(4 if largest < 100 else 30):
        commands = [frame(*chance.choices(NAMES, k=chance.randrange(1, 6))) for _ in range(60)]
        assert not _feed(b"".join(commands), chance, largest)


@pytest.mark.parametrize("largest", [2, 10, 100, 5_000])
def test_huge_heads_are_always_found(largest: int) -> None:
    """Behind any commands, in any pieces, the head is found before the reader has it."""
    chance = random.Random(largest)
    for _ in range(10 if largest < 100 else 50):
        commands = [frame(*chance.choices(NAMES, k=chance.randrange(1, 6))) for _ in range(chance.randrange(30))]
        assert _feed(b"".join(commands) + HUGE, chance, largest)


@pytest.mark.parametrize("last", [b"\r\n", b"x*", b"\n$", b"\n*", b"$$", b"\n\n"])
@pytest.mark.parametrize("largest", [2, 10, 100])
def test_huge_heads_are_found_behind_texts_that_end_oddly(last: bytes, largest: int) -> None:
    """The reader does not look at the two bytes after a text: they are no way to hide a head."""
    chance = random.Random(largest)
    for text in (b"$99999999\r\n", b"*2", b"", b"$9\r\n"):
        for _ in range(3):
            filler = 300 * b"$1\r\na\r\n"
            stream = b"*999\r\n%b$%d\r\n%b%b*100000000\r\n" % (filler, len(text), text, last)
            assert _feed(stream, chance, largest)
