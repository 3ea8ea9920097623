"""Records: what the tables of the state contain. The rules for changing them are in `state`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct

from fencehold.core.commands import AnyAcquire, Mode
from fencehold.core.holds import new_table
from fencehold.core.outcomes import Answer
from fencehold.placement.cells import CellMap, lengths_of

_FENCE_AND_NAME = attrgetter("fence", "name")


NOT_DUE = -1
"""`due_at` of a session whose deadline is not entered anywhere."""


class Hold(Struct, frozen=True, gc=False, array_like=True):
    """One name held by one owner. Half a million of these are the machine's memory: keep it lean."""

    name: str
    session: int
    owner: str
    fence: int
    since_at: int
    until_at: int = 0
    """0: as long as the session."""
    mode: Mode = Mode.EXCLUSIVE
    limit: int = 0
    lock_delay_ms: int = 0
    meta: str = ""


class Kept(Struct, frozen=True, gc=False, array_like=True):
    """A name that is granted to no other session before an instant, whatever became of its hold: for whom, why.

    A tombstone: it remembers the holder, whose session may have ended long before.
    """

    name: str
    fence: int
    session: int
    owner: str
    since_at: int
    until_at: int
    meta: str = ""
    session_meta: str = ""


class Crowd(Struct, frozen=True, gc=False):
    """The holds of a name that several may have: shared ones, or the permits of a semaphore."""

    mode: Mode
    limit: int
    holds: dict[int, Hold]
    """By fence, in ascending order: the oldest, the newest and a page from anywhere are found without sorting."""

    def has_room(self) -> bool:
        return self.mode is Mode.SHARED or len(self.holds) < self.limit


class Waiter(Struct, frozen=True, gc=False, array_like=True):
    """A request that stands in the queue of each of its names, with one ticket."""

    ticket: int
    ask: AnyAcquire
    since_at: int
    until_at: int
    """When the wait is over; 0 if never."""

    @property
    def key(self) -> int:
        """Its key among the waiters of its session: the request id, or, lacking one, less than any id."""
        return self.ask.request or -self.ticket


class Anchor(Struct, frozen=True, gc=False, array_like=True):
    """Ties logical time to the time of day: for what came after it, until the next one (see `anchors`)."""

    offset_ms: int
    """The time of day, in Unix milliseconds, is logical time plus this."""
    session: int
    """The newest session before it; `ticket` and `fence` likewise. What came after it has a greater number."""
    ticket: int
    fence: int


class Home(Struct, frozen=True, gc=False, array_like=True):
    """Which shard a machine is, of how many, and the slots that it serves (see `shards`)."""

    shard: int
    shards: int
    first: int
    last: int


class Stage(Enum):
    """Where a slot stands that has moved, or is about to (see `slot_moves`)."""

    CLOSING = "closing"
    """It takes no new requests, and something of it is held, awaited or kept."""
    CLOSED = "closed"
    """Nothing of it is left here."""
    ARRIVING = "arriving"
    """It is to be open here: requests may wait for it, and nothing is granted."""
    OPEN = "open"


class SlotMove(Struct, frozen=True, gc=False, array_like=True):
    """What became of a slot that does not stand as the service was made with."""

    slot: int
    version: int
    """Of the map by which it last moved here or away."""
    stage: Stage
    to: int
    """Where it goes, or went; this shard itself, if it arrives or is open here."""
    fence: int
    """Closed: the greatest fence that any of its names may have had here. Open: what all are above."""


class HomeRecord(Struct, frozen=True, gc=False, array_like=True):
    """What became of a prefix here, in one of several cells."""

    prefix: str
    version: int
    """By which it was last opened or closed here."""
    stage: Stage
    to: str
    """Where it goes, or is; this cell itself, if it is open here."""
    fence: int
    """Closed: the greatest fence that any of its names may have had here. Open: what all are above."""


class CellState:
    """What one of several cells knows of all, and which prefixes are its own (see `cells`)."""

    __slots__ = ("_lengths", "cell", "draining", "lapsed", "map", "records")

    def __init__(
        self, cell: str, placed: CellMap, records: dict[str, HomeRecord], lapsed: Iterable[str] = ()
    ) -> None:
        self.cell = cell
        self.map = placed
        self.lapsed = set(lapsed)
        """Prefixes that are open here and grant nothing until another cell confirms it."""
        self.draining: dict[str, set[str]] = {}
        """Names that closing prefixes had when last looked at: they only get fewer. Worked out, not saved."""
        self.set_records(records)

    def set_records(self, records: dict[str, HomeRecord]) -> None:
        """Let the prefixes be these."""
        self.records = records
        self._lengths = lengths_of(records)

    def prefix_of(self, name: str) -> str:
        """The longest prefix that a name begins with."""
        records = self.records
        return next(name[:size] for size in self._lengths if name[:size] in records)

    def record_of(self, name: str) -> HomeRecord:
        """The record that decides about a name."""
        return self.records[self.prefix_of(name)]

    def record_around(self, prefix: str, placed: CellMap) -> HomeRecord:
        """The record that would decide about names of a prefix if there were only those of a map."""
        kept = [each for each in self.records if each in placed.by_prefix and prefix.startswith(each)]
        return self.records[max(kept, key=len)]

    def is_open(self, prefix: str) -> bool:
        """Whether a prefix is open here, granting or lapsed."""
        record = self.records.get(prefix)
        return record is not None and record.stage is Stage.OPEN

    def open_leased(self) -> set[str]:
        """What is open here and may grant only while another cell confirms it."""
        return {prefix for prefix in self.records if self.is_open(prefix) and self.map.is_leased(prefix)}

    def granting_leased(self) -> dict[str, int]:
        """What grants here only as long as it is confirmed, with its versions."""
        return {prefix: self.records[prefix].version for prefix in sorted(self.open_leased() - self.lapsed)}


class Session(Struct, gc=False):
    """A client's life with the service, and all that hangs on it."""

    id: int
    ttl_ms: int
    grace_ms: int
    secret: str
    meta: str
    opened_at: int
    opened_fence: int
    """The fence counter when it opened: no hold of this session carries a fence up to it."""
    latest: int = 0
    """The greatest request id seen."""
    answered: int = 0
    """Direct answers up to this request id have arrived."""
    names_awaited: int = 0
    fresh: dict[str, Hold] = {}
    """The newest of its exclusive holds by name, at most `FRESH_MAX`. Most holds end here (see `holds`)."""
    settled: dict[str, Hold] = {}
    """The other exclusive holds by name."""
    shares: dict[tuple[int, str], Hold] = {}
    """Holds in a crowd, by fence and name: one session may have several on a name."""
    waiters: dict[int, Waiter] = {}
    """By `Waiter.key`."""
    answers: dict[int, Answer] = {}
    """Direct answers by request id, until the client says they have arrived."""
    final_answers: dict[int, Answer] = {}
    """Answers of requests that had waited, until settled."""
    lapsed: dict[tuple[int, str], None] = {}
    """Fence and name of holds that were taken from it: the newest few, to tell expired from released."""
    due_at: int = NOT_DUE
    """Where its deadline is entered: not after it ends, though it may be renewed to live longer."""
    principal: str = ""
    """The principal it was opened by; empty: no login was required."""
    token: str = ""
    """With which token of the policy it was opened, if so: it ends with that."""

    def all_holds(self) -> Iterator[Hold]:
        """All its holds, in no order that another replica would come to."""
        return chain(self.settled.values(), self.fresh.values(), self.shares.values())

    def holds(self) -> list[Hold]:
        """All its holds, in the order of the fences: an order that every replica comes to."""
        return sorted(self.all_holds(), key=_FENCE_AND_NAME)

    def hold_count(self) -> int:
        return len(self.fresh) + len(self.settled) + len(self.shares)

    def size(self) -> int:
        """Names it holds or waits for."""
        return self.hold_count() + self.names_awaited

    def settle(self) -> None:
        """Move its fresh holds to the settled ones, which makes room for newer ones."""
        settled = self.settled = self.settled or new_table()
        # Not `update`: it would make an empty table one without hashes, as `fresh` is.
        for name, hold in self.fresh.items():
            settled[name] = hold
        self.fresh.clear()


OwnerKey: TypeAlias = tuple[int, str]
"""Session and owner: the nodes of the wait-for graph."""


class Queue(OrderedDict[int, Waiter]):
    """The waiters of a name by ticket, in order. Both ends are found at once, even if some leave in the middle.

    The other fields are derived from the waiters, so that no command has to go through all of them (see `queues`).
    """

    # Set where they differ, not in `__init__`: a queue of one that comes and goes is what there is most of.
    holder: OwnerKey | None = None
    """The known owner under whom the name is entered in `State.blocking`."""
    limit = 0
    """The limit under which permits are awaited, if `permits` are."""
    permits = 0
    tickets: list[int] | None = None
    """Its keys, since a place among them was first asked for."""
