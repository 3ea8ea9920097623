"""Who is next. etcd's revisions are the queue: whose key was made first comes first; its revision is the fence.

1. *A key that was made later never comes before.* So those before an ask only grow fewer, and what was once seen
   of them, however old the sight, is at most too many.
2. *A plain lock is had by the first of all.* One transaction says so: its key is still the one that was made, and
   none in the range was made before it. It is a writing one, which etcd's members agree upon, and not a mere read.
3. *A permit is had by one with fewer before it than there are permits, and no plain lock among them.* Whoever saw
   that makes sure, by a writing transaction, that its own key is still there: by law 1 nothing else can be wrong.
4. *A key that went with its lease is not there*, so who waited on a lease that is gone has nothing to win with.
5. *A tombstone is made with the key of its ask*, at the same revision: it is before all who come later, and never
   before its own ask. Once the name is had it is on a lease of its own, which lasts for the least time.
"""

from typing import NamedTuple

from fencehold.backends.etcd.batches import Told
from fencehold.backends.etcd.keys import Span, limit_in, tombstone
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


class Seen(NamedTuple):
    """A queue as one ask saw it."""

    mine: int
    """When the ask's own key was made: its fence; 0 if it is not there."""
    before: tuple[bytes, ...]
    """Those before it, newest first: all, or so many that it must wait."""
    revision: int
    """Of etcd, then."""
    first: bytes = b""
    """Who came first of all, if that was looked at."""


class Await(NamedTuple):
    """What to watch until it is worth looking again."""

    span: Span
    among: frozenset[bytes]
    """Only the end of one of these matters; empty: whatever happens there does."""
    changes: bool
    """Not only deletions: a key is touched when its ask is granted."""


def enter_keeping(queue: Span, key: bytes, value: bytes, lease: int) -> Message:
    """As `enter`, with a tombstone; where it stands in the queue must be looked for.

    Sent twice, and late, it must not put a tombstone back on the session's lease that has one of its own.
    """
    mine = [put(each, value, lease) for each in (key, tombstone(key))]
    return transaction([is_empty(*queue)], mine, [nested(transaction([is_absent(tombstone(key))], mine))])


def attempt_keeping(queue: Span, key: bytes, value: bytes, lease: int) -> Message:
    """As `attempt`, with a tombstone."""
    return transaction([is_empty(*queue)], [put(each, value, lease) for each in (key, tombstone(key))])


def keep(key: bytes, mine: int, value: bytes, lease: int) -> Message:
    """Have a tombstone last as long as a lease, if it and the key are still those that were made."""
    so = [is_created_at(each, mine) for each in (key, tombstone(key))]
    return transaction(so, [put(tombstone(key), value, lease)])


def remove(key: bytes, *, with_tombstone: bool) -> list[Message]:
    """Delete the key of an ask; its tombstone, too, or not."""
    return [delete(key), delete(tombstone(key))] if with_tombstone else [delete(key)]


def enter(queue: Span, key: bytes, value: bytes, lease: int) -> Message:
    """Have the name if nobody else has or wants it, else stand in its queue."""
    mine, limit = put(key, value, lease), limit_in(key)
    seen = [newest(*queue, limit + 2), oldest(*queue)] if limit else [newest(*queue, 2)]
    return transaction([is_empty(*queue)], [mine], [mine, *seen])


def attempt(queue: Span, key: bytes, value: bytes, lease: int) -> Message:
    """Have a plain lock if nobody else has or wants it, else nothing."""
    return transaction([is_empty(*queue)], [put(key, value, lease)])


def entered(told: Told, key: bytes) -> Seen:
    """What came of either. `mine` is 0 where it must be looked for: it was sent twice, and others came."""
    revision = told.revision
    if told.succeeded:
        return Seen(revision, (), revision)
    latest, *first = [keys_in(each) for each in told.responses[1:]] or [[]]
    if not latest or latest[0][0] != key:
        return Seen(0, (), revision)
    before = tuple(each for each, _ in latest[1:])
    return Seen(latest[0][1], before, revision, first[0][0][0] if first else b"")


def decide(queue: Span, key: bytes, mine: int, value: bytes, lease: int) -> Message:
    """Have a plain lock, if all before it are gone; else see who is there."""
    so = [is_created_at(key, mine), has_none_before(*queue, mine)]
    return transaction(so, [put(key, value, lease)], [newest(key, b"", 1), newest(*queue, 2, before=mine)])


def look(queue: Span, key: bytes, mine: int) -> Message:
    """See who is before a permit."""
    limit = limit_in(key) or 1
    return transaction(then=[newest(key, b"", 1), newest(*queue, limit + 1, before=mine)])


def looked(answer: Message, mine: int) -> Seen:
    """What `decide` saw, if it did not have it, or `look`."""
    own, before = (keys_in(each) for each in answer.responses)
    is_there = bool(own) and own[0][1] == mine
    return Seen(mine if is_there else 0, tuple(key for key, _ in before), answer.header.revision)


def touch(key: bytes, mine: int, value: bytes, lease: int) -> Message:
    """Write into a key, if it is still the one that was made; whatever is in its place is deleted."""
    return transaction([is_created_at(key, mine)], [put(key, value, lease)], [delete(key)])


def make_sure(key: bytes, mine: int) -> Message:
    """See that a key is still the one that was made. It may write, so that etcd's members must agree upon it."""
    return transaction([is_created_at(key, mine)], [], [delete(key)])


def is_had(seen: Seen, limit: int) -> bool:
    """Whether those before an ask leave it a permit, or the lock."""
    return len(seen.before) < (limit or 1) and not any(limit_in(key) != limit for key in seen.before)


def awaited(queue: Span, seen: Seen, limit: int) -> Await:
    """What to wait for, where `is_had` says no."""
    latest = seen.before[0]
    if not limit:
        return Await(_alone(latest), frozenset(), changes=False)
    for key in seen.before:
        if limit_in(key) != limit:
            return Await(_alone(key), frozenset(), changes=False)
    if len(seen.before) == limit:
        return Await(queue, frozenset(seen.before), changes=False)
    # The one before waits, too: it matters when it is granted, or gives up.
    return Await(_alone(latest), frozenset(), changes=True)


def _alone(key: bytes) -> Span:
    return Span(key, b"")
