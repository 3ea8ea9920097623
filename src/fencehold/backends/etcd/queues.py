"""The queue of a name: its keys, what an ask looks like in it, and who is next.

1. A name is one segment, whatever is in it: `%` and `/` are written as in a URL. So the range of a name has the
   keys of that name, and of no other with the same prefix. The last segment says which client, which ask, and how
   many permits: who is next is decided by keys alone.
2. etcd's revisions are the queue: the key that was made first comes first; its revision is the fence. *A key that
   was made later never comes before.* So those before an ask only grow fewer, and an earlier read of them, however
   old, is at most too many.
3. *A plain lock is held by the first of all.* One transaction decides it: its key is still the one that was made,
   and none in the range was made before it. It is a write, which etcd's members agree upon, and not a mere read.
4. *A permit is held by an ask with fewer before it than there are permits, and no plain lock among them.* A client
   that read this makes sure, by a write, that its own key is still there: by law 2 nothing else can be wrong.
5. *A key that ended with its lease is not there*, so an ask on a lease that is gone can never be granted.
6. *A tombstone keeps a name for a least time*: a key beside that of the ask, made at the same revision. So it is
   before all later asks, and never before its own. Once the name is granted it is on a lease of its own, which
   lasts for the least time.
7. The value of a key is one line of JSON, for display only. Its instants are by the client's time of day, so they
   are as good as two such clocks agree; nothing is decided by them.
"""

import time
from typing import NamedTuple

import msgspec

from fencehold.backends.etcd.calls import KeyRange, TransactionResult, WatchedKeys
from fencehold.drivers.etcd.transactions import (
    Message,
    delete,
    has_none_before,
    is_absent,
    is_created_at,
    is_empty,
    keys_in,
    nested,
    newest,
    oldest,
    put,
    transaction,
)

_TOMBSTONE = b".kept"
_SLASH_END = b"0"
"""What follows the slash: the range of a segment ends there."""


class LockKeys:
    """The keys under one prefix."""

    __slots__ = ("_clients", "locks")

    def __init__(self, prefix: str) -> None:
        root = prefix.encode()
        self.locks = root + b"locks/"
        self._clients = root + b"clients/"

    def queue(self, name: str) -> KeyRange:
        """All asks for a name."""
        root = self.locks + name.replace("%", "%25").replace("/", "%2F").encode()
        return KeyRange(root + b"/", root + _SLASH_END)

    def client(self, client: int) -> KeyRange:
        """The witness of a client, which is the first key, and its notices."""
        root = self._clients + b"%016x" % client
        return KeyRange(root + b"/", root + _SLASH_END)

    def notice(self, client: int, token: str) -> bytes:
        """The key that notifies a client that a hold was force-released."""
        return self.client(client).start + token.encode()


def entry_key(queue: KeyRange, client: int, token: str, limit: int) -> bytes:
    """The key of one ask."""
    return queue.start + b"%016x.%s.%d" % (client, token.encode(), limit)


def tombstone(key: bytes) -> bytes:
    """The key beside that of an ask that keeps its name for a least time."""
    return key + _TOMBSTONE


def is_tombstone(key: bytes) -> bool:
    return key.endswith(_TOMBSTONE)


def client_in(key: bytes) -> int:
    """The client of an ask, by the number of its session's lease; 0 if the key is none of ours."""
    text = key.rpartition(b"/")[2].partition(b".")[0]
    try:
        return int(text, 16)
    except ValueError:
        return 0


def limit_in(key: bytes) -> int:
    """The limit of the ask; 0 for a plain lock."""
    text = key.rpartition(b".")[2]
    return int(text) if text.isdigit() else 0


def token_in(key: bytes) -> str:
    """The token of the ask, or of a notice."""
    words = key.rpartition(b"/")[2].split(b".")
    return words[min(1, len(words) - 1)].decode("utf-8", "replace")


class EntryRecord(NamedTuple):
    """What is shown of an ask."""

    stamp: str
    """The owner, as made by `seen.stamp`."""
    since: float
    """When it was asked for, or granted if it had to wait."""
    ends: float | None = None
    """When it ends by itself."""


_UNKNOWN = EntryRecord("", 0.0)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[str, float, float | None])


def encode_entry(stamp: str, ttl: float | None) -> bytes:
    """The value of an ask as of now."""
    now = time.time()
    return _encoder.encode((stamp, now, None if ttl is None else now + ttl))


def decode_entry(value: bytes) -> EntryRecord:
    """The record in a value; an unknown owner, if it is none of ours."""
    try:
        return EntryRecord(*_decoder.decode(value))
    except msgspec.DecodeError:
        return _UNKNOWN


class QueueSight(NamedTuple):
    """A queue as one ask saw it."""

    mine: int
    """The revision of the ask's own key: its fence; 0 if it is not there."""
    before: tuple[bytes, ...]
    """The keys before it, newest first: all, or so many that it must wait."""
    revision: int
    """Of etcd, then."""
    first: bytes = b""
    """The first key of all, if that was read."""


def enter_keeping(queue: KeyRange, key: bytes, value: bytes, lease: int) -> Message:
    """As `enter`, with a tombstone; its place in the queue must be read.

    Sent twice, and late, it must not move a tombstone from its own lease back to the session's.
    """
    mine = [put(each, value, lease) for each in (key, tombstone(key))]
    return transaction([is_empty(*queue)], mine, [nested(transaction([is_absent(tombstone(key))], mine))])


def attempt_keeping(queue: KeyRange, key: bytes, value: bytes, lease: int) -> Message:
    """As `attempt`, with a tombstone."""
    return transaction([is_empty(*queue)], [put(each, value, lease) for each in (key, tombstone(key))])


def keep(key: bytes, mine: int, value: bytes, lease: int) -> Message:
    """Move a tombstone to a lease, if it and the key are still those that were made."""
    so = [is_created_at(each, mine) for each in (key, tombstone(key))]
    return transaction(so, [put(tombstone(key), value, lease)])


def remove(key: bytes, *, with_tombstone: bool) -> list[Message]:
    """Delete the key of an ask; its tombstone, too, or not."""
    return [delete(key), delete(tombstone(key))] if with_tombstone else [delete(key)]


def enter(queue: KeyRange, key: bytes, value: bytes, lease: int) -> Message:
    """Take the name if its queue is empty, else join the queue."""
    mine, limit = put(key, value, lease), limit_in(key)
    seen = [newest(*queue, limit + 2), oldest(*queue)] if limit else [newest(*queue, 2)]
    return transaction([is_empty(*queue)], [mine], [mine, *seen])


def attempt(queue: KeyRange, key: bytes, value: bytes, lease: int) -> Message:
    """Take a plain lock if its queue is empty, else nothing."""
    return transaction([is_empty(*queue)], [put(key, value, lease)])


def entered(told: TransactionResult, key: bytes) -> QueueSight:
    """The outcome of either. `mine` is 0 where it must be read: it was sent twice, and others came."""
    revision = told.revision
    if told.succeeded:
        return QueueSight(revision, (), revision)
    latest, *first = [keys_in(each) for each in told.responses[1:]] or [[]]
    if not latest or latest[0][0] != key:
        return QueueSight(0, (), revision)
    before = tuple(each for each, _ in latest[1:])
    return QueueSight(latest[0][1], before, revision, first[0][0][0] if first else b"")


def decide(queue: KeyRange, key: bytes, mine: int, value: bytes, lease: int) -> Message:
    """Take a plain lock, if all before it are gone; else read the queue."""
    so = [is_created_at(key, mine), has_none_before(*queue, mine)]
    return transaction(so, [put(key, value, lease)], [newest(key, b"", 1), newest(*queue, 2, before=mine)])


def look(queue: KeyRange, key: bytes, mine: int) -> Message:
    """Read what is before a permit."""
    limit = limit_in(key) or 1
    return transaction(then=[newest(key, b"", 1), newest(*queue, limit + 1, before=mine)])


def looked(answer: Message, mine: int) -> QueueSight:
    """What `decide` read, if it was not granted, or `look`."""
    own, before = (keys_in(each) for each in answer.responses)
    is_there = bool(own) and own[0][1] == mine
    return QueueSight(mine if is_there else 0, tuple(key for key, _ in before), answer.header.revision)


def touch(key: bytes, mine: int, value: bytes, lease: int) -> Message:
    """Write to a key, if it is still the one that was made; whatever is in its place is deleted."""
    return transaction([is_created_at(key, mine)], [put(key, value, lease)], [delete(key)])


def make_sure(key: bytes, mine: int) -> Message:
    """Check that a key is still the one that was made. It may write, so that etcd's members must agree upon it."""
    return transaction([is_created_at(key, mine)], [], [delete(key)])


def is_granted(seen: QueueSight, limit: int) -> bool:
    """Whether those before an ask leave it a permit, or the lock."""
    return len(seen.before) < (limit or 1) and not any(limit_in(key) != limit for key in seen.before)


def awaited(queue: KeyRange, seen: QueueSight, limit: int) -> WatchedKeys:
    """What to watch, if `is_granted` is False."""
    latest = seen.before[0]
    if not limit:
        return WatchedKeys(_alone(latest), frozenset(), changes=False)
    for key in seen.before:
        if limit_in(key) != limit:
            return WatchedKeys(_alone(key), frozenset(), changes=False)
    if len(seen.before) == limit:
        return WatchedKeys(queue, frozenset(seen.before), changes=False)
    # The one before waits, too: it matters when it is granted, or withdrawn.
    return WatchedKeys(_alone(latest), frozenset(), changes=True)


def _alone(key: bytes) -> KeyRange:
    return KeyRange(key, b"")
