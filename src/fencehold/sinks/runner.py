"""The runner: one follower and one sink, until it is stopped or the target is wrong for ever.

1. Reading and delivering go on side by side: a target that is away holds up only what is bounded (`outbox`).
2. A target that was away is opened again, and says how far it got. If that is less than it had said before, it has
   lost something: then it is read again from there, as far as the service still has it.
3. It begins after what the target has; if the target has nothing, where it was told to: `beginning`, `now`, or a
   place.
4. What it comes to (delivered, retried, dropped, gaps, lag) is told to who asks, and written to a file for
   `fencehold sink status`.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable
from fencehold.locks.views import WHOLE, Event
from fencehold.sinks.cloudevents import record_of
from fencehold.sinks.follower import Follower
from fencehold.sinks.outbox import Bounds, Outbox
from fencehold.sinks.port import Cursor, Record, Rejected, Sink

_LOG = logging.getLogger("fencehold")
_STATUS_S = 1.0
_HEAD_S = 5.0
BEGINNING: Cursor = (0, WHOLE)


class Runner:
    """What carries events of one service into one target."""

    def __init__(
        self,
        follower: Follower,
        sink: Sink,
        *,
        cluster: str,
        start: Cursor | None = BEGINNING,
        bounds: Bounds | None = None,
        status: Path | None = None,
        name: str = "",
    ) -> None:
        """`start` is where it begins if the target has nothing; None: with what happens from now on."""
        self._follower = follower
        self._sink = sink
        self._cluster = cluster
        self._start = start
        self._status = status
        self._name = name or sink.declared.name
        self.outbox = Outbox(bounds or Bounds(), random.random)
        self._read_unix_ms = 0
        self._head = 0
        self._tasks: asyncio.TaskGroup | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        """There is something to deliver."""
        self._room = asyncio.Event()
        """There is room for more."""
        self.on_change: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Carry events until it is cancelled.

        Raises:
            FenceholdError: the target, or the place it is at, is wrong for ever.
        """
        try:
            cursor = await self._opened()
            self.outbox.cursor = cursor
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._read_from(cursor if cursor is not None else self._start)
                tasks.create_task(self._deliver())
                tasks.create_task(self._tell())
        except BaseExceptionGroup as group:
            wrong = group.subgroup(FenceholdError)
            if wrong is None:
                raise
            raise _first(wrong) from None
        finally:
            await self._sink.close()
            self._write_status(ended=True)

    async def _opened(self) -> Cursor | None:
        """Reach the target, however long that takes."""
        while True:
            try:
                return await self._sink.open()
            except (Unavailable, OutcomeUnknown) as away:
                await self._pause((), away)

    def _read_from(self, after: Cursor | None) -> None:
        if self._reading is not None:
            self._reading.cancel()
        assert self._tasks is not None
        self._reading = self._tasks.create_task(self._read(after))

    async def _read(self, after: Cursor | None) -> None:
        async for event in self._follower.events(after):
            self._take(event)
            while self.outbox.is_full:
                self._room.clear()
                await self._room.wait()

    def _take(self, event: Event) -> None:
        if event.unix_ms is not None:
            self._read_unix_ms = event.unix_ms
        self._head = max(self._head, event.position)
        self.outbox.put(record_of(event, self._cluster))
        self._news.set()

    async def _deliver(self) -> None:
        while True:
            batch = self.outbox.batch()
            if not batch:
                self._news.clear()
                await self._news.wait()
                continue
            try:
                await self._sink.deliver(batch)
            except Rejected as wrong:
                _LOG.error("sink_dropped", extra={"facts": {"sink": self._name, "why": str(wrong)}})
                self.outbox.on_rejected(wrong.cursors)
            except (Unavailable, OutcomeUnknown) as failed:
                await self._pause(batch, failed)
                self._go_on_after(await self._opened())
            else:
                self.outbox.on_delivered(batch)
            self._room.set()
            self.on_change()

    def _go_on_after(self, cursor: Cursor | None) -> None:
        """The target was away, and says how far it got: maybe not as far as it had said before."""
        before, begin = self.outbox.cursor, cursor if cursor is not None else self._start
        if before is not None and begin is not None and begin < before:
            _LOG.warning("sink_went_back", extra={"facts": {"sink": self._name, "from": before, "to": cursor}})
            self.outbox.clear(cursor)
            self._read_from(begin)
        else:
            self.outbox.on_opened(cursor)

    async def _pause(self, batch: "tuple[Record, ...] | list[Record]", error: FenceholdError) -> None:
        was_well = not self.outbox.counters.error
        pause_s = self.outbox.on_failed(batch, str(error))
        if was_well:
            _LOG.warning("sink_away", extra={"facts": {"sink": self._name, "why": str(error)}})
        self.on_change()
        self._write_status()
        await asyncio.sleep(pause_s)

    # How it is doing.

    def facts(self) -> dict[str, Any]:
        """What there is to know of it."""
        counters, cursor = self.outbox.counters, self.outbox.cursor
        oldest = self.outbox.batch()[:1]
        return {
            "name": self._name,
            "sink": self._sink.declared.name,
            "delivery": self._sink.declared.delivery.value,
            "cursor": None if cursor is None else list(cursor),
            "cursor_kept": self._sink.declared.cursor,
            "reads_from": self._follower.node or None,
            "role": self._follower.role or None,
            "delivered": counters.delivered,
            "retried": counters.retried,
            "dropped": counters.dropped,
            "gaps": counters.gaps,
            "waiting": len(self.outbox),
            "waiting_bytes": self.outbox.size_bytes,
            "lag_positions": max(0, self._head - (cursor[0] if cursor else 0)) if oldest else 0,
            "lag_s": round(self._lag_s(oldest), 3),
            "error": counters.error or None,
        }

    def _lag_s(self, oldest: list[Record]) -> float:
        if not oldest:
            return 0.0
        unix_ms = json.loads(oldest[0].data).get("unix_ms", self._read_unix_ms)
        return max(0.0, time.time() - unix_ms / 1000) if unix_ms else 0.0

    async def _tell(self) -> None:
        looked_at = 0.0
        while True:
            self._write_status()
            await asyncio.sleep(_STATUS_S)
            if time.monotonic() - looked_at > _HEAD_S:
                looked_at = time.monotonic()
                with contextlib.suppress(FenceholdError):
                    self._head = max(self._head, await self._follower.head())

    def _write_status(self, *, ended: bool = False) -> None:
        if self._status is None:
            return
        facts = {**self.facts(), "pid": os.getpid(), "running": not ended, "written_unix": round(time.time(), 3)}
        beside = self._status.with_name(f"{self._status.name}.{os.getpid()}")
        try:
            beside.write_text(json.dumps(facts) + "\n")
            beside.replace(self._status)
        except OSError as error:
            _LOG.warning("sink_status_unwritten", extra={"facts": {"sink": self._name, "why": str(error)}})


def _first(group: BaseExceptionGroup[FenceholdError]) -> FenceholdError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, FenceholdError)
    return error
