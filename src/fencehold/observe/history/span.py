"""Spans: times in which a client held a name, or waited for it; and gaps, of which nothing is known."""

from bisect import bisect_left
from typing import NamedTuple

HOLD, WAIT = 0, 1
NEWEST_FIRST = "since DESC, position DESC, fence DESC, ticket DESC"
"""In SQL what `age` says, in reverse."""
CLASSES_MS = (64, 2_048, 65_536, 2_097_152, 67_108_864)
"""Spans that have ended are filed by how long they lasted. Those of one class that cover an instant began no
longer before it than the class lasts, so they are found without a look at all that ever happened to the name."""
LONGER = len(CLASSES_MS)
"""The class of those that lasted longer than all that."""


class Span(NamedTuple):
    """A hold, or a wait, as it is kept. Times are Unix milliseconds."""

    what: int
    name: str
    fence: int
    mode: str
    session: int
    who: str
    """What its client said of itself, and its principal, as the recorder wrote it."""
    owner: str
    since: int
    position: int
    """Where in the journal it began."""
    until: int | None = None
    """None: it has not ended, as far as is known."""
    waited: int | None = None
    """How long a hold was waited for, in milliseconds; None: not known."""
    ended: str | None = None
    by: str | None = None
    late: int | None = None
    """When its holder wanted to release it, though it had ended."""
    ticket: int = 0
    shard: int = 0
    """Where it was granted, or waited for: sessions, tickets and positions are that shard's."""


NAME, SINCE, UNTIL = (Span._fields.index(field) for field in ("name", "since", "until"))


class Gap(NamedTuple):
    """Positions of a shard of which nothing is known here, and between which times they were."""

    first: int
    last: int
    since: int
    until: int
    shard: int = 0


def class_of(lasted_ms: int) -> int:
    """How long a span lasted, roughly: the place in `CLASSES_MS`, or `LONGER`."""
    return bisect_left(CLASSES_MS, lasted_ms)


def age(span: Span) -> tuple[int, int, int, int]:
    """What spans are sorted by; in answers in reverse, the newest first."""
    return span.since, span.position, span.fence, span.ticket
