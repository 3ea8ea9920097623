"""Replies: what goes out, as bytes of RESP2 or RESP3.

Values are Python's: str and bytes are bulk strings, int is an integer, None is null, a list is an array, a dict
is a map (in RESP2 a flat array). The reply of an acquire is written by hand: it is most of what is sent.
"""

from fencehold.core.outcomes import Granted

OK = b"+OK\r\n"
NULL = {2: b"$-1\r\n", 3: b"_\r\n"}

_GRANT = (
    b"$5\r\nnames\r\n%b$4\r\nname\r\n%b$5\r\nfence\r\n:%d\r\n$6\r\nttl_ms\r\n:%d\r\n"
    b"$2\r\nat\r\n:%d\r\n$7\r\nown_ttl\r\n:%d\r\n"
)
_MAP_OF_SIX = {2: b"*12\r\n", 3: b"%6\r\n"}


def bulk(text: str) -> bytes:
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def grant(granted: Granted, ttl_ms: int, version: int) -> bytes:
    """A grant that lasts so long; of its own `ttl_ms` it is told only that it has one."""
    names = granted.names
    first = bulk(names[0])
    listed = b"*1\r\n" + first if len(names) == 1 else b"*%d\r\n%b" % (len(names), b"".join(map(bulk, names)))
    body = _GRANT % (listed, first, granted.fence, ttl_ms, granted.at_ms, 1 if granted.ttl_ms else 0)
    return _MAP_OF_SIX[version] + body


def error(code: str, message: str) -> bytes:
    """An error; whatever is in the message, it stays on one line."""
    line = f"{code} {message}".replace("\r", " ").replace("\n", " ")
    return b"-%b\r\n" % line.encode()


def reply(value: object, version: int) -> bytes:
    """Any value."""
    match value:
        case None:
            return NULL[version]
        case bool() | int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case str():
            return bulk(value)
        case dict():
            parts = [reply(part, version) for item in value.items() for part in item]
            head = b"%%%d\r\n" % len(value) if version == 3 else b"*%d\r\n" % len(parts)
            return head + b"".join(parts)
        case list() | tuple():
            return b"*%d\r\n%b" % (len(value), b"".join(reply(part, version) for part in value))
        case _:
            raise TypeError(f"no reply can be made of {type(value).__name__}")


def push(*parts: object) -> bytes:
    """Something that was not asked for; RESP3 only."""
    return b">%d\r\n%b" % (len(parts), b"".join(reply(part, 3) for part in parts))


def push_grant(request: int, granted: Granted, ttl_ms: int) -> bytes:
    """The grant of an acquire that had waited."""
    return b">3\r\n$5\r\ngrant\r\n:%d\r\n%b" % (request, grant(granted, ttl_ms, 3))
