"""Tables of exclusive holds by name: one of all, which grows without stopping the service, and each session's.

A dictionary that is full is made anew, all of it at once: with half a million names that takes tens of
milliseconds, and it happens again and again while names come and go. So this one is in parts, by the hash of the
name, and each is made anew by itself, at its own time. At a million names that takes well under a millisecond.

A session has two tables. A new hold enters a small one, where most holds end; if that is full, all of it moves to
the large one. So a short hold touches a few cache lines, however many names its session holds. With one table for
each session and half a million holds, entering and removing a name there was the most expensive part of a command.

Each part, and each session's large table, keeps the hashes of its names beside them (`new_table`).

The hash of a name differs from process to process, and with it the order of names here: code that lists several
sorts them. Code on the path of every command looks into the part itself, `table.parts[hash(name) & MASK]`: a call
would cost as much as the look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fencehold.core.state import Hold

PARTS = 256
MASK: Final = PARTS - 1
FRESH_MAX: Final = 32
"""Of each session, in its small table."""


def new_table() -> dict[str, Hold]:
    """An empty table of holds that keeps the hash of each name with it.

    CPython leaves the hashes out while all keys are text, and reads them from the texts: of each name that is met
    on the way to another, and of all when the table grows. Among half a million names none of these texts is in
    a cache. A table that once had a key of another kind keeps them.
    """
    table: dict[Any, Any] = {0: None}
    del table[0]
    return table


class Holds(Mapping[str, "Hold"]):
    """Holds by name."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[dict[str, Hold]] = [new_table() for _ in range(PARTS)]

    def __getitem__(self, name: str) -> Hold:
        return self.parts[hash(name) & MASK][name]

    def get(self, name: str, default: None = None) -> Hold | None:  # type: ignore[override]
        # That of `Mapping` raises and catches for every name that is free, as most are.
        return self.parts[hash(name) & MASK].get(name, default)

    def __setitem__(self, name: str, hold: Hold) -> None:
        self.parts[hash(name) & MASK][name] = hold

    def __contains__(self, name: object) -> bool:
        return name in self.parts[hash(name) & MASK]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))
