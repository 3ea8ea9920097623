"""Exit codes: the one table. Where sysexits.h has a code for it, that is used."""

from enum import IntEnum

from fencehold.errors import (
    Damaged,
    FenceholdError,
    HoldLost,
    InvariantViolated,
    NotAdmitted,
    OutcomeUnknown,
    PermissionDenied,
    Refused,
    SnapshotUnreadable,
    Unavailable,
    Unsupported,
    UsageError,
)


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    NO = 1
    USAGE = 2
    DAMAGED = 65
    UNAVAILABLE = 69
    INTERNAL = 70
    LOST = 75
    UNKNOWN = 76
    DENIED = 77
    CANNOT_EXECUTE = 126
    NOT_FOUND = 127
    SIGNAL = 128


MEANINGS = {
    Exit.OK: "done",
    Exit.NO: "no: busy, not acquired in time, not held, a check failed; of `serve`: the node had to stop",
    Exit.USAGE: "the command line, or the configuration, is wrong; nothing happened",
    Exit.DAMAGED: "the data directory, or the backup, is damaged; an operator must decide",
    Exit.UNAVAILABLE: "no server was reached, or it cannot serve; of `serve`: address or data directory is in use",
    Exit.INTERNAL: "a bug in Fencehold",
    Exit.LOST: "the hold was lost while it was needed; `run` has ended the command",
    Exit.UNKNOWN: "the answer was lost: it may have happened",
    Exit.DENIED: "not allowed; of `serve`: the engine refuses the credentials, or they lack a permission",
    Exit.CANNOT_EXECUTE: "of `run`: the command was found and could not be executed",
    Exit.NOT_FOUND: "of `run`: the command was not found",
    Exit.SIGNAL: "ended by signal n; of `run`: the command was",
}

_OF_ERRORS: tuple[tuple[type[FenceholdError], Exit], ...] = (
    (UsageError, Exit.USAGE),
    (Unsupported, Exit.USAGE),
    (PermissionDenied, Exit.DENIED),
    (HoldLost, Exit.LOST),
    (Refused, Exit.NO),
    (NotAdmitted, Exit.DENIED),
    (Unavailable, Exit.UNAVAILABLE),
    (OutcomeUnknown, Exit.UNKNOWN),
    (Damaged, Exit.DAMAGED),
    (SnapshotUnreadable, Exit.DAMAGED),
    (InvariantViolated, Exit.INTERNAL),
)


def exit_of(error: FenceholdError) -> Exit:
    """The exit code of an error: the first class in the table that matches it."""
    return next((code for kind, code in _OF_ERRORS if isinstance(error, kind)), Exit.NO)
