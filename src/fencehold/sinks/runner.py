"""The runner: one follower and one sink, until it is stopped or the target is permanently wrong.

1. Reading and delivering are concurrent: a target that is away holds up only what is bounded (`outbox`). Shards
   are read concurrently, too, and delivered together.
2. A target that was away is opened again, and reports its cursors. If one is behind what it was before, the target
   has lost something: then events are read again from there, as far as the service still has them.
3. It begins after what the target has; if the target has nothing, where configured: `beginning`, `now`, or a
   place.
4. Its counters (delivered, retried, dropped, gaps, lag) are available as facts, and written to a file for
   `fencehold sink status`. That its target, or the service, is away is logged once, with the reason.
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

from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable, UsageError
from fencehold.locks.views import WHOLE, Event
from fencehold.sinks.cloudevents import record_of
from fencehold.sinks.follower import Follower
from fencehold.sinks.outbox import Bounds, Outbox
from fencehold.sinks.port import Cursor, Cursors, Record, Rejected, Sink

_LOG = logging.getLogger("fencehold")
_STATUS_S = 1.0
_HEAD_S = 5.0
BEGINNING: Cursor = (0, WHOLE)


class Runner:
    """Delivers the events of one service to one target."""

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
        self._is_service_away = False
        self.shards = 1
        self._heads: dict[int, int] = {}
        """The newest known position of each shard."""
        self._tasks: asyncio.TaskGroup | None = None
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        """There is something to deliver."""
        self._room = asyncio.Event()
        """There is room for more."""
        self.on_change: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Deliver events until it is cancelled.

        Raises:
            FenceholdError: the target, or the place it is at, is permanently wrong.
        """
        try:
            self.shards = await self._counted()
            cursors = await self._opened()
            self.outbox.cursors = dict(cursors)
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for shard in range(self.shards):
                    self._read_from(shard, cursors.get(shard, self._start))
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

    async def _counted(self) -> int:
        """How many shards the service has, however long it takes to reach it."""
        while True:
            try:
                shards = await self._follower.shards()
                break
            except Unavailable:
                self._note_service()
                self._write_status()
                await asyncio.sleep(_STATUS_S)
        if shards > 1 and self._start not in (None, BEGINNING):
            raise UsageError(
                f"a position is one shard's, and this service has {shards}: begin at beginning, or now"
            )
        return shards

    async def _opened(self) -> Cursors:
        """Reach the target, however long that takes."""
        while True:
            try:
                return await self._sink.open(self.shards)
            except (Unavailable, OutcomeUnknown) as away:
                await self._pause((), away)

    def _read_from(self, shard: int, after: Cursor | None) -> None:
        if shard in self._reading:
            self._reading[shard].cancel()
        assert self._tasks is not None
        self._reading[shard] = self._tasks.create_task(self._read(shard, after))

    async def _read(self, shard: int, after: Cursor | None) -> None:
        async for event in self._follower.events(after, shard):
            self._take(event)
            while self.outbox.is_full:
                self._room.clear()
                await self._room.wait()

    def _take(self, event: Event) -> None:
        if event.unix_ms is not None:
            self._read_unix_ms = event.unix_ms
        self._heads[event.shard] = max(self._heads.get(event.shard, 0), event.position)
        self.outbox.put(record_of(event, self._cluster))
        self._news.set()

    async def _deliver(self) -> None:
        while True:
            if not self.outbox:
                self._news.clear()
                await self._news.wait()
            if self.outbox.gather_s:
                await asyncio.sleep(self.outbox.gather_s)
            batch = self.outbox.batch()
            if not batch:
                # It is read again.
                continue
            try:
                await self._sink.deliver(batch)
            except Rejected as wrong:
                _LOG.error("sink_dropped", extra={"facts": {"sink": self._name, "why": str(wrong)}})
                self.outbox.on_rejected(wrong.places)
            except (Unavailable, OutcomeUnknown) as failed:
                await self._pause(batch, failed)
                self._go_on_after(await self._opened())
            else:
                self.outbox.on_delivered(batch)
            self._room.set()
            self.on_change()

    def _go_on_after(self, cursors: Cursors) -> None:
        """The target was away, and reports its cursors: maybe behind what they were before."""
        for shard, before in tuple(self.outbox.cursors.items()):
            begin = cursors.get(shard, self._start)
            if begin is not None and begin < before:
                facts = {"sink": self._name, "shard": shard, "from": before, "to": cursors.get(shard)}
                _LOG.warning("sink_went_back", extra={"facts": facts})
                self.outbox.clear(shard, cursors.get(shard))
                self._read_from(shard, begin)
        self.outbox.on_opened(cursors)

    async def _pause(self, batch: "tuple[Record, ...] | list[Record]", error: FenceholdError) -> None:
        was_well = not self.outbox.counters.error
        pause_s = self.outbox.on_failed(batch, str(error))
        if was_well:
            _LOG.warning("sink_away", extra={"facts": {"sink": self._name, "why": str(error)}})
        self.on_change()
        self._write_status()
        await asyncio.sleep(pause_s)

    # Status.

    def facts(self) -> dict[str, Any]:
        """Its status, as written to the file."""
        counters, cursors = self.outbox.counters, self.outbox.cursors
        oldest, cursor = self.outbox.batch()[:1], cursors.get(0) if self.shards == 1 else None
        return {
            "name": self._name,
            "sink": self._sink.declared.name,
            "delivery": self._sink.declared.delivery.value,
            "cursor": None if cursor is None else list(cursor),
            "cursors": {str(shard): list(each) for shard, each in sorted(cursors.items())},
            "shards": self.shards,
            "cursor_kept": self._sink.declared.cursor,
            "reads_from": self._follower.node or None,
            "role": self._follower.role or None,
            "delivered": counters.delivered,
            "retried": counters.retried,
            "dropped": counters.dropped,
            "gaps": counters.gaps,
            "waiting": len(self.outbox),
            "waiting_bytes": self.outbox.size_bytes,
            "lag_positions": self._lag_positions() if oldest else 0,
            "lag_s": round(self._lag_s(oldest), 3),
            "error": counters.error or None,
            "service_error": self._follower.trouble or None,
        }

    def _lag_positions(self) -> int:
        """Of all shards together."""
        cursors = self.outbox.cursors
        return sum(max(0, head - cursors.get(shard, (0, 0))[0]) for shard, head in self._heads.items())

    def _lag_s(self, oldest: list[Record]) -> float:
        if not oldest:
            return 0.0
        unix_ms = json.loads(oldest[0].data).get("unix_ms", self._read_unix_ms)
        return max(0.0, time.time() - unix_ms / 1000) if unix_ms else 0.0

    async def _tell(self) -> None:
        looked_at = 0.0
        while True:
            self._note_service()
            self._write_status()
            await asyncio.sleep(_STATUS_S)
            if time.monotonic() - looked_at > _HEAD_S:
                looked_at = time.monotonic()
                for shard in range(self.shards):
                    with contextlib.suppress(FenceholdError):
                        head = await self._follower.head(shard)
                        self._heads[shard] = max(self._heads.get(shard, 0), head)

    def _note_service(self) -> None:
        """Log once that the service is not read, and why; and that it is again."""
        trouble = self._follower.trouble
        if trouble and not self._is_service_away:
            _LOG.warning("service_away", extra={"facts": {"sink": self._name, "why": trouble}})
        elif self._is_service_away and not trouble:
            _LOG.info("service_back", extra={"facts": {"sink": self._name}})
        self._is_service_away = bool(trouble)

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
