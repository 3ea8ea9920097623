"""Every error of Fencehold, in one tree. Each answers: did it happen, and may I try again?

::

    FenceholdError
    ├── UsageError (ValueError)        the call is wrong; nothing happened; trying again will not help
    ├── Unsupported                    what was asked cannot be given here; nothing happened
    ├── Refused                        the service said no; nothing happened
    │   ├── LockTimeout (TimeoutError) not acquired within the time given
    │   ├── QueueFull                  too many wait for that name
    │   ├── Deadlock                   waiting would have closed a circle of owners, which it carries
    │   ├── LimitExceeded              a limit was reached; the message names it
    │   ├── PermissionDenied           not allowed: a password is wrong, or a right is missing
    │   ├── SessionExpired             the session that asked has ended, and with it all it waited for
    │   ├── NotOwner                   the hold is another's, or was given back before
    │   └── StaleFence                 a guarded resource has seen a greater fence: stop the work
    ├── Unavailable                    certainly nothing happened; trying again later may help
    │   ├── NotLeader                  another node leads, or none does yet; it says which, where that is known
    │   ├── Overloaded                 the service has too much to do, or no room; it says when to come back
    │   ├── AlreadyOwned               another process owns this journal
    │   └── NotAdmitted                of a node alone: its journal's engine refuses credentials or rights
    ├── OutcomeUnknown                 it may have happened: never take it for a no
    ├── HoldLost                       the hold is no longer yours: stop the work it protected
    ├── JournalError                   what else a journal says of an append, a read or an opening
    │   ├── Sealed                     a newer epoch exists: stop serving
    │   ├── OutOfPlace                 the next position is another one; nothing happened: read before going on
    │   ├── Trimmed                    the entries asked for were trimmed: start from the snapshot
    │   └── Damaged                    what was stored is not what is there: an operator must decide
    ├── SnapshotUnreadable             bytes that are not a whole snapshot of a version known here
    └── InvariantViolated              our own bug; the process must end: a wrong grant is worse than no service

`Unavailable` and `OutcomeUnknown` mean the same whoever says it: a journal of an append, a client of a call.
"""

from collections.abc import Sequence

from fencehold.types import Link


class FenceholdError(Exception):
    """The root of the tree: catches everything Fencehold raises on purpose."""


class UsageError(FenceholdError, ValueError):
    """The call is wrong as it stands. Nothing happened."""


class Unsupported(FenceholdError):
    """What was asked cannot be given here, by nature and not by chance. Nothing happened."""


class Refused(FenceholdError):
    """The service said no. Nothing happened; the subclass says whether trying again may help."""


class LockTimeout(Refused, TimeoutError):
    """The names were not acquired within the time given. Nothing is held, nothing waits any more."""

    def __init__(self, message: str, *, names: Sequence[str] = (), explanation: object = None) -> None:
        super().__init__(message)
        self.names = tuple(names)
        self.explanation = explanation
        """Who holds the first of them and who waits, as `client.explain` says it; None if that was not known."""


class QueueFull(Refused):
    """Too many wait for that name already. Trying again later may help."""


class Deadlock(Refused):
    """Waiting would have closed a circle: each link waits for the next. Release something, then try again."""

    def __init__(self, message: str, *, circle: Sequence[Link] = ()) -> None:
        super().__init__(message)
        self.circle = tuple(circle)


class LimitExceeded(Refused):
    """A limit was reached; the message names it."""


class PermissionDenied(Refused):
    """Not allowed to this client: its password is wrong, or it lacks a right. Trying again will not help."""


class SessionExpired(Refused):
    """The session that asked has ended, and all it held and waited for with it. Ask again: a new one is opened."""


class NotOwner(Refused):
    """The hold named is another's, or was given back before. Nothing changed."""


class StaleFence(Refused):
    """A guarded resource has seen a greater fence for the name: another has held it since. Nothing was written.

    Stop the work; whatever was read under this fence may be out of date.
    """

    def __init__(self, message: str = "", *, name: str = "", fence: int = 0, mark: int = 0) -> None:
        super().__init__(message or f"{name!r}: fence {fence} is stale, the resource has seen {mark}")
        self.name = name
        self.fence = fence
        """The one that was offered."""
        self.mark = mark
        """The greatest one that the resource has seen; 0 where it does not tell."""


class Unavailable(FenceholdError):
    """Certainly nothing happened. Trying again later may help."""


class NotLeader(Unavailable):
    """This node does not lead. Certainly nothing happened; ask the one that does."""

    def __init__(self, message: str, *, leader: str = "") -> None:
        super().__init__(message)
        self.leader = leader
        """The address of the node that leads, as far as it is known here."""


class Overloaded(Unavailable):
    """The service has too much to do, or its engine too little room. Nothing happened: come back later."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        """How long to wait before trying again, as the service sees it."""


class AlreadyOwned(Unavailable):
    """Another process owns this journal; the message names it where that is known."""


class NotAdmitted(Unavailable):
    """A journal's engine answers, and refuses its node. Other credentials or rights help, waiting does not.

    No client meets it: to one, a backend that does not let it in is `PermissionDenied`. It is `Unavailable` as a
    node that served before goes on trying: what it was refused may be granted again.
    """


class OutcomeUnknown(FenceholdError):
    """It may have happened, or may yet happen. Read before going on; never take it for a no."""


class HoldLost(FenceholdError):
    """The hold is no longer yours, or may not be. Stop the work it protected; a guard refuses its fence."""

    def __init__(self, message: str, *, names: Sequence[str] = (), fence: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.names = tuple(names)
        self.fence = fence
        self.reason = reason


class JournalError(FenceholdError):
    """What a journal could not do. The subclass says what that means about the world."""


class Sealed(JournalError):
    """A newer epoch exists. Whoever led under the older one must stop serving at once."""

    def __init__(self, message: str, *, newest: int = 0) -> None:
        super().__init__(message)
        self.newest = newest
        """The newest epoch there is, where that is known; else 0."""


class OutOfPlace(JournalError):
    """The journal's next position is not the one named. Nothing happened; read before going on."""


class Trimmed(JournalError):
    """The entries asked for are gone: a snapshot has taken their place. Open again and start from it."""


class Damaged(JournalError):
    """What was stored is not what is there, and going on would lose acknowledged entries silently."""


class SnapshotUnreadable(FenceholdError):
    """The bytes are not a whole snapshot, or of a format version this program does not know."""


class InvariantViolated(FenceholdError):
    """Fencehold itself is wrong. Nothing catches this: the process ends before it grants wrongly."""
