"""Where things are in etcd: the keys of locks below one prefix.

1. A name is one segment, whatever is in it: `%` and `/` are written as in a URL. So the range of a name has the
   keys of that name, and of no other that begins alike.
2. The last segment says whose it is, which ask, and how many permits: what is next is decided by keys alone.
3. A name that is kept for a least time has a *tombstone* beside the key of the ask, made at the same revision: so
   it stands in the queue where the ask does, and those behind wait for both.
"""

from typing import NamedTuple

_TOMBSTONE = b".kept"
_SLASH_END = b"0"
"""What follows the slash: the range of a segment ends there."""


class Span(NamedTuple):
    """A range of keys."""

    start: bytes
    end: bytes


class Keys:
    """The keys under one prefix."""

    __slots__ = ("_clients", "locks")

    def __init__(self, prefix: str) -> None:
        root = prefix.encode()
        self.locks = root + b"locks/"
        self._clients = root + b"clients/"

    def queue(self, name: str) -> Span:
        """All asks for a name."""
        root = self.locks + name.replace("%", "%25").replace("/", "%2F").encode()
        return Span(root + b"/", root + _SLASH_END)

    def client(self, client: int) -> Span:
        """The witness of a client, by which it begins, and its notices."""
        root = self._clients + b"%016x" % client
        return Span(root + b"/", root + _SLASH_END)

    def notice(self, client: int, token: str) -> bytes:
        """Where a client is told that a hold was taken away."""
        return self.client(client).start + token.encode()


def place(queue: Span, client: int, token: str, limit: int) -> bytes:
    """The key of one ask."""
    return queue.start + b"%016x.%s.%d" % (client, token.encode(), limit)


def tombstone(key: bytes) -> bytes:
    """The key beside that of an ask that keeps its name for a least time."""
    return key + _TOMBSTONE


def is_tombstone(key: bytes) -> bool:
    return key.endswith(_TOMBSTONE)


def client_in(key: bytes) -> int:
    """Whose ask it is, by the number of its session's lease; 0 if it is none of ours."""
    text = key.rpartition(b"/")[2].partition(b".")[0]
    try:
        return int(text, 16)
    except ValueError:
        return 0


def limit_in(key: bytes) -> int:
    """How many permits the ask counts on; 0 for a plain lock."""
    text = key.rpartition(b".")[2]
    return int(text) if text.isdigit() else 0


def token_in(key: bytes) -> str:
    """The token of the ask, or of a notice."""
    words = key.rpartition(b"/")[2].split(b".")
    return words[min(1, len(words) - 1)].decode("utf-8", "replace")
