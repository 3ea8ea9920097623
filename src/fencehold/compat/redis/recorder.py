"""The recorder of a shadow: a thread that records in Fencehold what Redis grants, and reports its findings.

1. *Nothing here affects the application*: a thread that locks hands over a note and continues. Failures are
   counted, and logged when they begin. Grants beyond a limit (per second, and at once) are not recorded, but
   counted: what is not recorded is in no finding.
2. *A grant is recorded as an exclusive hold on the same name*, from the acquire to the release, whatever Redis
   does in between. So if Redis grants a name to another while the first has not released it, the second finds it.
3. *A finding is never a race of our own.* A release in Redis is recorded a moment after it happened, and the next
   grant may be recorded before. So a name that is held is waited for: for `HASTE_S` if its holder has outlived its
   timeout, which no release explains; otherwise for `PATIENCE_S`. Releases of this process are known here.
4. *After an overlap the record keeps waiting*, until it has the name or is released: so the next overlap is found,
   too, and the length of this one.
5. *Timeouts are found here*, by a monotonic clock, without Fencehold.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fencehold import aio
from fencehold.client.aio.hold import Claim
from fencehold.client.aio.lock import Lock
from fencehold.client.connect import Plan
from fencehold.client.threads.loop import LoopThread, closed
from fencehold.compat.redis.arguments import tier_of
from fencehold.compat.redis.records import Record, holder_side, key_of, timeout_of, waiting_side
from fencehold.compat.shadow import Report, Side, Tally
from fencehold.errors import FenceholdError
from fencehold.locks.trust import margin
from fencehold.locks.views import Holder

HASTE_S = 0.2
PATIENCE_S = 1.0
RECORDS_MAX = 10_000
PER_SECOND = 500
_TICK_S = 0.01
"""How often notes are read, while there are any: waking up a thread for each would cost the application more."""
_OTHERS_MAX = 10
_FLUSH_S = 0.005

logger = logging.getLogger("fencehold.shadow")


class Counts:
    """The counters beside the findings. Each is written by one thread."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.recorded = self.failures = self.dropped = 0


class Recorder(LoopThread):
    """One per process. It starts with the first grant."""

    def __init__(
        self, plan: Plan, who: Side, sink: Callable[[Report], object], counts: Counts, per_second: int
    ) -> None:
        self._plan = plan
        self._per_second = per_second
        self._second_at = 0.0
        self._in_second = 0
        self._is_ticking = False
        self._who = who
        self._sink = sink
        self._counts = counts
        self._client: aio.Client | None = None
        self._following: dict[str, tuple[Record, asyncio.Task[None]]] = {}
        self._flushing: set[asyncio.Task[None]] = set()
        self._is_failing = self._is_ending = False
        super().__init__()

    # Called by any thread. These raise nothing and wait for nothing.

    def on_granted(self, record: Record) -> None:
        """Redis has granted a lock."""
        record.is_followed = self._has_room()
        if record.is_followed:
            self._note(self._follow, record)
        else:
            self._counts.dropped += 1

    def on_released(self, record: Record) -> None:
        """It was released, or its lock object was dropped."""
        if record.is_followed or record.is_taken_back:
            self._note(self._end, record)

    def on_extended(self, record: Record, timeout: float, at: float) -> None:
        """Redis has moved its end."""
        if record.is_followed:
            self._note(self._extend, record, timeout, at)

    def on_retaken(self, record: Record) -> None:
        """Redis has granted it again to the same lock object, without a release."""
        self._note(self._retake, record)

    def flush(self, timeout: float) -> bool:
        """Wait until what was handed over is recorded or waits for its name; returns whether it is."""
        done = threading.Event()
        self._note(self._flush, done, timeout)
        return done.wait(timeout)

    def stop(self, timeout: float) -> None:
        """Record what was handed over, and end, within so many seconds."""
        self.flush(timeout)
        ending = threading.Thread(target=self.close, name="fencehold shadow ending", daemon=True)
        ending.start()
        ending.join(timeout)

    def post(self, call: Callable[..., object], *args: Any) -> None:
        # Not woken up for each note, unlike a client's loop: they are read on the next tick.
        if self.loop.is_closed():
            raise closed()
        self._posted.append((call, args))
        if not self._is_ticking:
            self._is_ticking = True
            self.loop.call_soon_threadsafe(self._tick)

    def _note(self, call: Callable[..., object], *args: Any) -> None:
        try:
            self.post(call, *args)
        except (FenceholdError, RuntimeError):
            # Closed: the application continues to lock without its shadow.
            self._counts.dropped += 1

    def _has_room(self) -> bool:
        """Whether one more may be recorded. Threads that count at once may miscount by a few."""
        now = time.monotonic()
        if now - self._second_at >= 1:
            self._second_at, self._in_second = now, 0
        self._in_second += 1
        return self._in_second <= self._per_second and len(self._following) + len(self._posted) < RECORDS_MAX

    # On the loop.

    async def end(self) -> None:
        self._is_ending = True
        for record, _ in self._following.values():
            self._quiet(record)
        with suppress(FenceholdError):
            # Before the tasks: it ends their holds, so the tasks need not release them.
            if self._client is not None:
                await self._client.close()
        tasks = [*(task for _, task in self._following.values()), *self._flushing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tick(self) -> None:
        has_notes = bool(self._posted)
        # Before the read: a thread that posts after it, and sees this, starts the ticking again.
        self._is_ticking = has_notes
        try:
            self._drain()
        finally:
            # Even if a note failed: the next ones are read.
            if has_notes:
                self.loop.call_later(_TICK_S, self._tick)

    def _follow(self, record: Record) -> None:
        if record.timeout is not None:
            self._set_timer(record)
        task = self.loop.create_task(self._followed(record), name=record.owner)
        self._following[record.key] = record, task
        task.add_done_callback(lambda _: self._following.pop(record.key, None))

    def _end(self, record: Record) -> None:
        self._quiet(record)
        if record.is_taken_back:
            if record.late_s > 0:
                self._report(record.report("late_release", record.late_s, self._who))
            else:
                self._report(record.report("lost", record.held_s, self._who, detail="Redis had no such lock"))
        record.end()

    def _extend(self, record: Record, timeout: float, at: float) -> None:
        record.timeout, record.timed_at = timeout, at
        self._set_timer(record)
        record.changed.set()

    def _retake(self, record: Record) -> None:
        self._quiet(record)
        detail = "the same lock object acquired it again, without having released it"
        self._report(record.report("retaken", record.held_s, self._who, detail=detail))
        record.end()

    def _set_timer(self, record: Record) -> None:
        self._quiet(record)
        timeout = record.timeout or 0.0
        due_s = record.timed_at + timeout + margin(timeout) - self.loop.time()
        record.timer = self.loop.call_later(max(0.0, due_s), self._on_expired, record)

    def _quiet(self, record: Record) -> None:
        if record.timer is not None:
            record.timer.cancel()
            record.timer = None

    def _on_expired(self, record: Record) -> None:
        # Being released now: Redis decides whether that is too late.
        if not record.released_at:
            self._report(record.report("expired", record.held_s, self._who))

    def _report(self, report: Report) -> None:
        self._counts.tally.add(report)
        try:
            self._sink(report)
        except Exception as error:
            # An error in the application's sink must not affect its locks.
            self._fail("a report could not be delivered", error)

    def _fail(self, what: str, error: BaseException) -> None:
        if self._is_ending:
            return
        self._counts.failures += 1
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        logger.log(level, "%s: %s; further failures are counted, and logged at level debug", what, error)

    def _flush(self, done: threading.Event, timeout: float) -> None:
        task = self.loop.create_task(self._settled(done, self.loop.time() + timeout))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    async def _settled(self, done: threading.Event, until: float) -> None:
        while any(record.is_moving for record, _ in self._following.values()) and self.loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(_FLUSH_S)
        done.set()

    # One grant.

    async def _followed(self, record: Record) -> None:
        try:
            while await self._recorded(record):
                pass
            self._is_failing = False
        except Exception as error:
            # Also for unexpected errors: they must not affect the application's locks.
            record.is_settled = True
            self._fail(f"{record.name!r} could not be recorded", error)

    async def _recorded(self, record: Record) -> bool:
        """Hold its name for as long as it lasts; returns whether it was extended, and is to be recorded anew."""
        if not record.over.is_set():
            record.changed.clear()
        hold = await self._take(record)
        if hold is None:
            return False
        self._counts.recorded += not record.is_settled
        record.is_settled = True
        await record.changed.wait()
        if record.is_taken_back:
            await self._look_behind(record, hold)
        # No other record asks for it while Redis has it for this one: so there is time to release and reacquire.
        await hold.release()
        return not record.over.is_set()

    async def _take(self, record: Record) -> Claim | None:
        """Its name in Fencehold, as soon as it is available; None if it was over before."""
        hold = await self._lock(record, HASTE_S)._acquire_unowned()
        if hold is not None:
            return hold
        holder = await self._holder(record)
        if holder is None or not _has_outlived(holder):
            hold = await self._take_meanwhile(record, PATIENCE_S - HASTE_S)
            if hold is not None or record.over.is_set():
                return hold
            holder = await self._holder(record)
        # None, if it was released this very moment.
        return await (self._take_meanwhile(record, None) if holder is None else self._overlap(record, holder))

    async def _overlap(self, record: Record, holder: Holder) -> Claim | None:
        other = holder_side(holder)
        detail = "" if _has_outlived(holder) else "the timeout of the other had not run out: was it lost by Redis?"
        self._report(record.report("overlap", record.held_s, self._who, other=other, detail=detail))
        record.is_settled = True
        try:
            return await self._take_meanwhile(record, None)
        finally:
            self._report(record.report("overlap_over", record.held_s, self._who, other=other))

    async def _take_meanwhile(self, record: Record, wait: float | None) -> Claim | None:
        """Its name in Fencehold; None if it was not acquired in time, or the record was over first."""
        taking = asyncio.create_task(self._lock(record, wait)._acquire_unowned(), name=record.owner)
        over = asyncio.create_task(record.over.wait())
        try:
            await asyncio.wait({taking, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            taking.cancel()
            over.cancel()
            await asyncio.gather(taking, over, return_exceptions=True)
        return None if taking.cancelled() else taking.result()

    async def _look_behind(self, record: Record, hold: Claim) -> None:
        """Redis granted it to another: the one that waits for our record holds it now."""
        client = self._opened()
        seen = await client.explain(record.name, tier=tier_of(client))
        fence = getattr(hold, "fence", 0)
        for waiting in seen.queue[:_OTHERS_MAX]:
            other = waiting_side(waiting)
            self._report(record.report("retaken", record.late_s, self._who, other=other, fence=fence))

    async def _holder(self, record: Record) -> Holder | None:
        """The other holder of the name in Fencehold, if there is one."""
        client = self._opened()
        seen = await client.explain(record.name, tier=tier_of(client))
        return next((holder for holder in seen.holders if not self._is_released(holder, record)), None)

    def _is_released(self, holder: Holder, asking: Record) -> bool:
        """Whether a record is one of this process that was released in Redis, and will be in Fencehold."""
        key = key_of(holder)
        if key == asking.key:
            return True
        record, _ = self._following.get(key, (None, None))
        return record is not None and record.released_at > 0 and not record.is_taken_back

    def _lock(self, record: Record, timeout: float | None) -> Lock[Claim]:
        client = self._opened()
        meta = {"timeout": record.timeout, "shadow": record.key}
        return client.lock(record.name, timeout=timeout, meta=meta, tier=tier_of(client))

    def _opened(self) -> aio.Client:
        if self._client is None:
            self._client = aio.Client(self._plan)
        return self._client


def _has_outlived(holder: Holder) -> bool:
    """Whether a holder's lock in Redis has certainly expired."""
    timeout = timeout_of(holder)
    return timeout is not None and holder.held_for > timeout + margin(timeout)
