"""The recorder: makes spans of what happened, and writes them in batches.

1. Most holds are short, and begin and end within one batch: they cost one row. Others are ended where they are.
2. Entries that were recorded before are passed over, by their position: after a restart the journal tells them
   again.
3. What was missed is a gap: between which positions, and between which times. Spans that were open before it, and
   are not after it, ended in it; how is not known.
4. A journal that ends before what was recorded is another one, restored from a copy: it is recorded from its
   beginning, behind a gap.
"""

import json
import time
from typing import Final, TypeAlias

from fencehold.core.anchors import granted_unix_ms, queued_unix_ms, unix_ms_now
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Applied
from fencehold.core.state import State
from fencehold.observe.facts import Fact, What
from fencehold.observe.history.lasting_spans import EndOfHold
from fencehold.observe.history.span import HOLD, WAIT, Gap, Span
from fencehold.observe.history.store import Store

ROWS_PER_BATCH = 20_000
BATCH_S = 1.0
_SEPARATOR = "\x1f"
_new: Final = tuple.__new__
# For every command: to look up a member of an enumeration takes ten times as long as a name of the module.
_GRANTED: Final = What.GRANTED
_RELEASED: Final = What.RELEASED
_Begun: TypeAlias = tuple[str, int, str, int, str, str, int, int, int | None]
"""Of a hold: name, fence, mode, session, who, owner, since, position, and how long it was waited for."""


def who_of(meta: str, principal: str) -> str:
    """Who a session is, in one text: the client's name, its host, its process and its principal."""
    try:
        said = json.loads(meta) if meta else {}
    except ValueError:
        said = meta
    if isinstance(said, str):
        said = {"client": said}
    if not isinstance(said, dict):
        said = {}
    pid = said.get("pid", "")
    where = said.get("host") or said.get("peer") or ""
    parts = (said.get("client", ""), where, pid if isinstance(pid, int) else "", principal)
    return _SEPARATOR.join(str(part).replace(_SEPARATOR, " ")[:256] for part in parts)


def read_who(who: str) -> tuple[str, str, int | None, str]:
    """Client, host, process and principal."""
    client, host, pid, principal = (who.split(_SEPARATOR) + [""] * 4)[:4]
    return client, host, int(pid) if pid.isdecimal() else None, principal


class Recorder:
    """Fills a store with the past of one shard."""

    def __init__(self, store: Store, shard: int = 0) -> None:
        self.store = store
        self.shard = shard
        self.position = store.position(shard)
        self._has_past = self.position > 0
        """Whether anything of this shard was recorded before."""
        self._holds: dict[tuple[str, int], _Begun] = {}
        """Those that are not written yet, and have not ended."""
        self._waits: dict[int, list[Span]] = {}
        self._done: list[Span] = []
        """Those that have ended, and are not written yet."""
        self._since: float | None = None
        """Since when something waits to be written."""
        self._ended: list[EndOfHold] = []
        """Ends of holds that are written."""
        self._ended_waits: list[tuple[int, int, str]] = []
        self._late: list[tuple[str, int, int]] = []
        self._opened: dict[int, str] = {}
        self._closed: list[int] = []
        self._gaps: list[Gap] = []
        self._now = 0
        """The time of day of the last entry."""
        self._first = 0
        """Of the first one that was told here."""
        self._sessions = store.sessions(shard)

    # What is told.

    def on_began(self, end: int, snapshot_at: int, snapshot: bytes) -> None:
        """The journal was opened; its entries begin after a snapshot."""
        if end < self.position:
            self.flush()
            self.position = 0
        if snapshot and snapshot_at > self.position:
            self._restore(Machine.restore(snapshot).state)

    def on_gap(self, last: int) -> None:
        """What came up to this position was not told."""
        if last <= self.position:
            return
        if self._has_past:
            since = self._now or self._last_known()
            self._gaps.append(Gap(self.position + 1, last, since, self._clock(), self.shard))
        self.position = last
        self._touch()

    def on_entry(self, applied: Applied, facts: list[Fact]) -> None:
        """An entry became durable."""
        if applied.position <= self.position:
            return
        self.position = applied.position
        self._has_past = True
        self._now = now = applied.unix_ms or 0
        self._first = self._first or now
        for fact in facts:
            what = fact.what
            if what is _GRANTED:
                self._begin_holds(fact, now, fact.mode, 0)
            elif what is _RELEASED:
                for name in fact.names:
                    self._end_hold(name, fact.fence, now, "released")
            elif what in _RARE:
                _RARE[what](self, fact, now)
        self._touch()

    def on_nothing(self, position: int) -> None:
        """Nothing more happened up to this position."""
        if position > self.position:
            self.position = position
            self._touch()

    # Each kind that is rarer.

    def _on_hold_ended(self, fact: Fact, now: int) -> None:
        self._end_hold(fact.names[0], fact.fence, now, fact.detail, fact.more or None)

    def _on_session_ended(self, fact: Fact, now: int) -> None:
        holds, tickets, _ = fact.more
        for name, fence in holds:
            self._end_hold(name, fence, now, fact.detail)
        for ticket in tickets:
            self._close_wait(ticket, now, "cancelled")
        self._closed.append(fact.session)

    def _on_opened(self, fact: Fact, _: int) -> None:
        self._opened[fact.session] = who_of(fact.detail, fact.more)

    def _on_release_refused(self, fact: Fact, now: int) -> None:
        for name in fact.more or ():
            self._end_hold(name, fact.fence, now, "released")
        if fact.detail == "expired":
            self._late.extend((name, fact.fence, now) for name in fact.names)

    def _on_deadlock(self, fact: Fact, now: int) -> None:
        self._done.extend(
            self._span(WAIT, name, fact, now)._replace(until=now, ended="deadlock") for name in fact.names
        )

    def _on_queued(self, fact: Fact, now: int) -> None:
        self._waits[fact.ticket] = [self._span(WAIT, name, fact, now) for name in fact.names]

    def _on_wait_ended(self, fact: Fact, now: int) -> None:
        spans = self._close_wait(fact.ticket, now, fact.detail)
        if fact.fence:
            mode = spans[0].mode if spans else ""
            waited = now - spans[0].since if spans else None
            self._begin_holds(fact, now, mode, waited)

    # What they have in common.

    def _span(self, what: int, name: str, fact: Fact, now: int) -> Span:
        who = self._who(fact.session)
        return Span(
            what,
            name,
            0,
            fact.mode,
            fact.session,
            who,
            fact.owner,
            now,
            self.position,
            ticket=fact.ticket,
            shard=self.shard,
        )

    def _begin_holds(self, fact: Fact, now: int, mode: str, waited: int | None) -> None:
        session, fence, who = fact.session, fact.fence, self._who(fact.session)
        for name in fact.names:
            self._holds[name, fence] = name, fence, mode, session, who, fact.owner, now, self.position, waited

    def _end_hold(self, name: str, fence: int, now: int, ended: str, by: str | None = None) -> None:
        begun = self._holds.pop((name, fence), None)
        if begun is None:
            self._ended.append(EndOfHold(name, fence, now, ended, by))
        else:
            self._done.append(_span_of(begun, self.shard, now, ended, by))

    def _close_wait(self, ticket: int, now: int, ended: str) -> list[Span]:
        spans = self._waits.pop(ticket, None)
        if spans is None:
            # Its mode is needed at once, for the hold that may come of it.
            return self._written_wait(ticket, now, ended)
        self._done.extend(span._replace(until=max(now, span.since), ended=ended) for span in spans)
        return spans

    def _written_wait(self, ticket: int, now: int, ended: str) -> list[Span]:
        self._ended_waits.append((ticket, now, ended))
        return self.store.waits_of(ticket, self.shard)

    def _who(self, session: int) -> str:
        return self._opened.get(session) or self._sessions.get(session, "")

    # What is written.

    def _touch(self) -> None:
        if self._since is None:
            self._since = time.monotonic()
        if len(self._done) + len(self._holds) + len(self._ended) >= ROWS_PER_BATCH:
            self.flush()

    @property
    def is_waiting(self) -> bool:
        """Whether anything waits to be written."""
        return self._since is not None

    @property
    def is_due(self) -> bool:
        """Whether what waits has waited long enough."""
        return self._since is not None and time.monotonic() - self._since >= BATCH_S

    def flush(self) -> None:
        """Write what waits, all of it or nothing.

        Raises:
            sqlite3.Error: it could not be written, and waits still.
        """
        if self._since is None:
            return
        store = self.store
        store.begin()
        try:
            self._write()
            store.commit(self.position, self.shard)
        except BaseException:
            store.rollback()
            raise
        self._clear()

    def miss(self) -> None:
        """Give up what waits: it could not be written, and more is to come."""
        first, since = self.store.position(self.shard) + 1, self.store.known_since
        self._clear()
        self._gaps.append(Gap(first, self.position, since, self._clock(), self.shard))
        self._touch()

    def _clear(self) -> None:
        for kept in (self._done, self._ended, self._ended_waits, self._late, self._closed, self._gaps):
            kept.clear()
        for known in (self._holds, self._waits, self._opened):
            known.clear()
        self._since = None

    def _write(self) -> None:
        store = self.store
        for gap in self._gaps:
            store.add_gap(gap)
        for session, who in self._opened.items():
            store.know(session, who, self.shard)
        if self._first and not store.known_since:
            store.set_fact("known_since", self._first)
        spans = [*self._done, *store.end_holds(self._ended)]
        spans += [_span_of(begun, self.shard) for begun in self._holds.values()]
        for ticket, until, ended in self._ended_waits:
            spans += store.end(store.waits_of(ticket, self.shard), until, ended)
        for waits in self._waits.values():
            spans += waits
        store.add(spans)
        for late in self._late:
            store.note_late(*late)
        for session in self._closed:
            store.forget(session, self.shard)

    # What was missed.

    def _restore(self, state: State) -> None:
        """Begin anew with the state of a snapshot: what is held, awaited and alive in it."""
        self.flush()
        now = unix_ms_now(state) or 0
        known = {_key(span): span for span in self.store.lasting(self.shard)}
        self.on_gap(state.position)
        self._now = now
        self._first = self._first or now
        store = self.store
        store.begin()
        try:
            store.forget_all(self.shard)
            for session in state.sessions.values():
                store.know(session.id, who_of(session.meta, session.principal), self.shard)
            spans = [span for span in _spans_in(state, store, self.shard) if known.pop(_key(span), None) is None]
            store.add([*spans, *store.end(known.values(), now, "unknown")])
            store.commit(store.position(self.shard), self.shard)
        except BaseException:
            store.rollback()
            raise
        self.flush()

    def _last_known(self) -> int:
        return self.store.known_since

    def _clock(self) -> int:
        return int(time.time() * 1000)


def _span_of(
    begun: _Begun, shard: int, until: int | None = None, ended: str | None = None, by: str | None = None
) -> Span:
    name, fence, mode, session, who, owner, since, position, waited = begun
    if until is not None and until < since:
        until = since
    terms = (
        HOLD,
        name,
        fence,
        mode,
        session,
        who,
        owner,
        since,
        position,
        until,
        waited,
        ended,
        by,
        None,
        0,
        shard,
    )
    # By what `Span` would call: this is done for every hold.
    return _new(Span, terms)


def _key(span: Span) -> tuple[int, str, int, int]:
    """What tells a span of a shard from others that have not ended."""
    return span.what, span.name, span.fence, span.ticket


def _spans_in(state: State, store: Store, shard: int) -> list[Span]:
    """What is held and awaited in the state of a shard."""
    found: list[Span] = []
    for session in state.sessions.values():
        number, who = session.id, store.sessions(shard).get(session.id, "")
        for hold in session.holds():
            since = granted_unix_ms(state, hold) or 0
            terms = (hold.name, hold.fence, hold.mode.value, number, who, hold.owner, since)
            found.append(Span(HOLD, *terms, state.position, shard=shard))
        for waiter in session.waiters.values():
            since, ask = queued_unix_ms(state, waiter) or 0, waiter.ask
            for name in ask.names:
                terms = (name, 0, ask.mode.value, number, who, ask.owner, since)
                found.append(Span(WAIT, *terms, state.position, ticket=waiter.ticket, shard=shard))
    return found


_RARE = {
    What.QUEUED: Recorder._on_queued,
    What.WAIT_ENDED: Recorder._on_wait_ended,
    What.HOLD_ENDED: Recorder._on_hold_ended,
    What.SESSION_ENDED: Recorder._on_session_ended,
    What.OPENED: Recorder._on_opened,
    What.RELEASE_REFUSED: Recorder._on_release_refused,
    What.DEADLOCK: Recorder._on_deadlock,
}
