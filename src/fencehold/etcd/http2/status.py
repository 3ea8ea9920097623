"""How calls end: in gRPC's words, and whether the request may have been seen."""

from enum import IntEnum
from typing import NamedTuple


class Code(IntEnum):
    """How a call ended, in gRPC's words."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Status(NamedTuple):
    """How a stream ended."""

    code: Code
    details: str = ""
    is_sent: bool = True
    """Whether the other side may have seen the request."""


class CallFailed(Exception):
    """A call that was not answered, or answered with an error."""

    def __init__(self, code: Code, details: str = "", *, is_sent: bool = True) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details
        self.is_sent = is_sent
        """Whether the request may have been seen; if not, certainly nothing happened."""


def failed(status: Status) -> CallFailed:
    """The error that a status is."""
    return CallFailed(status.code, status.details, is_sent=status.is_sent)
