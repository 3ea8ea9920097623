"""The port of a sink: what a target of events promises, and what each failure means about the world.

1. `deliver` is given a batch in which the records of each shard are in the order of their places, each once, after
   what was delivered before. When it returns, all of the batch is in the target, the records of a shard in that
   order, and stays there as well as the target keeps things. Between two shards there is no order to keep.
2. A cursor is the place of the last record of a shard in the target. It is kept *in the target* where that is
   possible, so that it cannot disagree with what is there; `open` reads the cursors of all shards back, and
   delivery continues after each.
3. Failures say what happened:
   `Unavailable`: nothing of the batch is in the target; the same batch may be retried.
   `OutcomeUnknown`: some of it may be, of each shard in order from its beginning. After either, the sink is opened
   again, which returns its cursors, and delivery continues from there.
   `Rejected`: some records are permanently wrong, such as ones that are too large. They are left out, counted as
   dropped, and the rest of the batch is delivered again; a sink that is exactly once knows what it has of it.
   Any other `FenceholdError`: the target is permanently wrong as configured (no such database, no right to write).
   The sink ends with that.
4. A sink that declares itself exactly once must be idempotent: what it is given twice it must not have twice. If
   it declares at least once, a record may come again after a failure, with the same place and id.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from fencehold.errors import FenceholdError

Cursor: TypeAlias = tuple[int, int]
"""Position and index of the last record of a shard that is in the target."""
Cursors: TypeAlias = dict[int, Cursor]
"""By shard; one that is not there has nothing in the target yet."""
Place: TypeAlias = tuple[int, int, int]
"""Of a record: shard, position and index."""


class Delivery(Enum):
    """How often a record is in a target."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


class Declared(NamedTuple):
    """What a sink declares of itself."""

    name: str
    delivery: Delivery
    cursor: str
    """Where it keeps its cursor, in words."""


class Record(Struct, frozen=True):
    """One event, as it is delivered."""

    shard: int
    position: int
    index: int
    id: str
    type: str
    key: str
    """The name, by which a target may partition."""
    subject: str
    body: bytes
    """A CloudEvent in JSON."""
    attributes: tuple[tuple[str, str], ...]
    """All attributes of the CloudEvent but its data, for targets that have headers."""
    data: bytes
    """The data alone, in JSON."""
    kind: str

    @property
    def cursor(self) -> Cursor:
        return self.position, self.index

    @property
    def place(self) -> Place:
        return self.shard, self.position, self.index


class Rejected(FenceholdError):
    """Some records of a batch will never be accepted."""

    def __init__(self, message: str, places: Sequence[Place]) -> None:
        super().__init__(message)
        self.places = tuple(places)
        """Of those records."""


def cursors_of(batch: Sequence[Record]) -> Cursors:
    """The cursors of a target that has all of a batch."""
    return {record.shard: record.cursor for record in batch}


def places_text(cursors: Cursors) -> str:
    """Cursors in one text: `0:17.1,3:9.0`, shard, position and index."""
    return ",".join(f"{shard}:{position}.{index}" for shard, (position, index) in sorted(cursors.items()))


def read_places(text: str) -> Cursors:
    """Raises ValueError: it is invalid."""
    found: Cursors = {}
    for each in filter(None, text.split(",")):
        shard, _, place = each.partition(":")
        position, _, index = place.partition(".")
        found[int(shard)] = int(position), int(index)
    return found


class Sink(Protocol):
    """A target of events. One at a time writes into it."""

    @property
    def declared(self) -> Declared: ...

    async def open(self, shards: int = 1) -> Cursors:
        """Reach the target, and return its cursor of each shard; empty: nothing of this service is there.

        It may be called again after a failure.

        Raises:
            Unavailable: the target cannot be reached now.
            FenceholdError: it never can, as configured.
        """
        ...

    async def deliver(self, batch: Sequence[Record]) -> None:
        """Write a batch, in order. Raises as the rules above say."""
        ...

    async def close(self) -> None:
        """Close the target. It raises nothing."""
        ...
