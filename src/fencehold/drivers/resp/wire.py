"""Commands as bytes, and the server's errors as ours. It decides nothing.

Commands of the hot path are joined from parts encoded beforehand; everything else goes through `command`.
"""

import json
from functools import lru_cache

from fencehold.errors import (
    Deadlock,
    FenceholdError,
    HoldLost,
    LimitExceeded,
    NotOwner,
    OutcomeUnknown,
    Overloaded,
    PermissionDenied,
    QueueFull,
    Refused,
    SessionExpired,
    Unavailable,
    UsageError,
)
from fencehold.types import Link

ELSEWHERE = frozenset({"NOTLEADER", "UNAVAILABLE", "UNKNOWN"})
"""Codes that are no answer to a request: it is repeated, on another connection, under the same id."""

GONE = frozenset({"NOTOWNER", "RELEASED", "EXPIRED"})
"""Codes by which a release or an extension says that there was no such hold."""


class NotAuthenticated(PermissionDenied):
    """The client is not authenticated, or not any more: no login, a wrong one, or one of no user.

    What lacks a right to a user is `PermissionDenied` itself.
    """


class Moved(Unavailable):
    """The names are another shard's. Nothing happened; clients go there by themselves."""


class Elsewhere(Moved):
    """The names are at home in another cell. Nothing happened; clients go there by themselves."""

    def __init__(self, detail: str) -> None:
        """`detail`: the name of the cell, and its addresses."""
        self.cell, _, addresses = detail.partition(" ")
        super().__init__(f"the name is at home in cell {self.cell}: connect to {addresses}")


class Moving(Moved):
    """The home of the names moves. Nothing happened; clients ask again in a moment, by themselves."""


class Suspended(Moved):
    """The home of the names may be cut off, and grants nothing. Nothing happened; another may be promoted."""


class Arriving(Moved):
    """The names are this shard's, and are not granted here yet. Nothing happened; clients ask again."""


_ERRORS: dict[str, type[FenceholdError]] = {
    "USAGE": UsageError,
    "ERR": UsageError,
    "LIMIT": LimitExceeded,
    "QUEUEFULL": QueueFull,
    "NOTOWNER": NotOwner,
    "RELEASED": NotOwner,
    "EXPIRED": HoldLost,
    "NOSESSION": SessionExpired,
    "NOTLEADER": Unavailable,
    "UNAVAILABLE": Unavailable,
    "MOVED": Moved,
    "ELSEWHERE": Elsewhere,
    "MOVING": Moving,
    "SUSPENDED": Suspended,
    "TRYAGAIN": Arriving,
    "UNKNOWN": OutcomeUnknown,
    "DENIED": PermissionDenied,
    "NOAUTH": NotAuthenticated,
    "WRONGPASS": NotAuthenticated,
}

_WORDS_OF_REDIS = (
    "unknown command",
    "hello must be called with the client already authenticated",
    "invalid username-password pair",
    "called without any password configured",
    "client names cannot contain spaces",
)
"""A Redis greets like us, and then knows no sessions; or it wants a password first, or another name, as no server
of ours does."""


def bulk(data: bytes) -> bytes:
    """One argument of a command."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def number(value: int) -> bytes:
    """One argument that is a number."""
    digits = b"%d" % value
    return b"$%d\r\n%b\r\n" % (len(digits), digits)


def command(*words: str | bytes | int) -> bytes:
    """A whole command."""
    return b"*%d\r\n" % len(words) + b"".join([_argument(word) for word in words])


def _argument(word: str | bytes | int) -> bytes:
    if isinstance(word, int):
        return number(word)
    return bulk(word if isinstance(word, bytes) else word.encode())


@lru_cache(maxsize=1024)
def options(
    wait_ms: int | None, ttl_ms: int, mode: str, limit: int, delay_ms: int, meta: str, at_least_ms: int
) -> tuple[int, bytes]:
    """The options of an acquire, and how many words they are. A program uses few of them, many times."""
    words: list[str | int] = ["ASYNC"]
    given = (
        ("WAIT", wait_ms),
        ("TTL", ttl_ms),
        ("LIMIT", limit),
        ("DELAY", delay_ms),
        ("META", meta),
        ("ATLEAST", at_least_ms),
    )
    for word, value in given:
        if value or (word == "WAIT" and value is not None):
            words += [word, value]
    if mode == "S":
        words += ["MODE", "S"]
    return len(words), b"".join([_argument(word) for word in words])


def split(message: str) -> tuple[str, str]:
    """The code of an error, and the rest of it."""
    code, _, rest = message.partition(" ")
    return code, rest


def error(code: str, detail: str, limit: int = 0) -> FenceholdError:
    """The exception for an error of the server. `limit`: of the semaphore that was asked for, if it was one."""
    if code == "DEADLOCK":
        return _deadlock(detail, limit)
    if code == "BUSY":
        return overloaded(detail)
    return _ERRORS.get(code, Refused)(detail or code.lower())


def refused(node: str, code: str, detail: str) -> FenceholdError:
    """The error for a node that refused the greeting, or the session."""
    said = detail.lower()
    if "fencehold server" not in said and any(words in said for words in _WORDS_OF_REDIS):
        return is_redis(node)
    return error(code, detail)


def is_redis(node: str) -> UsageError:
    """The error for a node that is a Redis."""
    return UsageError(f"{node} is a Redis, not a Fencehold server: use redis://{node}")


def overloaded(detail: str) -> Overloaded:
    """BUSY as an error: its first word says when to retry, in milliseconds."""
    told, _, why = detail.partition(" ")
    if not told.isdecimal():
        told, why = "0", detail
    return Overloaded(f"the service is busy: {why or 'it is overloaded'}", retry_after_s=int(told) / 1000)


def _deadlock(detail: str, limit: int) -> Deadlock:
    try:
        circle = [Link(**link) for link in json.loads(detail)["circle"]]
    except (ValueError, KeyError, TypeError):
        return Deadlock(detail)
    if len(circle) == 1:
        return Deadlock(_of_oneself(circle[0], limit), circle=circle)
    steps = [_step(link) for link in circle]
    return Deadlock("waiting would be a deadlock: " + ", ".join(steps), circle=circle)


def _step(link: Link) -> str:
    # Of a long circle the middle is left out, and a link of no session says how many those were.
    if link.owner and not link.session:
        return link.owner
    return f"{link.owner or link.session} waits for {link.name!r}{_held(link)}"


def _of_oneself(link: Link, limit: int) -> str:
    held = f"{link.name!r} (fence {link.fence})" if link.fence else repr(link.name)
    if limit:
        return f"this thread or task already holds {held}, and waits for itself: release it first"
    again = "use client.rlock() to take it again, or release it first; on an event loop use fencehold.aio"
    return f"this thread or task already holds {held}: {again}"


def _held(link: Link) -> str:
    since = link.since_ms_ago / 1000
    return f" (fence {link.fence}, held for {since:.1f} s)" if link.fence else ""
