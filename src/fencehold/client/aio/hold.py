"""A claim, and a hold: names, a fence, and how long they may be trusted. It, and not a task, is the owner.

1. Nothing is released by forgetting it: a forgotten hold warns, and lives as long as its session.
2. Inside `async with`, losing the hold cancels the body, as `asyncio.timeout` does: once, and distinguished from
   any other cancellation.
3. A release that was sent is done, whether or not its caller waits for the reply.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from fencehold.durations import Duration
from fencehold.errors import FenceholdError
from fencehold.locks import meter as metering
from fencehold.locks.carrier import Carrier, check_loop
from fencehold.locks.hold import Claiming, Holding
from fencehold.locks.log import claim_lost, hold_lost
from fencehold.locks.terms import ttl_of, wait_of
from fencehold.locks.trust import Grant


class Claim(Claiming):
    """Names held to avoid doing work twice. There is no fence, so it protects nothing from a late write."""

    __slots__ = ("_cancelling", "_carrier", "_loss", "_task")

    _tell_loss = staticmethod(claim_lost)
    """No method: a grant that knew its hold would keep it from being collected when it is forgotten."""

    def __init__(self, carrier: Carrier, grant: Grant) -> None:
        self._carrier = carrier
        super().__init__(grant, carrier.clock)
        self._loss: Loss | None = None
        grant.on_lost = self._tell_loss
        if grant.ending:
            # Lost on the way here.
            self._tell_loss(grant)
        self._task: asyncio.Task[Any] | None = None
        """The task whose body is cancelled when the hold is lost."""
        self._cancelling = -1
        """How many cancellations that task had when we requested ours; -1: we have not."""

    @property
    def lost(self) -> "Loss":
        """Something to wait for, or to be called back by, when the hold is lost."""
        if self._loss is None:
            self._loss = Loss(self)
            self._grant.on_lost = self._on_lost
            if self._grant.ending not in ("", "released"):
                self._loss._fire()
        return self._loss

    def deadline(self) -> float:
        """The end of trust on the loop's clock, as `asyncio.timeout_at` takes it."""
        return self._carrier.loop.time() + self.safe_for()

    async def extend(self, ttl: Duration | None) -> None:
        """Let the hold end `ttl` from now; None: with its session.

        Raises:
            HoldLost: it was gone already.
            OutcomeUnknown: it may have been extended.
        """
        self._alive()
        await self._carrier.extend(self._grant, ttl_of(ttl))

    async def release(self) -> None:
        """Release the names. Done even if the caller is cancelled while waiting for the reply.

        Raises:
            HoldLost: it was lost before; what was done under it may not have been alone.
            NotOwner: it was released before.
            OutcomeUnknown: the connection was lost; the names are released when it is back, or with the session.
            Overloaded: it is busy; the names are released as soon as it is not, or with the session.
        """
        self._alive()
        if metering.meter is not None:
            metering.meter.on_released(self._grant)
        await self._carrier.release(self._grant)

    # The body of an `async with`.

    def _enter_body(self, task: "asyncio.Task[Any]") -> None:
        """From now on, losing the hold cancels this task."""
        self._task = task
        self._grant.on_lost = self._on_lost
        if self._grant.ending:
            # Lost on the way here. In a later callback: the task is cancelled where it waits, not where it runs.
            self._carrier.loop.call_soon(self._cancel_body)

    def _leave(self, error: BaseException | None) -> Awaitable[None]:
        """The body is over: release. Never hides the body's own error.

        Raises:
            HoldLost: it was lost, and the body raised nothing, or was cancelled for that only.
        """
        if error is None and not self._grant.ending:
            if metering.meter is not None:
                metering.meter.on_released(self._grant)
            self._task = None
            return self._carrier.release(self._grant)
        return self._leave_failed(error)

    async def _leave_failed(self, error: BaseException | None) -> None:
        """The same, for a body that raised something, or whose hold is no longer held."""
        stopped = self._stop_guarding() and isinstance(error, asyncio.CancelledError)
        try:
            if self._grant.ending != "released":
                await self.release()
        except FenceholdError as failure:
            if error is None:
                raise
            if stopped:
                raise failure from error
            error.add_note(str(failure))

    def _on_interrupted(self) -> None:
        """The end of a body was interrupted. Here that changes nothing: a task stops only where it waits, and a
        release that was requested is done."""

    def _stop_guarding(self) -> bool:
        """Returns whether the body was cancelled for the loss, and for nothing else."""
        task, self._task = self._task, None
        if task is None or self._cancelling < 0:
            return False
        return task.uncancel() <= self._cancelling

    def _on_lost(self, grant: Grant) -> None:
        self._tell_loss(grant)
        self._cancel_body()
        if self._loss is not None:
            self._loss._fire()

    def _cancel_body(self) -> None:
        if self._task is not None:
            self._cancelling = self._task.cancelling()
            self._task.cancel()


class Hold(Claim, Holding):
    """Names held with a fence. Pass `fence` to whatever the names protect, so that it can refuse an older one."""

    __slots__ = ()

    _tell_loss = staticmethod(hold_lost)


class Loss:
    """The loss of one hold: wait for it, or be called back."""

    __slots__ = ("_callbacks", "_event", "_hold")

    def __init__(self, hold: Claim) -> None:
        self._hold = hold
        self._event = asyncio.Event()
        self._callbacks: list[Callable[[Any], object]] = []

    def is_set(self) -> bool:
        """Whether the hold is lost."""
        return self._event.is_set()

    @property
    def reason(self) -> str:
        """Why; empty while it is not lost."""
        return self._hold._grant.ending if self.is_set() else ""

    def add_callback(self, callback: Callable[[Any], object]) -> None:
        """Have this called in the loop when the hold is lost; at once if it is. It must not block."""
        if self.is_set():
            self._hold._carrier.loop.call_soon(callback, self._hold)
        else:
            self._callbacks.append(callback)

    async def wait(self, timeout: Duration | None = None) -> bool:
        """Wait for the loss; False if it did not happen in time. A hold that is released is never lost."""
        check_loop(self._hold._carrier.loop)
        try:
            async with asyncio.timeout(wait_of(timeout)):
                return await self._event.wait()
        except TimeoutError:
            return self.is_set()

    def __await__(self) -> Generator[Any, None, str]:
        """Wait for the loss, and say why."""
        yield from self.wait().__await__()
        return self.reason

    def _fire(self) -> None:
        """The hold is lost."""
        self._event.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            # One that fails is reported by the loop, and does not prevent the others.
            self._hold._carrier.loop.call_soon(callback, self._hold)
