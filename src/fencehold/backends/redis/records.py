"""What Redis keeps of a name, in the words of `explain`."""

from typing import Any

from fencehold.backends.lease import explanation as seen
from fencehold.locks.views import Explanation, Waiting

_HOLDER_WORDS = 4
_WAITER_WORDS = 5


def explained(name: str, reply: Any) -> Explanation:
    """Read the answer of the script that looks."""
    at, limit, holders, queue = reply
    return seen.explanation(
        name,
        [_holder(value.decode("utf-8", "replace"), left, at, int(limit)) for value, left in holders],
        [_waiting(place, record.decode(), at, name, int(limit)) for place, record in enumerate(queue) if record],
    )


def _holder(value: str, left_ms: int, at_ms: int, limit: int) -> seen.SeenHolder:
    words = value.split(" ", _HOLDER_WORDS - 1)
    left = left_ms / 1000 if left_ms >= 0 else None
    mode = "P" if limit else "X"
    if len(words) < _HOLDER_WORDS or not (words[1].isdecimal() and words[2].isdecimal()):
        # Of another library: who it is, it does not say.
        return seen.holder("", fence=0, mode=mode, limit=limit, held_for=None, left=left)
    _, fence, granted, stamp = words
    held_for = max(0.0, (at_ms - int(granted)) / 1000)
    return seen.holder(stamp, fence=int(fence), mode=mode, limit=limit, held_for=held_for, left=left)


def _waiting(place: int, record: str, at_ms: int, name: str, limit: int) -> Waiting:
    _, _, since, _, stamp = record.split(" ", _WAITER_WORDS - 1)
    waited_for = max(0.0, (at_ms - int(since)) / 1000)
    return seen.waiting(place, stamp, mode="P" if limit else "X", name=name, waited_for=waited_for, left=None)
