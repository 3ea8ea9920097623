"""The port of a backend that grants locks by itself.

1. *Every call ends with what is certain.* `Unavailable`: certainly nothing happened. `OutcomeUnknown`: it may
   have. A timeout is never taken for a no.
2. *An ask is known by its token*, which no other ask has. Whatever was begun for it can be found by it and
   withdrawn, so an ask that was cancelled, or whose outcome is unknown, leaves nothing behind for longer than its
   ttl.
3. *The client's trust ends first.* The trust in a lease ends before the backend may grant its name to another: it
   is counted from when the last answered request was *sent*, less a margin for clocks that drift.
4. *A loss is notified*, once, as soon as it is known or the trust is over.
"""

from math import inf
from typing import NamedTuple, Protocol

from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import AtOnce
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust
from fencehold.locks.views import Explanation


class Settings(NamedTuple):
    """The options of a client that matter to a backend."""

    ttl: float = 30.0
    """Seconds a lease lasts that is kept alive: how long a holder that hangs keeps others waiting."""
    connect_timeout: float = 5.0
    """Seconds that reaching the backend may take."""
    who: str = ""
    """What `explain` shows of this process: JSON, as made by `identity.session_meta`."""


class Ask(NamedTuple):
    """One acquire."""

    terms: Terms
    token: str
    """Random: no other ask of any client has the same."""
    owner: str
    """The name of the calling task or thread."""

    @property
    def name(self) -> str:
        """Backends used directly grant one name at a time."""
        return self.terms.names[0]


class Lease(Grant):
    """What a backend granted. Its trust is its own, or that of its session."""

    __slots__ = ("ask", "doubted_s", "is_kept", "least_until", "may_be_free", "place", "ttl")

    def __init__(self, ask: Ask, fence: int, trust: Trust, ttl: float) -> None:
        super().__init__(ask.terms, fence, trust)
        self.ask = ask
        self.ttl = ttl
        """Seconds it lasts from each renewal."""
        self.is_kept = ask.terms.ttl is None
        """Whether it is kept alive for as long as its client lives."""
        self.least_until = 0.0
        """Until when the name is granted to no other ask, however this ends: by the client's clock, from the reply
        that granted it, so not too early."""
        self.doubted_s = inf
        """The shortest ttl of a renewal that was sent and whose outcome is unknown: it may still take effect."""
        self.may_be_free = False
        """Whether a release was sent whose outcome is unknown."""
        self.place: object = None
        """Where the backend keeps it: a path, a key, a slot."""

    def least_s(self, now: float) -> float:
        """For how many more seconds the name is granted to no other ask; 0 if it may be free."""
        return max(0.0, self.least_until - now)


class Backend(Protocol):
    """Belongs to the event loop it was opened on."""

    @property
    def guarantees(self) -> Guarantees: ...

    @property
    def at_once(self) -> AtOnce | None:
        """For threads that send requests themselves, once it is open; None if they cannot."""

    async def open(self) -> None:
        """Reach it.

        Raises:
            Unavailable: it cannot be reached now. It may be opened again.
            PermissionDenied: it rejects us: a password is wrong, or a permission is missing. Waiting does not
                help, and no caller proceeds without a lock because of it.
            UsageError, Unsupported: it cannot be used; the message says why.
        """

    async def acquire(self, ask: Ask) -> Lease | None:
        """Grant a name: within `ask.terms.timeout` seconds (None: without limit), or return None.

        Cancelled at any moment, it leaves nothing behind: what the ask may have is withdrawn, at once or as soon
        as the backend can be reached.

        Raises:
            Unavailable, PermissionDenied: nothing is held.
            OutcomeUnknown: nothing is held for longer than the ttl.
            UsageError: a semaphore is in use with another limit.
        """

    async def release(self, lease: Lease) -> None:
        """Release a lease; after it, or after its least time, the name is free for the next one.

        Raises:
            HoldLost: it was no longer there: it had expired, or was force-released.
            OutcomeUnknown: the backend was not reached; the name is free after the ttl at the latest.
        """

    async def extend(self, lease: Lease, ttl: float | None) -> None:
        """Let a lease end that many seconds from now; None: have it kept alive again.

        Raises:
            HoldLost: it was no longer there.
            OutcomeUnknown: it may have been extended. The trust is the shorter of both.
        """

    async def look(self, name: str) -> Explanation:
        """Who holds a name, and who waits, as far as the backend knows.

        Raises:
            Unavailable: it was not reached.
        """

    async def break_hold(self, name: str, fence: int) -> int:
        """Force-release a name (holders up to `fence`, if one is given); returns a fence above theirs, or 0.

        Raises:
            Unavailable, OutcomeUnknown: as for `acquire`.
            Unsupported: holders cannot be removed here.
        """

    async def close(self) -> None:
        """Release all there is, and leave no task, thread or socket. It raises nothing."""
