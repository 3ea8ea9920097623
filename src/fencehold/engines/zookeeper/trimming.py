"""Trimming: what the standing snapshot made needless is removed, a bounded number of nodes at a time.

The rules it obeys:

1. Entries go oldest first, and the one at the snapshot's position stays. So what is left is one stretch, and its
   last position is the end of the journal.
2. The name of a snapshot carries the version of the pointer with which it stands. One with a version up to the
   pointer's, which the pointer does not name, can never stand again, and goes. A later one may be under way.
3. Several may trim at once: what is missing already is as good as removed.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

from kazoo.exceptions import NoNodeError, NotEmptyError

from fencehold.engines.zookeeper.layout import BUCKET, Layout, Pointed, generation
from fencehold.engines.zookeeper.writes import Asker, failed, transaction
from fencehold.types import Position

_BATCH = 250


class Trimming:
    """Makes room in one journal."""

    def __init__(self, asker: Asker, layout: Layout) -> None:
        self._asker = asker
        self._layout = layout

    async def trim(self, seen: Pointed) -> None:
        """Remove what the snapshot that was seen made needless."""
        if seen.pointer is not None:
            await self._trim_entries(seen.position)
            await self._trim_snapshots(seen.version, seen.pointer.name)

    async def _trim_entries(self, kept: Position) -> None:
        for number in sorted(map(int, await self._children(self._layout.entries))):
            if number <= kept // BUCKET:
                await self._empty(self._layout.bucket(number), kept)
            if number < kept // BUCKET:
                await self._remove([self._layout.bucket(number)])

    async def _trim_snapshots(self, version: int, standing: str) -> None:
        for name in await self._children(self._layout.snapshots):
            number = generation(name)
            if number is not None and number <= version and name != standing:
                await self._empty(self._layout.snapshot(name))
                await self._remove([self._layout.snapshot(name)])

    async def _empty(self, path: str, below: float = inf) -> None:
        """Remove the children of a node whose number is below another, the smallest first."""
        while names := [name for name in await self._children(path) if int(name) < below]:
            await self._remove([f"{path}/{name}" for name in names[:_BATCH]])

    async def _children(self, path: str) -> list[str]:
        answer = await self._asker.read_one(lambda client: client.get_children_async(path))
        # All have digits of equal number in front, so the order of names is that of numbers.
        return [] if answer.is_missing else sorted(answer.unwrap())

    async def _remove(self, paths: Sequence[str]) -> None:
        def fill(request: Any) -> None:
            for path in paths:
                request.delete(path)

        answer = await self._asker.read_one(transaction(fill))
        problem = failed(answer.value)
        # Another one who trims was first. What was left by it is found by the next look.
        if problem is not None and not problem.is_a((NoNodeError, NotEmptyError)):
            raise self._asker.link.refusal(problem.error)
