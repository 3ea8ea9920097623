"""A claim and a hold, for threads. See the async ones for the rules; here a body is not cancelled: it checks."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from fencehold.client.blocking.portal import Portal
from fencehold.client.threads.gates import Gate
from fencehold.durations import Duration
from fencehold.errors import FenceholdError
from fencehold.locks import meter as metering
from fencehold.locks.hold import Claiming, Holding
from fencehold.locks.log import claim_lost, hold_lost
from fencehold.locks.terms import ttl_of, wait_of
from fencehold.locks.trust import Grant


class Claim(Claiming):
    """Names held to avoid doing work twice. There is no fence, so it protects nothing from a late write."""

    __slots__ = ("_loss", "_portal")

    _tell_loss = staticmethod(claim_lost)
    """No method: a grant that knew its hold would keep it from being collected when it is forgotten."""

    def __init__(self, portal: Portal, grant: Grant) -> None:
        self._portal = portal
        super().__init__(grant, portal.channel.clock)
        self._loss: Loss | None = None
        grant.on_lost = self._tell_loss
        if grant.ending:
            # Lost on the way here.
            self._tell_loss(grant)

    @property
    def lost(self) -> "Loss":
        """Something to wait for, or to be called back by, when the hold is lost."""
        if self._loss is None:
            self._loss = Loss(self)
            self._grant.on_lost = self._on_lost
            if self._grant.ending not in ("", "released"):
                # Lost before there was a callback, or in this moment: firing twice does no harm.
                self._loss._fire()
        return self._loss

    def deadline(self) -> float:
        """The end of trust on `time.monotonic`'s clock."""
        return time.monotonic() + self.safe_for()

    def extend(self, ttl: Duration | None) -> None:
        """Let the hold end `ttl` from now; None: with its session.

        Raises:
            HoldLost: it was gone already.
            OutcomeUnknown: it may have been extended.
        """
        self._alive()
        self._portal.extend(self._grant, ttl_of(ttl))

    def release(self) -> None:
        """Release the names. Done even if the caller is interrupted while waiting for the reply.

        Raises:
            HoldLost: it was lost before; what was done under it may not have been alone.
            NotOwner: it was released before.
            OutcomeUnknown: the connection was lost; the names are released when it is back, or with the session.
            Overloaded: it is busy; the names are released as soon as it is not, or with the session.
        """
        try:
            self._alive()
            if metering.meter is not None:
                metering.meter.on_released(self._grant)
            self._portal.release(self._grant)
        except FenceholdError:
            raise
        except BaseException:
            self._on_interrupted()
            raise

    def _leave(self, error: BaseException | None) -> None:
        """The body is over: release, whatever interrupts it. Never hides the body's own error.

        Raises:
            HoldLost: it was lost, and the body raised nothing.
        """
        try:
            if self._grant.ending != "released":
                self.release()
        except FenceholdError as failure:
            if error is None:
                raise
            if failure is not error:
                error.add_note(str(failure))
        finally:
            self._on_interrupted()

    def _on_interrupted(self) -> None:
        """Have it released, if it is not, without waiting: the caller may have been interrupted."""
        if not self._grant.ending:
            self._portal.release_soon(self._grant)

    def _release_soon(self) -> None:
        """Release it, if that was not done, without waiting: the portal's own thread may garbage-collect an
        iterator that was not closed."""
        if not self._grant.ending:
            self._portal.run_soon(self._released())

    async def _released(self) -> None:
        if not self._grant.ending:
            await self._portal.channel.release(self._grant)

    def _on_lost(self, grant: Grant) -> None:
        self._tell_loss(grant)
        if self._loss is not None:
            self._loss._fire()


class Hold(Claim, Holding):
    """Names held with a fence. Pass `fence` to whatever the names protect; call `check` before each step."""

    __slots__ = ()

    _tell_loss = staticmethod(hold_lost)


class Loss:
    """The loss of one hold: wait for it like for a `threading.Event`, or be called back."""

    __slots__ = ("_callbacks", "_gates", "_hold", "_is_set")

    def __init__(self, hold: Claim) -> None:
        self._hold = hold
        self._is_set = False
        self._gates: dict[Gate, Any] = {}
        """Of the threads that wait."""
        self._callbacks: deque[Callable[[], object]] = deque()

    def is_set(self) -> bool:
        """Whether the hold is lost."""
        return self._is_set

    @property
    def reason(self) -> str:
        """Why; empty while it is not lost."""
        return self._hold._grant.ending if self.is_set() else ""

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait for the loss; False if it did not happen in time. A hold that is released is never lost."""
        gate = self._hold._portal.threads.gate()
        self._gates[gate] = None
        try:
            # After the gate was noted: either this is seen here, or the gate is seen there.
            return self._is_set or gate.wait(wait_of(timeout)) or self._is_set
        finally:
            self._gates.pop(gate, None)

    def add_callback(self, callback: Callable[[Any], object]) -> None:
        """Have this called when the hold is lost, in a thread of its own; at once if it is."""
        # Not in the portal's thread: a callback that blocks must not stop the keep-alives of the other holds.
        call = self._hold._portal.threads.caller()
        self._callbacks.append(lambda: call(partial(callback, self._hold)))
        if self._is_set:
            self._fire()

    def _fire(self) -> None:
        """The hold is lost."""
        self._is_set = True
        for gate in list(self._gates):
            # Opened by the thread that takes it out: that is done once.
            if self._gates.pop(gate, self) is None:
                gate.open()
        while self._callbacks:
            self._callbacks.popleft()()
