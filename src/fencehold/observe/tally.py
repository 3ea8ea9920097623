"""The tally: counters and histograms made of facts. It runs beside the node, so labels cost the node nothing.

1. What is measured from a beginning to an end (waits, holds) is remembered by its ticket or fence, up to a bound;
   beyond it the oldest are forgotten, and not measured.
2. Labels are bounded: operations and outcomes are few, listeners are known, names appear by their template.
3. An operation is counted by the node that leads, and by no other: sums over nodes are what they seem to be.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from fencehold.core.outcomes import Applied
from fencehold.observe.catalogue import SECONDS, SIZES
from fencehold.observe.facts import Fact, What
from fencehold.observe.histogram import Histogram
from fencehold.observe.templates import OTHER, Templates

REMEMBERED_MAX = 200_000
_LISTENERS = frozenset({"grpc", "http"})
_QUOTA = "quota "
# For every command: to look up a member of an enumeration takes ten times as long as a name of the module.
_GRANTED: Final = What.GRANTED
_RELEASED: Final = What.RELEASED


class _Row:
    """What is counted of nearly every command, by template and listener: grants without a wait, and releases."""

    __slots__ = ("granted", "holds", "released", "template")

    def __init__(self, template: str, holds: Histogram) -> None:
        self.granted = self.released = 0
        self.template = template
        self.holds = holds


class Tally:
    """Of one machine: of a tier and a shard."""

    def __init__(self, tier: str, templates: Templates, shard: int = 0, remembered_max: int = 0) -> None:
        self.tier = tier
        self.shard = str(shard)
        self._remembered_max = remembered_max or REMEMBERED_MAX
        self._templates = templates
        self.counts: dict[tuple[str, ...], int] = {}
        """By metric and labels."""
        self.histograms: dict[tuple[str, ...], Histogram] = {}
        self._listeners: dict[int, str] = {}
        self._held: dict[tuple[str, int], tuple[int, _Row]] = {}
        """Since when, and what its acquire is counted by; by name and fence."""
        self._waiting: dict[int, tuple[int, str]] = {}
        """Since when, and the template, by ticket."""
        self._is_counting = True
        self._rows: dict[tuple[str, str], _Row] = {}
        """By template and listener: a number that is added to what `counts` has when that is asked for."""

    def settle(self) -> None:
        """Have all that was counted in `counts` and `histograms`."""
        for (template, listener), row in self._rows.items():
            counted = (("acquire", "granted", row.granted), ("release", "ok", row.released))
            for operation, outcome, count in counted:
                if count:
                    key = ("fencehold_operations_total", operation, outcome, self.tier, listener, template)
                    self.counts[key] = self.counts.get(key, 0) + count
            if row.granted:
                # They did not wait.
                waits = self._histogram(("fencehold_acquire_wait_seconds", self.tier, template))
                waits.add_many(0.0, row.granted)
            row.granted = row.released = 0

    def on_entry(self, applied: Applied, facts: list[Fact], commands: int, *, is_counted: bool = True) -> None:
        """Count what an entry did; or, where another node counts it, remember what began with it."""
        now = applied.at_ms
        self._is_counting = is_counted
        if commands:
            self._measure("fencehold_batch_commands", self.tier, self.shard, value=commands)
        for fact in facts:
            what = fact.what
            if what is _GRANTED:
                row = self._hold(fact, now)
                if is_counted:
                    row.granted += 1
            elif what is _RELEASED:
                self._released(fact, now)
            else:
                _RARE[what](self, fact, now)

    def on_append(self, seconds: float) -> None:
        self._is_counting = True
        self._measure("fencehold_append_seconds", self.tier, self.shard, value=seconds)

    def _released(self, fact: Fact, now: int) -> None:
        first, *others = fact.names
        # Who releases is who was granted it: the same template, the same listener.
        row = self._release(first, fact.fence, now)
        if self._is_counting:
            (row or self._row(first, fact.session)).released += 1
        for name in others:
            self._release(name, fact.fence, now)

    def _row(self, name: str, session: int) -> _Row:
        listener = self._listeners.get(session, "resp") if self._listeners else "resp"
        key = self._templates.of(name), listener
        row = self._rows.get(key)
        if row is None:
            holds = self._histogram(("fencehold_hold_seconds", self.tier, key[0]))
            row = self._rows[key] = _Row(key[0], holds)
        return row

    # Each kind that is rarer.

    def _queued(self, fact: Fact, now: int) -> None:
        template = self._template(fact.names)
        self._count("fencehold_acquires_queued_total", self.tier, template)
        self._remember(self._waiting, fact.ticket, (now, template))

    def _wait_ended(self, fact: Fact, now: int) -> None:
        since, template = self._waiting.pop(fact.ticket, (None, OTHER))
        if fact.names:
            template = self._template(fact.names)
        if fact.detail == "acquired":
            self._operation("acquire", "granted", fact.session, template)
            if since is not None:
                self._measure("fencehold_acquire_wait_seconds", self.tier, template, value=(now - since) / 1000)
            self._hold(fact, now)
        else:
            self._operation("acquire", fact.detail, fact.session, template)
            if fact.detail == "deadlock":
                self._count("fencehold_deadlocks_total", self.tier, template)

    def _busy(self, fact: Fact, _: int) -> None:
        self._operation("acquire", "busy", fact.session, self._template(fact.names))

    def _deadlock(self, fact: Fact, _: int) -> None:
        template = self._template(fact.names)
        self._operation("acquire", "deadlock", fact.session, template)
        self._count("fencehold_deadlocks_total", self.tier, template)

    def _refused(self, fact: Fact, _: int) -> None:
        operation, detail = fact.more
        self._operation(operation, fact.detail, fact.session, self._template(fact.names))
        code = "quota" if fact.detail == "limit" and detail.startswith(_QUOTA) else fact.detail
        self._count("fencehold_refusals_total", operation, code, self.tier)

    def _release_refused(self, fact: Fact, now: int) -> None:
        for name in fact.more or ():
            self._release(name, fact.fence, now)
        self._ended_late("release", fact)

    def _extend_refused(self, fact: Fact, _: int) -> None:
        self._ended_late("extend", fact)

    def _ended_late(self, operation: str, fact: Fact) -> None:
        template = self._template(fact.names)
        self._operation(operation, fact.detail, fact.session, template)
        if fact.detail == "expired":
            self._count("fencehold_fences_late_total", self.tier, template)

    def _extended(self, fact: Fact, _: int) -> None:
        self._operation("extend", "ok", fact.session, self._template(fact.names))

    def _hold_ended(self, fact: Fact, now: int) -> None:
        self._end(fact.names[0], fact.fence, fact.detail, now)

    def _session_ended(self, fact: Fact, now: int) -> None:
        holds, tickets, _ = fact.more
        for name, fence in holds:
            self._end(name, fence, fact.detail, now)
        for ticket in tickets:
            _, template = self._waiting.pop(ticket, (None, OTHER))
            self._operation("acquire", "cancelled", fact.session, template)
        if fact.detail == "released":
            self._operation("close", "ok", fact.session, "")
        self._count("fencehold_sessions_ended_total", fact.detail, self.tier)
        self._listeners.pop(fact.session, None)

    def _opened(self, fact: Fact, _: int) -> None:
        listener = listener_of(fact.detail)
        if listener != "resp":
            self._listeners[fact.session] = listener
        self._count("fencehold_sessions_opened_total", self.tier, listener)
        self._operation("open", "ok", fact.session, "")

    def _suspended(self, _fact: Fact, _: int) -> None:
        self._count("fencehold_sessions_suspended_total", self.tier)

    def _broken(self, fact: Fact, _: int) -> None:
        self._operation("break", "ok", fact.session, self._template(fact.names))

    def _led(self, _fact: Fact, _: int) -> None:
        # Every node sees who leads, and counts it for itself.
        key = ("fencehold_leader_changes_total", self.shard)
        self.counts[key] = self.counts.get(key, 0) + 1

    # What they have in common.

    def _hold(self, fact: Fact, now: int) -> _Row:
        """Remember it; says what its acquire is counted by."""
        held, fence, names = self._held, fact.fence, fact.names
        first = names[0]
        row = self._row(first, fact.session)
        held[first, fence] = now, row
        if len(names) > 1:
            for name in names[1:]:
                held[name, fence] = now, self._row(name, fact.session)
        while len(held) > self._remembered_max:
            del held[next(iter(held))]
        return row

    def _release(self, name: str, fence: int, now: int) -> _Row | None:
        """Measure how long it was held; says what its acquire was counted by, if that is known."""
        known = self._held.pop((name, fence), None)
        if known is None:
            return None
        since, row = known
        if self._is_counting:
            row.holds.add((now - since) / 1000)
        return row

    def _end(self, name: str, fence: int, how: str, now: int) -> None:
        row = self._release(name, fence, now)
        if how != "released":
            template = self._templates.of(name) if row is None else row.template
            self._count("fencehold_hold_losses_total", how, self.tier, template)

    def _remember(self, known: dict[Any, Any], key: Any, value: Any) -> None:
        if len(known) >= self._remembered_max:
            del known[next(iter(known))]
        known[key] = value

    def _template(self, names: tuple[str, ...]) -> str:
        return self._templates.of(names[0]) if names else ""

    def _operation(self, operation: str, outcome: str, session: int, template: str) -> None:
        self._count(
            "fencehold_operations_total",
            operation,
            outcome,
            self.tier,
            self._listeners.get(session, "resp"),
            template,
        )

    def _count(self, *key: str) -> None:
        if self._is_counting:
            self.counts[key] = self.counts.get(key, 0) + 1

    def _measure(self, *key: str, value: float) -> None:
        if not self._is_counting:
            return
        self._histogram(key).add(value)

    def _histogram(self, key: tuple[str, ...]) -> Histogram:
        histogram = self.histograms.get(key)
        if histogram is None:
            bounds = SIZES if key[0] == "fencehold_batch_commands" else SECONDS
            histogram = self.histograms[key] = Histogram(bounds)
        return histogram


def figures_of(tallies: Iterable[Tally]) -> dict[str, list[list[Any]]]:
    """What all of them counted, by metric: labels, then a number; of a histogram its counts and its sum."""
    counts: Counter[tuple[str, ...]] = Counter()
    histograms: dict[tuple[str, ...], tuple[list[int], float]] = {}
    for tally in tallies:
        tally.settle()
        counts.update(tally.counts)
        for key, histogram in tally.histograms.items():
            buckets, total = histograms.get(key, ([0] * len(histogram.counts), 0.0))
            buckets = [sum(pair) for pair in zip(buckets, histogram.counts, strict=True)]
            histograms[key] = buckets, total + histogram.total
    found: dict[str, list[list[Any]]] = {}
    for (name, *labels), count in counts.items():
        found.setdefault(name, []).append([labels, count])
    for (name, *labels), (buckets, total) in histograms.items():
        found.setdefault(name, []).append([labels, buckets, total])
    return found


_RARE: Final = {
    What.QUEUED: Tally._queued,
    What.WAIT_ENDED: Tally._wait_ended,
    What.BUSY: Tally._busy,
    What.DEADLOCK: Tally._deadlock,
    What.REFUSED: Tally._refused,
    What.RELEASE_REFUSED: Tally._release_refused,
    What.EXTEND_REFUSED: Tally._extend_refused,
    What.EXTENDED: Tally._extended,
    What.HOLD_ENDED: Tally._hold_ended,
    What.SESSION_ENDED: Tally._session_ended,
    What.OPENED: Tally._opened,
    What.SUSPENDED: Tally._suspended,
    What.BROKEN: Tally._broken,
    What.LED: Tally._led,
}


def listener_of(meta: str) -> str:
    """By which listener a session came, as it says of itself."""
    if '"via"' not in meta:
        return "resp"
    try:
        said = json.loads(meta)
    except ValueError:
        return "resp"
    via = said.get("via") if isinstance(said, dict) else None
    return via if via in _LISTENERS else "resp"
