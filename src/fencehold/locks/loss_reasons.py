"""Why a hold is lost: a sentence for people, with a `LossKind` for programs to decide by.

A program never parses the sentence: it contains names of locks and clients, which may be anything.
"""

from enum import StrEnum
from typing import Self


class LossKind(StrEnum):
    """What ended a hold that its holder had not released."""

    EXPIRED = "expired"
    """Its own ttl ran out."""
    BROKEN = "broken"
    """An operator force-released it."""
    UNANSWERED = "unanswered"
    """No keep-alive was answered in time."""
    SESSION = "session"
    """The service ended the session it lived with."""
    CLOSED = "closed"
    """Its own client was closed."""
    OTHER = "other"
    """It was gone, for an unknown reason."""


class LossReason(str):
    """The sentence."""

    __slots__ = ("kind",)
    kind: LossKind

    def __new__(cls, words: str, kind: LossKind = LossKind.OTHER) -> Self:
        self = super().__new__(cls, words)
        self.kind = kind
        return self


CLOSED = LossReason("the client was closed", LossKind.CLOSED)
TTL_OVER = LossReason("its ttl ran out", LossKind.EXPIRED)
UNANSWERED = LossReason("no keep-alive was answered in time", LossKind.UNANSWERED)
UNRENEWED = LossReason("no renewal was answered in time", LossKind.UNANSWERED)
GONE = LossReason("it had expired, or was force-released", LossKind.EXPIRED)
"""Of a lease that a store no longer has: mostly the renewal came too late."""


def loss_kind(reason: str) -> LossKind:
    """The kind of a sentence."""
    return reason.kind if isinstance(reason, LossReason) else LossKind.OTHER
