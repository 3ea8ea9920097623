"""Server spans: what became of each traced acquire at the node, made beside it of what became durable.

1. An acquire is traced whose metadata carry a `traceparent` that is sampled: the application began the trace, and
   decides. All others cost one look at their metadata, and nothing if traces are off.
2. The span's parent is the client's, its kind `SERVER`. It begins when the entry was made that took the acquire
   in, and ends when the one was durable that granted, refused or ended it: to the millisecond or two in which
   logical time and the time of day agree.
3. One that was queued is linked to the spans of those who held its names then, as far as those are traced.
4. The node that leads makes it: one in all. A node that follows remembers who waits and who holds, so that it can
   go on when it leads; what began before this process, or before all it remembers, has no span.
5. Everything is bounded: what is remembered, and how many spans are made in a second. Those beyond are counted.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from fencehold.core.outcomes import Applied
from fencehold.locks.traces import LINKS_MAX, context_of
from fencehold.observe.facts import Fact, What
from fencehold.observe.frames import Entries
from fencehold.observe.templates import Templates

SPAN = "fencehold.acquire"
SPANS_PER_S_MAX = 1_000
REMEMBERED_MAX = 50_000
"""Waits, and names with their holders, of one machine."""
_KEY = '"traceparent"'
_LENGTH = 55
_MODES = {"X": "exclusive", "S": "shared", "P": "permit"}
_FAILED = frozenset({"deadlock", "denied"})
"""How a wait or an acquire ends that is an error: to be told no, or not in time, is not."""


class Instants(NamedTuple):
    """Of an entry, in nanoseconds since the Unix epoch."""

    made_ns: int
    durable_ns: int


def instants_of(said: Entries, applied: Applied) -> Instants | None:
    """When an entry of these was made and durable; None: it is told again, long after that."""
    if said.dated is None or not said.leads:
        return None
    at_ms, durable_ms = said.dated
    # Appends are told of the last entries: in a short time there may have been more of them than are remembered.
    first_s = _append_s(said, said.after + 1)
    offset_ns = (durable_ms - at_ms) * 1_000_000 - int(first_s * 1e9)
    made_ns = applied.at_ms * 1_000_000 + offset_ns
    return Instants(made_ns, made_ns + int(_append_s(said, applied.position) * 1e9))


def _append_s(said: Entries, position: int) -> float:
    """How long it took to make an entry durable; 0: that is not known."""
    index = len(said.append_s) - 1 - (said.up_to - position)
    return said.append_s[index] if index >= 0 else 0.0


class _Metadata(Struct):
    traceparent: str = ""


class _Wait(NamedTuple):
    """An acquire that is queued."""

    fact: Fact
    since_ns: int
    links: tuple[tuple[int, str], ...]
    """Fences and contexts of those who hold what it waits for."""


class Budget:
    """How many spans may be made in a second, by all machines of a server; and how many were."""

    def __init__(self, per_s_max: int = SPANS_PER_S_MAX, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s_max = per_s_max
        self._clock = clock
        self._left = float(per_s_max)
        self._filled_at = clock()
        self.made = 0
        self.dropped = 0

    def refill(self) -> None:
        """To be called now and then."""
        now = self._clock()
        self._left = min(self._left + (now - self._filled_at) * self._per_s_max, self._per_s_max)
        self._filled_at = now

    def take(self) -> bool:
        """Whether one more may be made."""
        if self._left < 1:
            self.dropped += 1
            return False
        self._left -= 1
        self.made += 1
        return True


class Spans:
    """Of one machine: of a tier and a shard."""

    def __init__(self, tracer: Any, templates: Templates, budget: Budget, tier: str, shard: int = 0) -> None:
        self._tracer = tracer
        self._templates = templates
        self._budget = budget
        self._place = {"fencehold.tier": tier, "fencehold.shard": shard}
        self._waits: dict[int, _Wait] = {}
        self._holders: dict[str, dict[int, str]] = {}
        """Contexts by name and fence."""
        self._leads = False
        self._position = 0
        self._instants = Instants(0, 0)

    def on_entry(self, applied: Applied, facts: Iterable[Fact], instants: Instants | None, *, leads: bool) -> None:
        """An entry became durable. `instants`: when; None: that is long past, and only the day's time is known."""
        if instants is None:
            told_ns = (applied.unix_ms or 0) * 1_000_000
            instants = Instants(told_ns, told_ns)
        self._instants, self._leads, self._position = instants, leads, applied.position
        for fact in facts:
            handler = _HANDLERS.get(fact.what)
            if handler is not None:
                handler(self, fact)

    def forget(self) -> None:
        """The journal is read anew: what was remembered may not be in it."""
        self._waits.clear()
        self._holders.clear()

    # Each kind.

    def _granted(self, fact: Fact) -> None:
        context = _traced(fact)
        if context:
            self._hold(fact.names, fact.fence, context)
            self._make(fact, context, "acquired", fence=fact.fence)

    def _queued(self, fact: Fact) -> None:
        if _traced(fact):
            if len(self._waits) >= REMEMBERED_MAX:
                del self._waits[next(iter(self._waits))]
            self._waits[fact.ticket] = _Wait(fact, self._instants.made_ns, self._links(fact.names))

    def _wait_ended(self, fact: Fact) -> None:
        wait = self._waits.pop(fact.ticket, None)
        if wait is None:
            return
        context = _traced(wait.fact)
        if fact.fence:
            self._hold(wait.fact.names, fact.fence, context)
        self._make(wait.fact, context, fact.detail, wait.since_ns, wait.links, fact.fence)

    def _busy(self, fact: Fact) -> None:
        context = _traced(fact)
        if context:
            self._make(fact, context, "busy", links=self._links(fact.names))

    def _deadlock(self, fact: Fact) -> None:
        context = _traced(fact)
        if context:
            self._make(fact, context, "deadlock", links=self._links(fact.names))

    def _refused(self, fact: Fact) -> None:
        operation, detail = fact.more
        context = _traced(fact) if operation == "acquire" else ""
        if context:
            self._make(fact, context, fact.detail, why=detail or fact.detail)

    def _released(self, fact: Fact) -> None:
        for name in fact.names:
            self._end(name, fact.fence)

    def _release_refused(self, fact: Fact) -> None:
        for name in fact.more or ():
            self._end(name, fact.fence)

    def _session_ended(self, fact: Fact) -> None:
        holds, tickets, _ = fact.more
        for name, fence in holds:
            self._end(name, fence)
        for ticket in tickets:
            wait = self._waits.pop(ticket, None)
            if wait is not None:
                self._make(wait.fact, _traced(wait.fact), "cancelled", wait.since_ns, wait.links)

    # Who holds what.

    def _hold(self, names: tuple[str, ...], fence: int, context: str) -> None:
        for name in names:
            holders = self._holders.get(name)
            if holders is None:
                if len(self._holders) >= REMEMBERED_MAX:
                    del self._holders[next(iter(self._holders))]
                holders = self._holders[name] = {}
            if len(holders) < LINKS_MAX:
                holders[fence] = context

    def _end(self, name: str, fence: int) -> None:
        holders = self._holders.get(name)
        if holders is not None and holders.pop(fence, None) is not None and not holders:
            del self._holders[name]

    def _links(self, names: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
        found = {fence: context for name in names for fence, context in self._holders.get(name, {}).items()}
        return tuple(found.items())[:LINKS_MAX]

    # The span.

    def _make(
        self,
        fact: Fact,
        parent: str,
        outcome: str,
        since_ns: int | None = None,
        links: tuple[tuple[int, str], ...] = (),
        fence: int = 0,
        why: str = "",
    ) -> None:
        made_ns, durable_ns = self._instants
        begun_ns = made_ns if since_ns is None else since_ns
        # Without a time of day it would be at the beginning of time.
        if not self._leads or not begun_ns or not self._budget.take():
            return
        from opentelemetry.trace import (  # noqa: PLC0415 - there, as traces are on
            Link,
            NonRecordingSpan,
            SpanKind,
            Status,
            StatusCode,
            set_span_in_context,
        )

        context = context_of(parent)
        if context is None:
            return
        attributes: dict[str, Any] = {
            "fencehold.lock.name": fact.names[0] if fact.names else "",
            "fencehold.lock.template": self._templates.of(fact.names[0]) if fact.names else "",
            "fencehold.lock.mode": _MODES.get(fact.mode, fact.mode),
            "fencehold.lock.outcome": outcome,
            # How long it was queued: what it took to write it down is in the span, and no wait for anybody.
            "fencehold.lock.wait_ms": max(0, made_ns - begun_ns) // 1_000_000,
            "fencehold.session": fact.session,
            "fencehold.position": self._position,
            **self._place,
        }
        if len(fact.names) > 1:
            attributes["fencehold.lock.names"] = fact.names
        if fence:
            attributes["fencehold.lock.fence"] = fence
        span = self._tracer.start_span(
            SPAN,
            set_span_in_context(NonRecordingSpan(context)),
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=[Link(other, _said(held)) for held, text in links if (other := context_of(text)) is not None],
            start_time=begun_ns,
        )
        if why or outcome in _FAILED:
            span.set_status(Status(StatusCode.ERROR, why or outcome))
        span.end(max(durable_ns, begun_ns))


def _said(fence: int) -> dict[str, Any]:
    """Of a link."""
    return {"fencehold.link": "holder", "fencehold.lock.fence": fence}


def _traced(fact: Fact) -> str:
    """The context that an acquire came with, if that is sampled; otherwise empty."""
    if _KEY not in fact.meta:
        return ""
    try:
        found = _read(fact.meta).traceparent
    except msgspec.MsgspecError:
        return ""
    # The last bit of the flags, which are two digits of base 16.
    return found if len(found) == _LENGTH and found[-1] in "13579bdf" else ""


_read = msgspec.json.Decoder(_Metadata).decode

_HANDLERS = {
    What.GRANTED: Spans._granted,
    What.QUEUED: Spans._queued,
    What.WAIT_ENDED: Spans._wait_ended,
    What.BUSY: Spans._busy,
    What.DEADLOCK: Spans._deadlock,
    What.REFUSED: Spans._refused,
    What.RELEASED: Spans._released,
    What.RELEASE_REFUSED: Spans._release_refused,
    What.HOLD_ENDED: Spans._released,
    What.SESSION_ENDED: Spans._session_ended,
}
