"""The codec: what is written is what is read, and what cannot be read is refused."""

from base64 import b64decode

import pytest
from msgspec import Struct, msgpack

from fencehold.core.commands import (
    Acquire,
    AcquireAtLeast,
    Announce,
    Break,
    Cancel,
    CloseSession,
    Entry,
    Extend,
    Mode,
    OpenSession,
    RaiseFence,
    Release,
    Renew,
    SetLimits,
    Settle,
    Suspend,
)
from fencehold.core.limits import Limits
from fencehold.errors import Damaged
from fencehold.journal.codec import decode, encode

EVERYTHING = Entry(
    7,
    (
        OpenSession(30_000, 1_000, "s3cret", '{"host":"a"}'),
        Acquire(1, ("äpfel", "b"), 3, 2, "task-1", Mode.SHARED, 0, 500, 10, 20, "{}"),
        Acquire(1, ("pool",), mode=Mode.PERMIT, limit=2),
        AcquireAtLeast(1, ("nightly",), 4, ttl_ms=600_000, at_least_ms=60_000),
        Release(1, ("b",), 9, 4, 3),
        Extend(1, ("b",), 9, 1_000, 5, 4),
        Cancel(1, 6),
        Settle(1, (1, 2)),
        Renew((1, 2, 3)),
        Suspend(2),
        Break("b", 9, '{"user":"alice"}'),
        SetLimits(Limits(name_bytes_max=1)),
        RaiseFence(1 << 40),
        Announce("a", "127.0.0.1:7420"),
        CloseSession(1),
    ),
    1_767_268_800_000,
)

OLDER = (
    "AZIFkpWkb3Blbs11MM0D6KFzsHsiY2xpZW50Ijoib2xkIn2cp2FjcXVpcmUBkaFhAQCidDGhWAD/AACg",
    "AZIHkpynYWNxdWlyZQGRoWECAaChWAD/AACgk6VicmVha6FhAQ==",
)
"""Entries as they were written before entries told the time of day and breaks said by whom."""


def test_every_command_comes_back_as_it_went() -> None:
    """Decoding undoes encoding, for every command and field."""
    assert decode(encode(EVERYTHING)) == EVERYTHING
    assert decode(encode(Entry(0))) == Entry(0)


def test_what_an_older_version_wrote_is_read() -> None:
    """Fields are added at the end, with a default that says nothing."""
    first, second = (decode(b64decode(data)) for data in OLDER)
    asked = (OpenSession(30_000, 1_000, "s", '{"client":"old"}'), Acquire(1, ("a",), 1, 0, "t1"))
    assert first == Entry(5, asked, unix_ms=0)
    assert second == Entry(7, (Acquire(1, ("a",), 2, 1), Break("a", 1, by="")))
    assert encode(first) == b64decode(OLDER[0]), "what says nothing new has the bytes it always had"


def test_an_older_version_reads_past_what_it_does_not_know() -> None:
    """A standby that is not upgraded yet goes on: the time of day, and who broke what, decide nothing."""

    class OldBreak(Struct, frozen=True, array_like=True, tag="break"):
        name: str
        fence: int = 0

    class OldEntry(Struct, frozen=True, array_like=True):
        elapsed_ms: int
        commands: tuple[OldBreak, ...] = ()

    data = encode(Entry(7, (Break("b", 9, "alice"),), 1_767_268_800_000))
    assert msgpack.decode(data[1:], type=OldEntry) == OldEntry(7, (OldBreak("b", 9),))


def test_a_tick_is_small() -> None:
    """An idle cluster writes a few bytes per tick."""
    assert len(encode(Entry(200))) <= 8


def test_what_cannot_be_read_is_refused() -> None:
    """An unknown version, an unknown command, half an entry: never guessed at."""
    data = encode(EVERYTHING)
    with pytest.raises(Damaged, match="version 02"):
        decode(b"\x02" + data[1:])
    with pytest.raises(Damaged, match="version none"):
        decode(b"")
    with pytest.raises(Damaged, match="cannot be read"):
        decode(data[:-1])
    with pytest.raises(Damaged, match="cannot be read"):
        decode(data.replace(b"suspend", b"explode"))
