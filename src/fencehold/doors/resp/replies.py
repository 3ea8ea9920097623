"""Replies: what goes out, as bytes of RESP2 or RESP3.

Values are Python's: str and bytes are bulk strings, int is an integer, None is null, a list is an array, a dict
is a map (in RESP2 a flat array). The reply of an acquire and the push of an event are written by hand: they are
most of what is sent.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from fencehold.core.events import Event
from fencehold.core.outcomes import Granted

OK: Final = b"+OK\r\n"
NULL: Final = {2: b"$-1\r\n", 3: b"_\r\n"}

_MAP_OF_SIX: Final = {2: "*12", 3: "%6"}

_EVENT = (
    b">2\r\n$5\r\nevent\r\n%%16\r\n$4\r\nkind\r\n%b$8\r\nposition\r\n:%d\r\n$5\r\nindex\r\n:%d\r\n$5\r\nshard\r\n:%d\r\n$2\r\nat\r\n:%d\r\n"
    b"$7\r\nsession\r\n:%d\r\n$5\r\nowner\r\n%b$5\r\nnames\r\n*%d\r\n%b$5\r\nfence\r\n:%d\r\n"
    b"$6\r\ndetail\r\n%b$7\r\nunix_ms\r\n%b$12\r\nsession_meta\r\n%b$2\r\nby\r\n%b"
    b"$9\r\nprincipal\r\n%b$4\r\nmode\r\n%b$4\r\nmeta\r\n%b"
)


class Encoded:
    """A part of a reply that is already encoded, in the version of the connection it is for."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def bulk(text: str) -> bytes:
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def grant(granted: Granted, ttl_ms: int, version: int) -> bytes:
    """A grant that lasts this long; of its own `ttl_ms` only its existence is sent."""
    names = granted.names
    name = names[0]
    size = len(name) if name.isascii() else len(name.encode())
    if len(names) == 1:
        listed = f"*1\r\n${size}\r\n{name}\r\n"
    else:
        listed = f"*{len(names)}\r\n{''.join([bulk(each).decode() for each in names])}"
    # As text, encoded once: that takes a third less than putting bytes together.
    return (
        f"{_MAP_OF_SIX[version]}\r\n$5\r\nnames\r\n{listed}$4\r\nname\r\n${size}\r\n{name}\r\n"
        f"$5\r\nfence\r\n:{granted.fence}\r\n$6\r\nttl_ms\r\n:{ttl_ms}\r\n$2\r\nat\r\n:{granted.at_ms}\r\n"
        f"$7\r\nown_ttl\r\n:{1 if granted.ttl_ms else 0}\r\n"
    ).encode()


def error(code: str, message: str) -> bytes:
    """An error; whatever is in the message, it stays on one line."""
    line = f"{code} {message}".replace("\r", " ").replace("\n", " ")
    return b"-%b\r\n" % line.encode()


def reply(value: object, version: int) -> bytes:
    """Any value."""
    return b"".join(_parts(value, version))


def _parts(value: object, version: int) -> list[bytes]:
    """The pieces of a value; those of a page are thousands, so the frequent kinds are looked for first."""
    match value:
        case str():
            data = value.encode()
            return [b"$%d\r\n%b\r\n" % (len(data), data)]
        case int():
            return [b":%d\r\n" % value]
        case None:
            return [NULL[version]]
        case bytes():
            return [b"$%d\r\n%b\r\n" % (len(value), value)]
        case dict():
            return _map(value, version)
        case list() | tuple():
            parts = [b"*%d\r\n" % len(value)]
            for part in value:
                parts += _parts(part, version)
            return parts
        case Encoded():
            return [value.data]
        case _:
            raise TypeError(f"no reply can be made of {type(value).__name__}")


def _map(value: dict[str, object], version: int) -> list[bytes]:
    parts = [b"%%%d\r\n" % len(value) if version == 3 else b"*%d\r\n" % (2 * len(value))]
    for key, part in value.items():
        parts.append(_key(key))
        # Nearly all are these two: a call for each would take most of the time.
        if isinstance(part, str):
            data = part.encode()
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
        elif isinstance(part, int):
            parts.append(b":%d\r\n" % part)
        else:
            parts += _parts(part, version)
    return parts


@lru_cache(maxsize=512)
def _key(word: str) -> bytes:
    """The key of a map: one of few words, again and again."""
    return bulk(word)


class Form:
    """A map with the same keys each time, of which a page has hundreds: only its values are put together.

    Each key has a kind: an integer; a text, given as bytes of `bulk`; or anything, given as bytes of `reply`.
    """

    __slots__ = ("_by_version",)

    def __init__(self, **kinds: type) -> None:
        body = b"".join(bulk(key) + (b":%d\r\n" if kind is int else b"%b") for key, kind in kinds.items())
        self._by_version = {3: b"%%%%%d\r\n%b" % (len(kinds), body), 2: b"*%d\r\n%b" % (2 * len(kinds), body)}

    def filled(self, version: int, *values: int | bytes) -> Encoded:
        """With these values, in the order of the keys."""
        return Encoded(self._by_version[version] % values)


def number_or_null(value: int | None, version: int) -> bytes:
    return NULL[version] if value is None else b":%d\r\n" % value


def fitted(items: Iterable[object], version: int, bytes_max: int) -> tuple[Encoded, int]:
    """An array of as many of the items as fit into that many bytes, at least one; and how many these are."""
    parts: list[bytes] = []
    left = bytes_max
    for item in items:
        part = item.data if type(item) is Encoded else reply(item, version)
        left -= len(part)
        if left < 0 and parts:
            break
        parts.append(part)
    return Encoded(b"*%d\r\n%b" % (len(parts), b"".join(parts))), len(parts)


def push(*parts: object) -> bytes:
    """A push, which is not a reply; RESP3 only."""
    return b">%d\r\n%b" % (len(parts), b"".join(reply(part, 3) for part in parts))


def push_grant(request: int, granted: Granted, ttl_ms: int) -> bytes:
    """The grant of an acquire that had waited."""
    return b">3\r\n$5\r\ngrant\r\n:%d\r\n%b" % (request, grant(granted, ttl_ms, 3))


def push_event(event: Event, shard: int = 0) -> bytes:
    """Something that happened in a shard, for its watchers."""
    names = event.names
    return _EVENT % (
        bulk(event.kind.value),
        event.position,
        event.index,
        shard,
        event.at_ms,
        event.session,
        bulk(event.owner),
        len(names),
        bulk(names[0]) if len(names) == 1 else b"".join(map(bulk, names)),
        event.fence,
        bulk(event.detail),
        NULL[3] if event.unix_ms is None else b":%d\r\n" % event.unix_ms,
        bulk(event.session_meta),
        bulk(event.by),
        bulk(event.principal),
        bulk(event.mode),
        bulk(event.meta),
    )


def push_gap(first: int, index: int, position: int, shard: int = 0) -> bytes:
    """What happened from one position, there after an index, to another is no longer known here."""
    missing = {"from": first, "from_index": index, "to": position}
    return push("event", {"kind": "gap", "position": position, "index": 0, "shard": shard, **missing})
