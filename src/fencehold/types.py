"""The nouns of Fencehold as types: one word for one thing.

A *name* is what is locked, a *session* is a client's life with the service, a *hold* is the possession of a name,
a *fence* is the number a hold carries, and it only grows, a *tier* says what a lock is for. An *entry* is
one journaled batch of commands, its *position* is its place in the journal (the first is 1), an *epoch* is
a leader's term.

Times are whole milliseconds. An instant ends in ``_at`` and is logical time: the sum of what the entries
of the journal say has elapsed, never a wall clock.
"""

from enum import Enum
from typing import Final, NamedTuple, NewType

Epoch = NewType("Epoch", int)
Position = NewType("Position", int)

BEGINNING = Position(0)
"""The position before the first entry."""


class Tier(Enum):
    """What a lock is for, and so what a violation of it would cost."""

    EFFICIENCY = "efficiency"
    """To avoid doing work twice. A violation wastes work. What is granted is a `Claim`, which has no fence."""
    CORRECTNESS = "correctness"
    """To protect state. A violation corrupts it. What is granted is a `Hold`, which has a fence."""


EFFICIENCY: Final = Tier.EFFICIENCY
CORRECTNESS: Final = Tier.CORRECTNESS


class Link(NamedTuple):
    """One step of a cycle: this owner waits for `name`. The next owner holds it, or waits ahead of this one."""

    session: int
    owner: str
    name: str
    fence: int
    """The fence of the next owner's hold; 0 if that owner waits ahead of this one in the queue."""
    since_ms_ago: int
    shard: int | None = None
    """Of a cycle through several shards: where this owner waits. Its session is one of that shard."""
