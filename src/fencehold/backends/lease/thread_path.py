"""The thread path: how a thread of a blocking client calls a store by itself.

To hand every acquire to the thread of the event loop costs two thread switches, more than a quick store takes to
answer. So a thread tries first by itself, on a connection of its own, and hands over only what has to wait:

1. Only a grant, or that the name is held by another, is decided so. Anything else is left to the loop: what may
   have been granted is withdrawn first, and then requested anew.
2. A thread that is interrupted leaves nothing behind: its connection is closed, and its ask withdrawn.
3. A lease that was granted so is kept alive, and lost, on the loop, like any other.
4. What is granted to a thread while the client is being closed, that thread releases.
"""

import asyncio
import secrets
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from fencehold.backends.lease.store import Busy, ThreadStore
from fencehold.backends.port import Ask, Lease
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable
from fencehold.locks.carrier import Answer
from fencehold.locks.identity import Who, name_of
from fencehold.locks.loss_reasons import CLOSED, GONE
from fencehold.locks.terms import Terms
from fencehold.locks.trust import NEVER, Grant

if TYPE_CHECKING:
    from fencehold.backends.lease.backend import LeaseBackend

UNKNOWN = Answer(None, is_known=False)
BUSY = Answer(None, is_known=True)
_WITHDRAWAL_S = 2.0


class ThreadPath:
    """Calls one store from any thread."""

    def __init__(self, backend: "LeaseBackend", thread_store: ThreadStore, ttl: float) -> None:
        self._backend = backend
        self._thread_store = thread_store
        self._ttl = ttl
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def acquire(self, terms: Terms, who: Who) -> Answer:
        """Try to acquire a name now."""
        ask = Ask(terms, secrets.token_hex(16), name_of(who))
        ttl = terms.ttl or self._ttl
        try:
            return self._acquire(ask, ttl)
        except BaseException:
            # An interrupt, wherever it came: there may be a lease without a holder.
            self._later(self._backend.drop, ask, ttl)
            raise

    def release(self, grant: Grant) -> bool:
        """Release a grant now; False if that has to be done on the loop.

        Raises:
            HoldLost: it was not there any more.
        """
        lease = cast(Lease, grant)
        now = self._backend.keeper.clock()
        if lease.ending or lease.safe_for(now) <= 0 or lease.least_s(now):
            return False
        try:
            self._detach(lease)
            was_there = self._thread_store.release(lease)
        except FenceholdError as error:
            self._on_not_given(lease, error)
            return False
        except BaseException:
            self._later(self._backend.withdraw_later, lease.ask, lease.ttl)
            raise
        if not was_there:
            lease.ending = GONE
            raise lease.why()
        if self._backend.is_awaited(lease.ask.name):
            self._later(self._backend.wake, lease.ask.name)
        return True

    def release_unclaimed(self, grant: Grant) -> None:
        """Have a grant released, by the loop."""
        lease = cast(Lease, grant)
        self._later(self._backend.drop, lease.ask, lease.ttl)

    def close(self) -> None:
        """Disconnect."""
        self._is_closed = True
        self._thread_store.close()

    def _acquire(self, ask: Ask, ttl: float) -> Answer:
        keeper = self._backend.keeper
        sent_at = keeper.clock()
        try:
            outcome = self._thread_store.take(ask, ttl)
        except Unavailable:
            return UNKNOWN
        except FenceholdError:
            self._withdraw_now(ask, ttl)
            return UNKNOWN
        if isinstance(outcome, Busy):
            return BUSY
        lease = keeper.leased(ask, outcome, ttl, sent_at)
        if lease is None:
            self._withdraw_now(ask, ttl)
            return UNKNOWN
        if not keeper.adopt(lease):
            self._later(self._backend.adopt, lease)
        if self._is_closed:
            # After it was added: either the close is seen here, or the lease is seen by the close.
            return self._too_late(lease)
        return Answer(lease, is_known=True)

    def _too_late(self, lease: Lease) -> Answer:
        lease.lose(CLOSED)
        with suppress(FenceholdError):
            self._thread_store.release(lease)
        return UNKNOWN

    def _detach(self, lease: Lease) -> None:
        timer = self._backend.keeper.detach(lease)
        if timer is not None:
            self._later(timer.cancel)

    def _on_not_given(self, lease: Lease, error: FenceholdError) -> None:
        """The loop has to release it; it is kept no longer, and not trusted if it may be free."""
        lease.is_kept = False
        if isinstance(error, OutcomeUnknown):
            lease.may_be_free, lease.trust.end = True, NEVER
        lease.ending = ""

    def _later(self, call: object, *args: object) -> None:
        with suppress(RuntimeError):
            # A loop that was closed has withdrawn everything.
            self._loop.call_soon_threadsafe(call, *args)  # type: ignore[arg-type]

    def _withdraw_now(self, ask: Ask, ttl: float) -> None:
        """Wait until it is withdrawn, if that is quick: the next ask of this thread must not wait for itself."""
        withdrawal = self._backend.withdraw(ask)
        try:
            done: Future[None] = asyncio.run_coroutine_threadsafe(withdrawal, self._loop)
        except RuntimeError:
            # The loop is closed: it expires by itself.
            withdrawal.close()
            return
        try:
            done.result(_WITHDRAWAL_S)
        except (FenceholdError, Late, CancelledError):
            self._later(self._backend.withdraw_later, ask, ttl)
