"""Reading: the end of the journal, the entries in pages, and the wait for more.

The rules it obeys:

1. Entries are one stretch without gaps, and this handle never sees an older state after a newer one. So a position
   that is missing before one that was seen has been trimmed, and one that is missing after it was not written yet.
2. A page is asked for in one go. It is as long as what was found so far lets expect, up to a bound.
3. A tail waits for a watch that was set by the very read that found nothing. A watch that is lost with its
   connection fires as well: then it reads again. So nothing is missed, and no request is wasted.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import takewhile

from fencehold.drivers.zookeeper.client import Request
from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.engines.zookeeper.layout import Layout, pointed, record
from fencehold.engines.zookeeper.retries import AnswerLate, RetryingClient
from fencehold.errors import Damaged, Trimmed
from fencehold.journal.port import Record
from fencehold.types import Position

_PAGE_MAX = 64
_LOOKS_MAX = 8


class EntryReader:
    """What is read from one journal."""

    def __init__(self, retries: RetryingClient, layout: Layout) -> None:
        self._retries = retries
        self._layout = layout

    async def end(self) -> Position:
        """The position of the last entry, as far as this handle has seen."""
        for _ in range(_LOOKS_MAX):
            bucket = await self._last(self._layout.entries)
            # A bucket that went meanwhile was trimmed, and there is a newer one.
            if bucket is not None and (position := await self._last(self._layout.bucket(bucket))) is not None:
                return Position(position)
        raise Damaged(f"{self._layout.entries} holds no position: something was removed from it")

    async def _last(self, path: str) -> int | None:
        answer = await self._retries.read_one(lambda client: client.get_children_async(path))
        children = [] if answer.is_missing else answer.unwrap()
        return max((int(name) for name in children if name.isdecimal()), default=None)

    async def read(self, after: Position, end: Position) -> AsyncIterator[Record]:
        """The entries after a position, up to an end that was seen."""
        while after < end:
            answers = await self._retries.read(*self._gets(after + 1, min(_PAGE_MAX, end - after)))
            for answer in answers:
                after = Position(after + 1)
                yield record(after, _value(after, answer))

    async def tail(self, after: Position) -> AsyncIterator[Record]:
        """The entries after a position, for ever. An outage is waited for, like anything else that may come."""
        bell = asyncio.Event()
        page = 1
        with self._retries.client.ringing(bell):
            while True:
                bell.clear()
                try:
                    values, is_end = await self._look(Position(after + 1), page, bell)
                except AnswerLate:
                    continue
                for value in values:
                    after = Position(after + 1)
                    yield record(after, value)
                page = 1 if is_end or len(values) < page else min(2 * page, _PAGE_MAX)
                if is_end:
                    await bell.wait()

    async def _look(self, first: Position, page: int, bell: asyncio.Event) -> tuple[list[bytes], bool]:
        """What is there from `first` on, up to a page; and whether that is all, with a watch for what is next."""
        if page > 1:
            return _values(await self._retries.read(*self._gets(first, page))), False
        # The next one first: as this one is there afterwards, the next was not trimmed before.
        following, here = await self._retries.read(self._watch(first + 1, bell), *self._gets(first, 1))
        if here.is_missing:
            return [], await self._is_end(first, bell)
        return _values([here]), following.value is None

    async def _is_end(self, first: Position, bell: asyncio.Event) -> bool:
        """Whether a position that is missing is not written yet; False if it came meanwhile.

        Raises:
            Trimmed: it was there before.
        """
        here, pointer = await self._retries.read(
            self._watch(first, bell), lambda client: client.get_async(self._layout.pointer)
        )
        if here.value is not None:
            return False
        if pointed(pointer).position < first:
            return True
        # A snapshot covers it, so it was written: before the look, and trimmed; or after it, and is there.
        _value(first, await self._retries.read_one(self._gets(first, 1)[0]))
        return False

    def _watch(self, position: int, bell: asyncio.Event) -> Request:
        path = self._layout.entry(position)
        return lambda client: client.exists_async(path, watch=lambda _: bell.set())

    def _gets(self, first: int, count: int) -> list[Request]:
        paths = [self._layout.entry(position) for position in range(first, first + count)]
        return [lambda client, path=path: client.get_async(path) for path in paths]  # type: ignore[misc]


def _values(answers: Sequence[ZookeeperAnswer]) -> list[bytes]:
    """The values up to the first that is missing."""
    return [answer.unwrap()[0] for answer in takewhile(lambda answer: not answer.is_missing, answers)]


def _value(position: Position, answer: ZookeeperAnswer) -> bytes:
    if answer.is_missing:
        raise Trimmed(f"position {position} was trimmed: start from the snapshot")
    value: bytes = answer.unwrap()[0]
    return value
