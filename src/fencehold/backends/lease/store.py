"""The port of stores: where a lease is a record with an owner and an expiry, changed by one atomic step each.

`backend` does once what is the same for all of them: waiting, keeping alive, trust, withdrawal.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fencehold.backends.port import Ask, Lease
from fencehold.guarantees import Guarantees
from fencehold.locks.views import Explanation


class Taken(NamedTuple):
    """The name is the ask's now."""

    fence: int = 0
    """0 where there are none."""
    validity: float | None = None
    """Seconds for which it can be trusted from when it was requested, if that is less than the ttl."""


class Busy(NamedTuple):
    """The name is another's, or others wait before this ask."""

    retry_after: float | None = None
    """Seconds after which to try again at the latest, without a wake-up before; None: exponential back-off."""


class ThreadStore(Protocol):
    """A store, as far as any thread can call it, each on a connection of its own. Every call is bounded."""

    def take(self, ask: Ask, ttl: float) -> Taken | Busy:
        """As `LeaseStore.take` does for an ask that does not wait.

        Raises:
            Unavailable: nothing changed.
            OutcomeUnknown: it may have been granted.
            Refused, UsageError: as the store says.
        """

    def release(self, lease: Lease) -> bool:
        """As `LeaseStore.give` does."""

    def close(self) -> None:
        """Disconnect all threads."""


class LeaseStore(Protocol):
    """Belongs to the event loop it was opened on. Every call is bounded in time by the store itself."""

    on_wake: Callable[[str, str], None]
    """Called with a name, and a token or "", when it may be free now: for the ask with that token, or for any."""

    @property
    def guarantees(self) -> Guarantees: ...

    @property
    def thread_store(self) -> ThreadStore | None:
        """For threads that send requests themselves; None where requests must go through the loop."""

    async def open(self) -> None:
        """Raises: as `Backend.open`."""

    async def take(self, ask: Ask, ttl: float, *, waits: bool) -> Taken | Busy:
        """In one step: grant the name for `ttl` seconds, if it is free or its lease has expired; else, where the
        store keeps a queue and the ask `waits`, put it there, in the order of the first requests.

        An ask that holds the name already is granted again, with the same fence and from now on.

        Raises:
            Unavailable, PermissionDenied: nothing changed.
            OutcomeUnknown: it may have been granted, or may be in the queue.
            UsageError: a semaphore is in use with another limit.
        """

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[bool]:
        """Let leases last `ttl` seconds from now; returns for each whether it was still there.

        Never takes a name anew: a lease that has expired is gone, even if the name is still free.

        Raises:
            Unavailable: none was renewed.
            OutcomeUnknown: some may have been.
        """

    async def release(self, lease: Lease) -> bool:
        """Release a name, if the lease still holds it, and notify the next; returns whether it did.

        Raises:
            Unavailable, OutcomeUnknown: as above.
        """

    async def withdraw(self, ask: Ask) -> None:
        """Remove all that an ask has: its place in the queue, or the name. Idempotent.

        Raises:
            Unavailable, OutcomeUnknown: as above.
        """

    async def look(self, name: str) -> Explanation:
        """Raises: as `Backend.look`."""

    async def break_hold(self, name: str, fence: int) -> int:
        """Raises: as `Backend.break_hold`."""

    async def close(self) -> None:
        """Disconnect. It raises nothing."""
