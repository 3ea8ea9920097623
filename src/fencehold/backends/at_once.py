"""Asking a store at once, by the thread that asks: for blocking clients, whose thread would only wait meanwhile.

To hand every acquire to the thread of the event loop costs two changes of threads, more than a quick store takes
to answer. So a thread tries first by itself, on a connection of its own, and hands over only what has to wait:

1. Only a grant, or that the name is another's, is known so. Whatever else happens is for the loop to find out:
   what may have been granted is withdrawn first, and then it is asked for anew.
2. A thread that is interrupted leaves nothing behind: its connection is given up, and what it asked for withdrawn.
3. A lease that was had so is kept alive, and lost, on the loop, as every other is.
"""

import asyncio
import secrets
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast

from fencehold.backends.port import Ask, Lease
from fencehold.backends.store import Busy, Taken
from fencehold.client.aio.carrier import Answer, Who, name_of
from fencehold.client.terms import Terms
from fencehold.client.trust import Grant
from fencehold.errors import FenceholdError, Unavailable

if TYPE_CHECKING:
    from fencehold.backends.leasing import Leasing

UNKNOWN = Answer(None, is_known=False)
BUSY = Answer(None, is_known=True)
_WITHDRAWAL_S = 2.0


class Asker(Protocol):
    """A store, as far as it can be asked by any thread, each on a connection of its own. Every call is bounded."""

    def take(self, ask: Ask, ttl: float) -> Taken | Busy:
        """As `Store.take` does for an ask that does not wait.

        Raises:
            Unavailable: nothing changed.
            OutcomeUnknown: it may have been granted.
            Refused, UsageError: as the store says.
        """

    def give(self, lease: Lease) -> bool:
        """As `Store.give` does."""

    def close(self) -> None:
        """Disconnect all threads."""


class AtOnce:
    """The short way to one store."""

    def __init__(self, leasing: "Leasing", asker: Asker, ttl: float) -> None:
        self._leasing = leasing
        self._asker = asker
        self._ttl = ttl
        self._loop = asyncio.get_running_loop()

    def acquire(self, terms: Terms, who: Who) -> Answer:
        """Try to have a name now."""
        ask = Ask(terms, secrets.token_hex(16), name_of(who))
        ttl = terms.ttl or self._ttl
        clock = self._leasing.keeping.clock
        sent_at = clock()
        try:
            outcome = self._asker.take(ask, ttl)
        except Unavailable:
            return UNKNOWN
        except FenceholdError:
            self._withdraw_now(ask, ttl)
            return UNKNOWN
        except BaseException:
            self._later(self._leasing.withdraw, ask, ttl)
            raise
        if isinstance(outcome, Busy):
            return BUSY
        lease = self._leasing.keeping.leased(ask, outcome, ttl, sent_at)
        if lease is None:
            self._withdraw_now(ask, ttl)
            return UNKNOWN
        if not self._leasing.keeping.adopt(lease):
            self._later(self._leasing.take_over, lease)
        return Answer(lease, is_known=True)

    def release(self, grant: Grant) -> bool:
        """Give a grant back now; False if that has to be done on the loop.

        Raises:
            HoldLost: it was not there any more.
        """
        lease = cast(Lease, grant)
        if lease.ending or lease.safe_for(self._leasing.keeping.clock()) <= 0:
            return False
        self._leasing.keeping.let_go(lease)
        try:
            was_there = self._asker.give(lease)
        except FenceholdError:
            # Not done, or not known to be: the same again, on the loop, does no harm.
            lease.ending = ""
            return False
        except BaseException:
            self._later(self._leasing.withdraw, lease.ask, lease.ttl)
            raise
        if not was_there:
            lease.ending = "it was gone when it was released: it had expired, or was taken away"
            raise lease.why()
        if self._leasing.is_awaited(lease.ask.name):
            self._later(self._leasing.wake, lease.ask.name)
        return True

    def close(self) -> None:
        """Disconnect."""
        self._asker.close()

    def _later(self, call: object, *args: object) -> None:
        with suppress(RuntimeError):
            # A loop that was closed has withdrawn everything.
            self._loop.call_soon_threadsafe(call, *args)  # type: ignore[arg-type]

    def _withdraw_now(self, ask: Ask, ttl: float) -> None:
        """Wait until it is withdrawn, if that is quick: whoever asks anew must not find itself in the way."""
        done: Future[None] = asyncio.run_coroutine_threadsafe(self._leasing.leave(ask), self._loop)
        try:
            done.result(_WITHDRAWAL_S)
        except (FenceholdError, Late):
            self._later(self._leasing.withdraw, ask, ttl)
