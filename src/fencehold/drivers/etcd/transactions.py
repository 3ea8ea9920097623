"""The words of etcd's transactions: what must be so, and what is then done."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from fencehold.drivers.etcd.messages import (
    Compare,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
)

Message: TypeAlias = Any
"""Of etcd's protocol, see `messages`."""


def transaction(
    so: Sequence[Message] = (), then: Sequence[Message] = (), otherwise: Sequence[Message] = ()
) -> Message:
    """If all of `so` holds, do `then`, else `otherwise`; at once, and answered in order."""
    return TxnRequest(compare=so, success=then, failure=otherwise)


def nested(request: Message) -> Message:
    """A transaction as a step of another."""
    return RequestOp(request_txn=request)


def copy_of(request: Message) -> Message:
    """The same transaction, to be changed."""
    made = TxnRequest()
    made.CopyFrom(request)
    return made


def equals(key: bytes, value: bytes) -> Message:
    return Compare(result=Compare.EQUAL, target=Compare.VALUE, key=key, value=value)


def is_absent(key: bytes) -> Message:
    return Compare(result=Compare.EQUAL, target=Compare.VERSION, key=key, version=0)


def is_present(key: bytes) -> Message:
    return Compare(result=Compare.GREATER, target=Compare.VERSION, key=key, version=0)


def is_unchanged(key: bytes, revision: int) -> Message:
    """It was last changed at this revision; 0 for one that is absent."""
    return Compare(result=Compare.EQUAL, target=Compare.MOD, key=key, mod_revision=revision)


def is_created_at(key: bytes, revision: int) -> Message:
    """It is the one that was made at this revision, and was there ever since."""
    return Compare(result=Compare.EQUAL, target=Compare.CREATE, key=key, create_revision=revision)


def is_empty(start: bytes, end: bytes) -> Message:
    """There is no key in a range."""
    return Compare(result=Compare.EQUAL, target=Compare.CREATE, key=start, range_end=end, create_revision=0)


def has_none_before(start: bytes, end: bytes, revision: int) -> Message:
    """No key in a range, which is not empty, was made before this revision."""
    return Compare(
        result=Compare.GREATER,
        target=Compare.CREATE,
        key=start,
        range_end=end,
        create_revision=revision - 1,
    )


def put(key: bytes, value: bytes, lease: int = 0) -> Message:
    return RequestOp(request_put=PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes) -> Message:
    return RequestOp(request_delete_range=DeleteRangeRequest(key=key))


def get(key: bytes) -> Message:
    return RequestOp(request_range=RangeRequest(key=key))


def count(key: bytes) -> Message:
    """Whether it is there: 0 or 1."""
    return RequestOp(request_range=RangeRequest(key=key, count_only=True))


def first_of(start: bytes, end: bytes) -> Message:
    """The first key of a range, and how many there are."""
    return RequestOp(request_range=RangeRequest(key=start, range_end=end, limit=1, keys_only=True))


def newest(start: bytes, end: bytes, limit: int, before: int = 0) -> Message:
    """The keys of a range that were made last (before a revision, if one is given), newest first."""
    return RequestOp(
        request_range=RangeRequest(
            key=start,
            range_end=end,
            limit=limit,
            keys_only=True,
            sort_order=RangeRequest.DESCEND,
            sort_target=RangeRequest.CREATE,
            max_create_revision=before - 1 if before else 0,
        )
    )


def oldest(start: bytes, end: bytes) -> Message:
    """The key of a range that was made first."""
    return RequestOp(
        request_range=RangeRequest(
            key=start,
            range_end=end,
            limit=1,
            keys_only=True,
            sort_order=RangeRequest.ASCEND,
            sort_target=RangeRequest.CREATE,
        )
    )


def keys_in(answer: Message) -> list[tuple[bytes, int]]:
    """The keys that a range has, in the order asked for, and when each was made."""
    return [(pair.key, pair.create_revision) for pair in answer.response_range.kvs]


def value_in(answer: Message) -> bytes | None:
    """What a `get` found."""
    found = answer.response_range.kvs
    return bytes(found[0].value) if found else None


def revision_in(answer: Message) -> int:
    """When what a `get` found was last changed; 0 if it is not there."""
    found = answer.response_range.kvs
    return int(found[0].mod_revision) if found else 0


def count_in(answer: Message) -> int:
    """How many keys the range has."""
    return int(answer.response_range.count)
