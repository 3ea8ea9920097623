"""Every error of Fencehold, in one tree. Each answers: did it happen, and may I try again?

::

    FenceholdError
    ├── UsageError (ValueError)    the call is wrong; nothing happened; trying again will not help
    ├── JournalError               what a journal says of an append, a read or an opening
    │   ├── Unavailable            certainly nothing happened; trying again later may help
    │   │   └── AlreadyOwned       another process owns this journal
    │   ├── OutcomeUnknown         it may have happened: read before going on
    │   ├── Sealed                 a newer epoch exists: stop serving
    │   ├── OutOfPlace             the next position is another one; nothing happened: read before going on
    │   ├── Trimmed                the entries asked for were trimmed: start from the snapshot
    │   └── Damaged                what was stored is not what is there: an operator must decide
    ├── SnapshotUnreadable         bytes that are not a whole snapshot of a version known here
    └── InvariantViolated          our own bug; the process must end: a wrong grant is worse than no service
"""


class FenceholdError(Exception):
    """The root of the tree: catches everything Fencehold raises on purpose."""


class UsageError(FenceholdError, ValueError):
    """The call is wrong as it stands. Nothing happened."""


class JournalError(FenceholdError):
    """What a journal could not do. The subclass says what that means about the world."""


class Unavailable(JournalError):
    """Certainly nothing happened. Trying again later may help."""


class AlreadyOwned(Unavailable):
    """Another process owns this journal; the message names it where that is known."""


class OutcomeUnknown(JournalError):
    """It may have happened, or may yet happen. Read before going on; never take it for a no."""


class Sealed(JournalError):
    """A newer epoch exists. Whoever led under the older one must stop serving at once."""


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
