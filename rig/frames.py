"""Frames that no good client sends: commands with mistakes in them, noise, heads that promise too much.

Drawn from a `Random`, so that a seed sends the same again. A mutated frame is a whole command with a few of its
bytes changed, dropped, doubled, or swapped for bytes that mean something to a parser; sometimes cut short, and
sometimes two commands in one.
"""

import random
from collections.abc import Iterator


def frame(*words: str | int) -> bytes:
    """A command as the protocol has it."""
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


COMMANDS: tuple[tuple[str | int, ...], ...] = (
    ("HELLO", 3),
    ("PING",),
    ("INFO",),
    ("TIER", "EFFICIENCY"),
    ("CLIENT", "SETNAME", "wild"),
    ("SESSION.OPEN", "TTL", 5_000, "GRACE", 1_000, "META", '{"client": "wild"}'),
    ("SESSION.KEEPALIVE",),
    ("SESSION.RESUME", 1, "0" * 32),
    ("SESSION.LIST",),
    ("SESSION.CLOSE",),
    ("LOCK.ACQUIRE", "wild:a", "WAIT", 0, "TTL", 5_000, "OWNER", "o", "META", "m", "REQUEST", 7, "ANSWERED", 6),
    ("LOCK.ACQUIRE", "wild:b", "MODE", "S", "DELAY", 100),
    ("LOCK.ACQUIRE", "wild:c", "LIMIT", 3, "REQUEST", 9, "ASYNC"),
    ("LOCK.MACQUIRE", 3, "wild:a", "wild:b", "wild:c", "WAIT", 10),
    ("LOCK.RELEASE", "wild:a", 12, "REQUEST", 8),
    ("LOCK.MRELEASE", 2, "wild:a", "wild:b", 12),
    ("LOCK.EXTEND", "wild:a", 12, 5_000),
    ("LOCK.CANCEL", 7),
    ("LOCK.SETTLE", 7, 8, 9),
    ("LOCK.BREAK", "wild:a", "FENCE", 12),
    ("LOCK.INFO", "wild:a", "STALE"),
    ("LOCK.LIST", "PREFIX", "wild", "COUNT", 10, "HOLD"),
    ("LOCK.WATCH", "wild:"),
    ("LOCK.UNWATCH", "wild:"),
    ("NODE.LIST",),
    ("NODE.HEALTH",),
    ("NODE.BACKUP", "BEGIN"),
    ("NODE.BACKUP", "NEXT"),
    ("NODE.FOLLOW", "wild", "127.0.0.1:1", 5),
)
FRAMES = tuple(frame(*words) for words in COMMANDS)
_TELLING = (
    b"*",
    b"$",
    b"\r\n",
    b"\r",
    b"\n",
    b"-1",
    b"0",
    b"99999",
    b"4294967296",
    b"\x00",
    b"\xff",
    b"+",
    b"%",
    b">",
)


def mutated(rng: random.Random) -> bytes:
    """A frame with some mistakes."""
    data = bytearray(rng.choice(FRAMES))
    if rng.random() < 0.2:
        data += rng.choice(FRAMES)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        _mutate(data, rng)
    return bytes(data[: rng.randrange(len(data))] if data and rng.random() < 0.1 else data)


def _mutate(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    match rng.randrange(5):
        case 0:
            data[place : place + 1] = rng.randbytes(1)
        case 1:
            del data[place : place + rng.randrange(1, 8)]
        case 2:
            data[place:place] = data[place : place + rng.randrange(1, 32)]
        case 3:
            data[place:place] = rng.choice(_TELLING)
        case _:
            data[place : place + rng.randrange(4)] = rng.choice(_TELLING)


def noise(rng: random.Random) -> bytes:
    """Bytes without a meaning; every other time they begin as a command would."""
    begin = rng.choice((b"", rng.choice(_TELLING), b"*3\r\n$4\r\n"))
    return begin + rng.randbytes(rng.choice((1, 16, 200, 4_096)))


def heads() -> Iterator[bytes]:
    """What promises more than it brings, over and over."""
    shapes = [
        b"*99999\r\n",
        b"*1\r\n",
        b"*2\r\n",
        b"*64\r\n",
        b"*2147483647\r\n",
        b"*1\r\n$65000\r\n",
        b"*%064d\r\n" % 1,
        b"$99999999999\r\n",
        b"*3\r\n*3\r\n$1\r\na\r\n",
        b"%99999\r\n",
        b"*99999\r\n$",
        b"9" * 64,
        b"*-1\r\n",
        b"\r\n",
    ]
    for size in (8 << 10, 64 << 10):
        for shape in shapes:
            yield shape * (size // len(shape))
