"""The words of etcd's transactions: what must be so, and what is then done."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from aetcd import rpc

Message: TypeAlias = Any
"""Of etcd's protocol. The generated classes come without types."""


def transaction(
    so: Sequence[Message] = (), then: Sequence[Message] = (), otherwise: Sequence[Message] = ()
) -> Message:
    """If all of `so` holds, do `then`, else `otherwise`; at once, and answered in order."""
    return rpc.TxnRequest(compare=so, success=then, failure=otherwise)


def copy_of(request: Message) -> Message:
    """The same transaction, to be changed."""
    made = rpc.TxnRequest()
    made.CopyFrom(request)
    return made


def equals(key: bytes, value: bytes) -> Message:
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.VALUE, key=key, value=value)


def is_absent(key: bytes) -> Message:
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.VERSION, key=key, version=0)


def is_present(key: bytes) -> Message:
    return rpc.Compare(result=rpc.Compare.GREATER, target=rpc.Compare.VERSION, key=key, version=0)


def is_unchanged(key: bytes, revision: int) -> Message:
    """It was last changed at this revision; 0 for one that is absent."""
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.MOD, key=key, mod_revision=revision)


def put(key: bytes, value: bytes) -> Message:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))


def delete(key: bytes) -> Message:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def get(key: bytes) -> Message:
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key))


def count(key: bytes) -> Message:
    """Whether it is there: 0 or 1."""
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key, count_only=True))


def first_of(start: bytes, end: bytes) -> Message:
    """The first key of a range, and how many there are."""
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=start, range_end=end, limit=1, keys_only=True))


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
