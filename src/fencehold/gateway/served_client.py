"""A client of the service, kept for a client of another protocol: its verbs, in plain values.

1. A request id is acted upon once (idempotent): while it is in flight repeats join it, afterwards they get the
   same answer.
2. However the wait for an acquire ends early, nothing stays behind: neither held, nor waiting.
3. What certainly did not happen is not remembered: it may be retried with the same id.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencehold import aio
from fencehold.errors import FenceholdError, HoldLost, LimitExceeded, SessionExpired, UsageError
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.holds import Held, Holds
from fencehold.gateway.owner_task import OwnerTask
from fencehold.gateway.problems import AlreadyReleased, Withdrawn
from fencehold.locks.loss_reasons import LossKind, loss_kind
from fencehold.types import CORRECTNESS, Tier

EXCLUSIVE, SHARED, PERMIT = "X", "S", "P"
REQUEST_ID_BYTES_MAX = 64
_WITH_SESSION = (LossKind.SESSION, LossKind.UNANSWERED, LossKind.CLOSED)


class Ask(NamedTuple):
    """An acquire, as requested."""

    names: tuple[str, ...]
    tier: Tier = CORRECTNESS
    mode: str = EXCLUSIVE
    permits: int = 0
    wait_ms: int | None = None
    ttl_ms: int = 0
    delay_ms: int = 0
    request_id: str = ""
    owner: str = ""
    meta: Mapping[str, str] | None = None
    is_several: bool = False


@dataclass(slots=True, eq=False)
class _Request:
    names: tuple[str, ...]
    task: "asyncio.Task[Held | None]"
    waiting: int = 0


class ServedClient:
    """One client of the SDK, and what is held by it."""

    def __init__(self, client: aio.Client, bounds: GatewayBounds, on_lost: Callable[[Held], None]) -> None:
        self.client = client
        self.holds = Holds(bounds.endings_per_session_max, self._on_lost)
        self._tell_loss = on_lost
        self._bounds = bounds
        self._owners: dict[str, OwnerTask] = {}
        self._requests: OrderedDict[str, _Request] = OrderedDict()
        self._undoing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.has_lost_session = False
        """Whether what lived with its session was lost with it: the service ended it, or was not reachable."""

    @property
    def is_idle(self) -> bool:
        return not len(self.holds) and not any(not request.task.done() for request in self._requests.values())

    async def acquire(self, ask: Ask) -> Held | None:
        """Acquire; None if it was not acquired in time. Cancelling it leaves nothing behind.

        Raises:
            FenceholdError: as `Lock.acquire` of the SDK.
        """
        lock = self._lock(ask)
        if len(ask.request_id.encode()) > REQUEST_ID_BYTES_MAX:
            raise UsageError(f"a request id has at most {REQUEST_ID_BYTES_MAX} bytes")
        try:
            if ask.request_id:
                return await self._joined(ask, lambda: self._asked(ask, lock))
            return await self._asked(ask, lock)
        except (asyncio.CancelledError, FenceholdError) as ended:
            raise self._ended_by(ended) from ended

    async def release(self, hold_id: str, name: str, fence: int, *, is_repeated: bool = False) -> Held:
        """Release a hold. A retry may find that it was released already.

        Raises:
            NotOwner, AlreadyReleased, HoldLost: it was no longer held.
            OutcomeUnknown: it is released when the service is back.
        """
        try:
            held = self.holds.find(hold_id, name, fence)
        except AlreadyReleased:
            if is_repeated:
                return self.holds.ended(hold_id, name, fence)
            raise
        self._ended(held, "released")
        try:
            await held.hold.release()
        except HoldLost as lost:
            held.ending = lost.reason or str(lost)
            raise
        return held

    async def extend(self, hold_id: str, name: str, fence: int, ttl_ms: int) -> Held:
        """Move the end of a hold; 0: with its session."""
        held = self.holds.find(hold_id, name, fence)
        await held.hold.extend(ttl_ms / 1000 if ttl_ms else None)
        held.ttl_ms = ttl_ms
        return held

    async def withdraw(self, request_id: str) -> bool:
        """Withdraw an acquire, whatever became of it; returns whether it was held."""
        if not request_id:
            raise UsageError("request_id is missing")
        request = self._requests.pop(request_id, None)
        if request is None:
            return False
        request.task.cancel()
        with suppress(asyncio.CancelledError, FenceholdError):
            held = await request.task
            if held is not None and not held.ending:
                await self.release(held.hold_id, "", 0)
                return True
        return False

    async def close(self) -> None:
        """End the session: all that is held is released at once."""
        if self._is_closed:
            return
        self._is_closed = True
        for owner in self._owners.values():
            owner.stop()
        for request in self._requests.values():
            request.task.cancel()
        for held in self.holds.live():
            self._ended(held, "the session was closed")
        await self.client.close()

    def _ended_by(self, ended: BaseException) -> BaseException:
        """The error for an acquire that ended like this: its session may have been closed, or it was withdrawn."""
        task = asyncio.current_task()
        if isinstance(ended, asyncio.CancelledError) and (task is None or task.cancelling()):
            # The caller's own.
            return ended
        if self._is_closed:
            return SessionExpired("the session was closed while this waited")
        return ended if isinstance(ended, FenceholdError) else Withdrawn("it was withdrawn while it waited")

    def _lock(self, ask: Ask) -> aio.Lock[Any]:
        """The lock of the SDK for an acquire, which checks what was asked."""
        # The SDK's types depend on the keyword arguments, which are only known at run time here.
        client: Any = self.client
        lock: aio.Lock[Any]
        timeout = None if ask.wait_ms is None else ask.wait_ms / 1000
        given: dict[str, Any] = {"ttl": ask.ttl_ms / 1000 if ask.ttl_ms else None, "timeout": timeout}
        given |= {"meta": dict(ask.meta) if ask.meta else None, "tier": ask.tier}
        if ask.mode == PERMIT:
            if ask.is_several:
                raise UsageError("several names are asked for exclusively or shared, not as permits")
            lock = client.semaphore(ask.names[0], ask.permits, **given)
            return lock
        if ask.permits:
            raise UsageError("permits are for MODE_PERMIT")
        given["shared"] = ask.mode == SHARED
        if ask.is_several:
            lock = client.multi(ask.names, **given)
        else:
            lock = client.lock(ask.names[0], delay=ask.delay_ms / 1000, **given)
        return lock

    async def _joined(self, ask: Ask, call: Callable[[], Coroutine[Any, Any, Held | None]]) -> Held | None:
        request = self._requests.get(ask.request_id)
        if request is None:
            request = _Request(ask.names, asyncio.create_task(call()))
            self._requests[ask.request_id] = request
            self._forget_old()
        elif request.names != ask.names:
            raise UsageError(f"request id {ask.request_id!r} was used for other names: {', '.join(request.names)}")
        request.waiting += 1
        try:
            return await asyncio.shield(request.task)
        except asyncio.CancelledError:
            if request.waiting == 1:
                self._withdraw_unheard(ask.request_id, request)
            raise
        except FenceholdError:
            self._requests.pop(ask.request_id, None)
            raise
        finally:
            request.waiting -= 1

    def _withdraw_unheard(self, request_id: str, request: _Request) -> None:
        """No caller waits for the answer any more: nothing may be granted without one."""
        self._requests.pop(request_id, None)
        if not request.task.done():
            request.task.cancel()
        elif not request.task.cancelled() and request.task.exception() is None:
            self._undo(request.task.result())

    def _forget_old(self) -> None:
        for request_id in [key for key, request in self._requests.items() if request.task.done()]:
            if len(self._requests) <= self._bounds.answers_per_session_max:
                return
            del self._requests[request_id]

    async def _asked(self, ask: Ask, lock: aio.Lock[Any]) -> Held | None:
        async def call() -> Held | None:
            hold = await lock.acquire()
            return None if hold is None else self._kept(ask, hold)

        if not ask.owner:
            task = asyncio.current_task()
            if task is not None:
                # What others see as the owner.
                task.set_name("call")
            return await call()
        owner = self._owner(ask.owner)
        try:
            result: Held | None = await owner.run(call, self._undo)
            return result
        finally:
            self._drop_if_idle(ask.owner)

    def _kept(self, ask: Ask, hold: aio.Claim) -> Held:
        if ask.owner:
            self._owners[ask.owner].holds += 1
        return self.holds.add(
            hold, tier=ask.tier, mode=ask.mode, ttl_ms=ask.ttl_ms, request_id=ask.request_id, owner=ask.owner
        )

    def _owner(self, name: str) -> OwnerTask:
        owner = self._owners.get(name)
        if owner is None:
            if len(self._owners) >= self._bounds.owners_per_session_max:
                raise LimitExceeded(
                    f"a session has at most {self._bounds.owners_per_session_max} owners at a time"
                )
            owner = self._owners[name] = OwnerTask(name)
        return owner

    def _drop_if_idle(self, name: str) -> None:
        owner = self._owners.get(name)
        if owner is not None and owner.is_idle:
            del self._owners[name]
            owner.stop()

    def _undo(self, held: Held | None) -> None:
        """Release what was granted without a caller."""
        if held is not None and not held.ending:
            task = asyncio.create_task(self._released(held))
            self._undoing.add(task)
            task.add_done_callback(self._undoing.discard)

    async def _released(self, held: Held) -> None:
        # Whatever the answer: it is released when the service is back, or with the session.
        with suppress(FenceholdError):
            await self.release(held.hold_id, "", 0)

    def on_answer(self, held: Held) -> None:
        """A call is about to be answered with a hold: its own, or that of an earlier call with the same request
        id."""
        held.calls += 1

    def on_unheard(self, held: Held) -> None:
        """That call ended before its answer was sent. If no other was answered with the hold, it is released."""
        held.calls -= 1
        if held.calls > 0:
            return
        if held.request_id:
            self._requests.pop(held.request_id, None)
        self._undo(held)

    def _on_lost(self, held: Held) -> None:
        # One that is force-released, or has expired by itself, ends alone: see `locks/loss_reasons.py`.
        if not held.ttl_ms and loss_kind(held.ending) in _WITH_SESSION:
            self.has_lost_session = True
        self._count_down(held)
        self._tell_loss(held)

    def _ended(self, held: Held, how: str) -> None:
        self.holds.end(held, how)
        self._count_down(held)

    def _count_down(self, held: Held) -> None:
        owner = self._owners.get(held.owner)
        if owner is not None and owner.holds:
            owner.holds -= 1
            self._drop_if_idle(held.owner)


def check_sessionless(ask: Ask) -> None:
    """Refuse what would be held for ever: without a session, a hold needs a time to live of its own."""
    if not ask.ttl_ms:
        raise UsageError("without a session, ttl_ms is needed: how long the hold may last; or open a session")
