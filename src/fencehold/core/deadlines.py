"""Deadlines: what comes due when logical time advances.

What is due comes in an order that depends only on the instants and the keys, not on when they were added: a
machine restored from a snapshot must expire in the same order. A key that is dropped leaves nothing behind but,
for a while, a number in the heap.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", int, tuple[int, str], str)

_SLACK = 1_000
"""Instants without keys that the heap may carry before it is built anew."""


class Deadlines(Generic[Key]):
    """Keys by the instant they come due. Keys of one instant share one place in the heap."""

    __slots__ = ("_keys_at", "heap")

    def __init__(self) -> None:
        self.heap: list[int] = []
        """Before the first of these instants nothing comes due. Read-only for callers: every entry looks at it."""
        self._keys_at: dict[int, dict[Key, None]] = {}

    def add(self, at: int, key: Key) -> None:
        """Let `key` come due at `at`."""
        keys = self._keys_at.get(at)
        if keys is None:
            self._keys_at[at] = {key: None}
            heappush(self.heap, at)
        else:
            keys[key] = None

    def drop(self, at: int, key: Key) -> None:
        """Let `key`, added for `at`, not come due after all."""
        keys = self._keys_at[at]
        del keys[key]
        if not keys:
            del self._keys_at[at]
            self._shrink()

    def due(self, now_at: int) -> list[Key]:
        """Take out what is due by now: by instant, then by key."""
        heap = self.heap
        if not heap or heap[0] > now_at:
            return []
        found: list[Key] = []
        while heap and heap[0] <= now_at:
            # An instant may be in the heap without keys, or twice.
            found.extend(sorted(self._keys_at.pop(heappop(heap), ())))
        return found

    def coming(self, until_at: int) -> list[Key]:
        """What `due` would take out, in no order; it stays. Costs what is found, however much comes later."""
        heap, places = self.heap, [0]
        found, instants = list[Key](), set[int]()
        while places:
            place = places.pop()
            # None below a place in the heap comes before it.
            if place < len(heap) and (at := heap[place]) <= until_at:
                places += (2 * place + 1, 2 * place + 2)
                if at not in instants:
                    instants.add(at)
                    found += self._keys_at.get(at, ())
        return found

    def _shrink(self) -> None:
        if len(self.heap) > 2 * len(self._keys_at) + _SLACK:
            self.heap = list(self._keys_at)
            heapify(self.heap)

    def __len__(self) -> int:
        return sum(map(len, self._keys_at.values()))
