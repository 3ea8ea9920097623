"""Every error of Fencehold, in one tree. Each answers: did it happen, and may I try again?

::

    FenceholdError
    ├── UsageError (ValueError)        the call is wrong; nothing happened; a retry will not help
    ├── Unsupported                    this backend cannot do it; nothing happened
    ├── Refused                        the service said no; nothing happened
    │   ├── LockTimeout (TimeoutError) not acquired within the time given
    │   ├── QueueFull                  too many wait for that name
    │   ├── Deadlock                   waiting would have completed a cycle of owners: `circle`
    │   ├── LimitExceeded              a limit was reached; the message names it
    │   ├── PermissionDenied           not allowed: a password is wrong, or a permission is missing
    │   ├── SessionExpired             the session has ended, and with it all its holds and requests
    │   ├── NotOwner                   the hold belongs to another client, or was released before
    │   └── StaleFence                 a guarded resource has seen a greater fence: stop the work
    ├── Unavailable                    certainly nothing happened; trying again later may help
    │   ├── NotLeader                  another node leads, or none does yet; `leader` says which, if known
    │   ├── Overloaded                 the service is overloaded, or has no room; it says when to retry
    │   ├── AlreadyOwned               another process owns this journal
    │   └── NotAdmitted                only in a node: its journal's engine refuses the credentials
    ├── OutcomeUnknown                 it may have happened: never treat it as a no
    │   └── LeaseLapsed                only in a node: it slept longer than other cells had confirmed its homes
    ├── HoldLost                       the hold is no longer yours: stop the work it protected
    ├── JournalError                   other failures of a journal to append, read or open
    │   ├── Sealed                     a newer epoch exists: stop serving
    │   ├── OutOfPlace                 the next position is another one; nothing happened: read before going on
    │   ├── Trimmed                    the entries asked for were trimmed: start from the snapshot
    │   └── Damaged                    stored bytes are damaged: an operator must decide
    ├── SnapshotUnreadable             bytes that are not a whole snapshot of a version known here
    └── InvariantViolated              our own bug; the process must end: a wrong grant is worse than no service

`Unavailable` and `OutcomeUnknown` mean the same everywhere: from a journal about an append, from a client about a
call.
"""

from collections.abc import Sequence
from typing import ClassVar

from fencehold.types import Link


class FenceholdError(Exception):
    """The root of the tree: catches everything Fencehold raises on purpose."""


class UsageError(FenceholdError, ValueError):
    """The call is wrong as it stands. Nothing happened."""


class Unsupported(FenceholdError):
    """This backend does not have the feature; a retry never helps. Nothing happened."""


class Refused(FenceholdError):
    """The service said no. Nothing happened; the subclass says whether trying again may help."""


class LockTimeout(Refused, TimeoutError):
    """The names were not acquired within the time given. Nothing is held, nothing waits any more."""

    def __init__(self, message: str, *, names: Sequence[str] = (), explanation: object = None) -> None:
        super().__init__(message)
        self.names = tuple(names)
        self.explanation = explanation
        """Who holds the first of them and who waits, as from `client.explain`; None if that is not known."""


class QueueFull(Refused):
    """Too many wait for that name already. Trying again later may help."""


class Deadlock(Refused):
    """Waiting would have completed a cycle: each link waits for the next. Release something, then try again."""

    def __init__(self, message: str, *, circle: Sequence[Link] = ()) -> None:
        super().__init__(message)
        self.circle = tuple(circle)


class LimitExceeded(Refused):
    """A limit was reached; the message names it."""


class PermissionDenied(Refused):
    """This client is not allowed: its password is wrong, or it lacks a permission. A retry will not help."""


class SessionExpired(Refused):
    """The session has ended, and with it all its holds and requests. Try again: the client opens a new session."""


class NotOwner(Refused):
    """The hold belongs to another client, or was released before. Nothing changed."""


class StaleFence(Refused):
    """A guarded resource has seen a greater fence for the name: another client has held it since. Nothing was
    written.

    Stop the work; anything read under this fence may be out of date.
    """

    count: ClassVar[int] = 0
    """How often this was raised in this process, for metrics."""

    def __init__(self, message: str = "", *, name: str = "", fence: int = 0, mark: int = 0) -> None:
        StaleFence.count += 1
        super().__init__(message or f"{name!r}: fence {fence} is stale, the resource has seen {mark}")
        self.name = name
        self.fence = fence
        """The one that was offered."""
        self.mark = mark
        """The greatest one that the resource has seen; 0 if it does not say."""


class Unavailable(FenceholdError):
    """Certainly nothing happened. Trying again later may help."""


class NotLeader(Unavailable):
    """This node does not lead. Certainly nothing happened; ask the one that does."""

    def __init__(self, message: str, *, leader: str = "") -> None:
        super().__init__(message)
        self.leader = leader
        """The address of the node that leads, as far as it is known here."""


class Overloaded(Unavailable):
    """The service is overloaded, or its engine has too little room. Nothing happened: retry later."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        """How long to wait before trying again, as the service sees it."""


class AlreadyOwned(Unavailable):
    """Another process owns this journal; the message names it where that is known."""


class NotAdmitted(Unavailable):
    """A journal's engine answers, and rejects the node. Other credentials help, waiting does not.

    Clients never get it: a backend that rejects a client raises `PermissionDenied`. It is an `Unavailable` because
    a node that served before keeps retrying: the permission may be granted again.
    """


class OutcomeUnknown(FenceholdError):
    """It may have happened, or may yet happen. Read before going on; never treat it as a no."""


class LeaseLapsed(OutcomeUnknown):
    """A node slept, or its journal was slow, for longer than another cell had confirmed its homes: it does not
    answer.

    Clients never get it: their connections end, and they retry.
    """


class HoldLost(FenceholdError):
    """The hold is no longer yours, or may not be. Stop the work it protected; a guard refuses its fence."""

    def __init__(self, message: str, *, names: Sequence[str] = (), fence: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.names = tuple(names)
        self.fence = fence
        self.reason = reason


class JournalError(FenceholdError):
    """A journal failed. The subclass says what that means for its content."""


class Sealed(JournalError):
    """A newer epoch exists. The leader of the older one must stop serving at once."""

    def __init__(self, message: str, *, newest: int = 0) -> None:
        super().__init__(message)
        self.newest = newest
        """The newest epoch there is, where that is known; else 0."""


class OutOfPlace(JournalError):
    """The journal's next position is not the one named. Nothing happened; read before going on."""


class Trimmed(JournalError):
    """The entries asked for are gone: a snapshot has taken their place. Open again and start from it."""


class Damaged(JournalError):
    """Stored bytes are damaged, and going on would silently lose acknowledged entries."""


class SnapshotUnreadable(FenceholdError):
    """The bytes are not a whole snapshot, or of a format version this program does not know."""


class InvariantViolated(FenceholdError):
    """Fencehold itself is wrong. Nothing catches this: the process ends before it grants wrongly."""
