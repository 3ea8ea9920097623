"""A picture of the service: what one login may see of one tier, kept up to date by what it is fed.

1. It is fed, and asks nothing: pages of lists, looks at single names, events, figures. `reader` does the asking.
2. Events keep it up to date. What they do not contain (queues, several holders) is noted in `dirty`, to be looked
   up.
3. Late news do no harm: an event about a known grant, or about the end of one that is not the newest, is of a past
   that a list has already covered. Whether a list or an event that came meanwhile is newer is unknown: such names
   are looked up, too.
4. Of several shards it has all: sessions under numbers that no other shard has (`gateway.lists.wide`), names of
   each with the shard that they are of. What is known of a shard that is away stays, marked as old.
"""

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from fencehold.dashboard.clients import joined
from fencehold.dashboard.rates import Rates
from fencehold.dashboard.roll import Roll, Row
from fencehold.errors import FenceholdError
from fencehold.gateway.lists import wide
from fencehold.locks.views import Event, Explanation, Party, party

EVENTS_MAX = 5_000
LOOKS_MAX = 500
"""Awaited names of which holders and queue are kept."""
PARTIES_MAX = 50_000
DIRTY_MAX = 10_000
_VIEWS_MAX = 256
_STALE_AFTER_S = 3.0
_PAGE_AGE_S = 0.2
"""A page may be older than events that came this much before it was requested (LOCK.LIST in brief promises
half)."""


class Picture:
    """What one login may see of one tier. Times are milliseconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:  # noqa: PLR0915 - what there is to know
        self._now = now
        self.roll = Roll()
        self.loading: Roll | None = None
        """The list that is being read, if it is to replace the one that is shown."""
        self.rates = Rates()
        self.events: deque[tuple[int, Event]] = deque(maxlen=EVENTS_MAX)
        """With their index within their position."""
        self.sessions: dict[int, dict[str, Any]] = {}
        self.looks: OrderedDict[str, Explanation] = OrderedDict()
        self.facts: dict[str, str] = {}
        """The facts of INFO; of several shards, combined."""
        self.shards = 1
        self.shard_facts: dict[int, dict[str, str]] = {}
        """Of several shards: the facts of INFO of each, or the last ones."""
        self.away: dict[int, tuple[str, float]] = {}
        """Shards that are not reachable: why, and since when."""
        self.by_shard: list[dict[str, Any]] | None = None
        """Of several shards: the nodes as the leader of each reports them; None: that is for administrators."""
        self.first_of: dict[int, int] = {}
        """Of several shards: for each session the first one of its client."""
        self.nodes: dict[str, Any] | None = None
        """The reply of NODE.LIST; None: that is for administrators."""
        self.health: dict[str, Any] | None = None
        self.sinks: list[dict[str, Any]] = []
        """Those that run on the machine of the listener; shown to administrators."""
        self.principal = ""
        self.roles: list[str] = []
        self.positions: dict[int, int] = {}
        """The last position seen of each shard."""
        self.version = 0
        """Grows with every change."""
        self.is_loaded = False
        self.is_sampled = False
        """Whether lists are read instead of events."""
        self.listed_ms = 0
        """When the list was read that is shown."""
        self.gap: tuple[int, int, int] | None = None
        """The last positions of which the events were missed, and of which shard."""
        self.trouble = ""
        """Why the service is not reached, while it is not."""
        self.refused: FenceholdError | None = None
        """Why the service no longer answers this login."""
        self.heard_at = now()
        self.dirty: OrderedDict[str, None] = OrderedDict()
        """Names to be looked up."""
        self._parties: dict[int, Party] = {}
        self._waiting: dict[tuple[int, str], tuple[str, ...]] = {}
        self._touched, self._touched_before, self._touched_from = set[str](), set[str](), now()
        """Names with events while a page was in flight, or just before; and since when."""
        self._changed = asyncio.Event()
        self._views: dict[Any, tuple[int, Any]] = {}

    # Reading it.

    @property
    def position(self) -> int:
        """Its position; of several shards, the sum of their positions, which grows with each."""
        return sum(self.positions.values())

    async def changed(self, since: int, timeout_s: float) -> None:
        """Wait until it differs from a version, or until the timeout."""
        if self.version == since:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()

    def view(self, key: Any, make: Callable[[], Any]) -> Any:
        """What is made of it for one view: once for all pages that show the same."""
        known = self._views.get(key)
        if known is None or known[0] != self.version:
            if len(self._views) >= _VIEWS_MAX:
                self._views.clear()
            known = self._views[key] = (self.version, make())
        return known[1]

    def stale_s(self) -> float:
        """For how long the service was not reachable; 0: it is."""
        quiet_s = self._now() - self.heard_at
        return quiet_s if self.trouble or quiet_s > _STALE_AFTER_S else 0.0

    def events_of(self, name: str, count: int) -> list[tuple[int, Event]]:
        """The last events of a name, or of all if it is empty, newest first."""
        found: list[tuple[int, Event]] = []
        for index, seen in reversed(self.events_in_order()):
            if not name or name in seen.names or seen.kind == "gap":
                found.append((index, seen))
                if len(found) == count:
                    break
        return found

    def events_in_order(self) -> Sequence[tuple[int, Event]]:
        """All events that are kept, oldest first: of several shards, by the time of day."""
        if self.shards == 1:
            return self.events
        keyed, last_ms = list[tuple[int, int]](), 0
        for at, (_, seen) in enumerate(self.events):
            # A gap has no time: it stays after what came before it.
            last_ms = seen.unix_ms or last_ms
            keyed.append((last_ms, at))
        return [self.events[at] for _, at in sorted(keyed)]

    def client_of(self, session: int) -> int:
        """The first session of the same client."""
        return self.first_of.get(session, session)

    def sessions_of(self, session: int) -> frozenset[int]:
        """All sessions of the same client."""
        first = self.client_of(session)
        return frozenset({session, *(each for each, of in self.first_of.items() if of == first)})

    def party_of(self, session: int) -> Party | None:
        return self._parties.get(session)

    def sessions_like(self, text: str) -> frozenset[int]:
        """Sessions whose client, host or principal has this text."""
        by_party = {each for each, known in self._parties.items() if text in known.client or text in known.host}
        return frozenset(by_party | {each for each, row in self.sessions.items() if text in row["principal"]})

    # Feeding it.

    def change(self) -> None:
        """Wake the pages that show it."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def heard(self) -> None:
        """The service is reachable."""
        self.heard_at = self._now()
        self.trouble = ""

    def reach(self, shard: int, position: int) -> None:
        """A shard is at this position, or was."""
        self.positions[shard] = max(self.positions.get(shard, 0), position)

    def miss(self, shard: int, why: str) -> None:
        """A shard is not reachable; if `why` is empty, it is reachable again."""
        if not why:
            self.away.pop(shard, None)
        elif shard not in self.away:
            self.away[shard] = why, self._now()
            self.change()

    def away_s(self, shard: int) -> float:
        """For how long a shard has been away."""
        return self._now() - self.away[shard][1]

    def take_sessions(self, rows: dict[int, dict[str, Any]]) -> None:
        """All sessions, from the lists."""
        self.sessions = rows
        self.first_of = joined(rows.values(), self._parties) if self.shards > 1 else {}
        self.change()

    def refuse(self, why: FenceholdError) -> None:
        """The service no longer answers this login."""
        self.refused = why
        self.roll, self.loading, self.sessions, self.looks = Roll(), None, {}, OrderedDict()
        self.events.clear()
        self.change()

    def meet(self, session: int, meta: bytes | str) -> Party:
        """The client of a session, by its description when it opened it."""
        known = self._parties.get(session)
        if known is None:
            while len(self._parties) >= PARTIES_MAX:
                del self._parties[next(iter(self._parties))]
            known = self._parties[session] = party(session, "", meta)
        return known

    def begin_list(self) -> Roll:
        """A list of all names is about to be read."""
        roll = Roll(shards=self.shards)
        if self.is_loaded:
            self.loading = roll
        else:
            # What is there so far is shown.
            self.roll = roll
        return roll

    def begin_page(self) -> None:
        """A page of a list is requested. It may be of a moment ago, and older than events that just arrived."""
        if (now := self._now()) - self._touched_from >= _PAGE_AGE_S:
            self._touched, self._touched_before, self._touched_from = set(), self._touched, now

    def take_page(self, roll: Roll, items: Sequence[Sequence[Any]], now_ms: int, shard: int = 0) -> None:
        """Names in brief, from LOCK.LIST."""
        for name, mode, holders, waiters, fence, session, owner, since_ms, left_ms in items:
            until_ms = now_ms + left_ms if left_ms >= 0 else 0
            row = Row(
                name.decode(),
                fence,
                holders,
                waiters,
                mode.decode(),
                wide(session, shard) if session else 0,
                owner.decode(),
                since_ms,
                until_ms,
                is_whole=True,
                shard=shard,
            )
            known = roll.get(row.name)
            if row.name in self._touched or row.name in self._touched_before:
                self.soil(row.name)
            elif known is None or known.fence <= fence:
                roll.put(row)
        self.change()

    def end_list(self, roll: Roll, began_ms: int, unread: Collection[int] = ()) -> None:
        """All pages of a list were read. Of shards that were not read, what is known stays."""
        if roll is not self.roll and unread:
            for row in self.roll.of_shards(unread):
                roll.put(row)
        roll.settle()
        self.roll, self.loading = roll, None
        self.is_loaded, self.listed_ms = True, began_ms
        awaited = roll.awaited_names()
        for name in set(self.looks).difference(awaited):
            del self.looks[name]
        self.soil(*awaited[:LOOKS_MAX])
        self.change()

    def take_look(self, seen: Explanation, now_ms: int, shard: int = 0) -> None:
        """The holders and waiters of a name."""
        self.dirty.pop(seen.name, None)
        if not seen.holders and not seen.queue:
            self._drop(seen.name)
            return
        row = Row(seen.name, holders=seen.holder_count, waiters=seen.waiter_count, is_whole=True, shard=shard)
        if seen.holders:
            first = seen.holders[0]
            row.fence, row.mode = max(each.fence for each in seen.holders), first.mode
            row.session, row.owner = first.party.session, first.party.owner
            row.since_ms = ms_of(first.since)
            row.until_ms = 0 if first.left is None else now_ms + round(1000 * first.left)
        for known in (*(hold.party for hold in seen.holders), *(waiting.party for waiting in seen.queue)):
            self._parties.setdefault(known.session, known._replace(owner=""))
        for waiting in seen.queue:
            self._waiting[waiting.party.session, waiting.party.owner] = waiting.names
        self._put(row)
        self.looks.pop(seen.name, None)
        if seen.queue:
            self.looks[seen.name] = seen
            while len(self.looks) > LOOKS_MAX:
                self.looks.popitem(last=False)

    def hear(self, index: int, seen: Event, now_s: float, *, is_past: bool = False) -> None:
        """Something happened; in the past: before the lists were read."""
        self.events.append((index, seen))
        self.rates.count(seen.kind, int(seen.time.timestamp() if seen.time else now_s))
        if not is_past:
            self.heard_at = self._now()
            if seen.missing is not None:
                self.gap = (seen.missing.first, seen.missing.last, seen.shard)
            else:
                self._touched.update(seen.names)
                self._apply(seen)
            self.reach(seen.shard, seen.position)
        self.change()

    def soil(self, *names: str) -> None:
        """What is known of these names may be wrong: look them up."""
        for name in names:
            if len(self.dirty) < DIRTY_MAX:
                self.dirty[name] = None

    def _apply(self, seen: Event) -> None:
        if seen.party is not None:
            self._parties.setdefault(seen.session, seen.party._replace(owner=""))
        who = seen.session, seen.owner
        match seen.kind:
            case "acquired":
                for name in seen.names:
                    self._granted(name, seen)
                self.soil(*self._waiting.pop(who, ()))
            case "released" | "expired" | "broken" | "revoked":
                for name in seen.names:
                    self._ended(name, seen.fence)
            case "queued":
                self._waiting[who] = seen.names
                self.soil(*seen.names)
            case "extended":
                self.soil(*(name for name in seen.names if name in self.looks))
                for name in seen.names:
                    if (row := self.roll.get(name)) is not None:
                        row.is_whole = False
            case "timed_out" | "cancelled" | "denied" | "turned_away" | "deadlock" | "session_ended":
                self.soil(*seen.names, *self._waiting.pop(who, ()))
            case _:
                pass

    def _granted(self, name: str, seen: Event) -> None:
        row = self.roll.get(name)
        if row is not None and row.fence >= seen.fence:
            return
        if row is not None:
            # It has several holders, or a waiter.
            self.soil(name)
        new = Row(name, seen.fence, 1 + (row.holders if row else 0), max(0, row.waiters - 1) if row else 0)
        new.shard = seen.shard
        new.mode, new.session, new.owner, new.since_ms = seen.mode, seen.session, seen.owner, ms_of(seen.time)
        self._put(new)

    def _ended(self, name: str, fence: int) -> None:
        row = self.roll.get(name)
        if row is None or (row.holders == 1 and row.fence != fence):
            return
        if row.holders == 1 and not row.waiters:
            self._drop(name)
        else:
            self.soil(name)

    def _put(self, row: Row) -> None:
        self.roll.put(row)
        if self.loading is not None:
            self.loading.put(row)

    def _drop(self, name: str) -> None:
        self.looks.pop(name, None)
        self.roll.drop(name)
        if self.loading is not None:
            self.loading.drop(name)


def ms_of(at: Any) -> int:
    """A time in milliseconds; 0: unknown."""
    return 0 if at is None else round(at.timestamp() * 1000)
