"""Server spans: of traced acquires, what became of them at the node, made of entries and what they did."""

from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from fencehold.core.commands import Acquire, Break, Cancel, CloseSession, Release
from fencehold.observe import spans as spans_module
from fencehold.observe.observer import Observer, Settings
from fencehold.observe.spans import Budget, instants_of
from tests.unit.observe.journaled import SHARED, START_MS, Story

TRACE = "0af7651916cd43dd8448eb211c80319c"
ANN, BOB, EVE = (f"{number:016x}" for number in (0xA, 0xB, 0xE))


def carrying(span: str, flags: str = "01", **more: str) -> str:
    """Metadata with the context of a client's span."""
    said = {**more, "traceparent": f"00-{TRACE}-{span}-{flags}"}
    return "{" + ", ".join(f'"{key}": "{value}"' for key, value in said.items()) + "}"


class Seen:
    """An observer whose spans are kept here."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = Observer(settings or Settings(traces=True), provider)

    def take(self, story: Story, since: int = 0, *, leads: bool = True, **more: Any) -> None:
        said = story.entries(since, leads=leads, append_s=more.pop("append_s", ()))
        first = next(thing.applied for thing in story.told if thing.applied.position > since)
        dated = more.get("dated", (first.at_ms, START_MS + first.at_ms))
        self.observer.take(replace(said, dated=dated))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def figure(self, metric: str) -> int:
        ((_, value),) = self.observer.figures()[metric]
        return int(value)


def said(span: ReadableSpan) -> dict[str, Any]:
    return {key.removeprefix("fencehold."): value for key, value in (span.attributes or {}).items()}


def test_an_acquire_has_a_span_below_its_clients() -> None:
    """From when its entry was made to when that was durable, with what became of it."""
    seen, story = Seen(), Story()
    ann = story.open("ann")
    fence = story.acquire(ann, "order:17", meta=carrying(ANN), elapsed_ms=40)
    seen.take(story, append_s=(0.001, 0.004), dated=(0, START_MS + 1))
    (span,) = seen.spans
    assert (span.name, span.kind) == ("fencehold.acquire", SpanKind.SERVER)
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, ANN)
    # The first entry was durable 1 ms after the start, and took so long: this one was made 40 ms after the start.
    assert span.start_time == (START_MS + 40) * 1_000_000
    assert span.end_time == (START_MS + 44) * 1_000_000
    assert said(span) == {
        "lock.name": "order:17",
        "lock.template": "order:*",
        "lock.mode": "exclusive",
        "lock.outcome": "acquired",
        "lock.fence": fence,
        "lock.wait_ms": 0,
        "session": ann,
        "position": 2,
        "tier": "correctness",
        "shard": 0,
    }
    assert span.status.status_code is StatusCode.UNSET


def test_a_waiter_is_linked_to_the_holder() -> None:
    """From the entry that queued it to the one that granted it; to who held the name when it was queued."""
    seen, story = Seen(), Story()
    ann, bob, eve = (story.open(name) for name in ("ann", "bob", "eve"))
    first = story.acquire(ann, "wallet", meta=carrying(ANN))
    story.acquire(bob, "wallet", meta=carrying(BOB), elapsed_ms=10)
    # In one entry: bob is granted what ann releases, so it is bob whom eve finds there.
    released = Release(ann, ("wallet",), first), Acquire(eve, ("wallet",), meta=carrying(EVE))
    story.entry(*released, elapsed_ms=250)
    story.release(bob, first + 1, "wallet", elapsed_ms=100)
    seen.take(story)
    of_ann, of_bob, of_eve = seen.spans
    assert (said(of_bob)["lock.wait_ms"], said(of_eve)["lock.wait_ms"]) == (250, 100)
    assert of_bob.start_time == of_ann.start_time + 10_000_000  # type: ignore[operator]
    for span, holder, fence in ((of_bob, ANN, first), (of_eve, BOB, first + 1)):
        (link,) = span.links
        assert f"{link.context.span_id:016x}" == holder
        assert dict(link.attributes or {}) == {"fencehold.link": "holder", "fencehold.lock.fence": fence}
        assert said(span)["lock.outcome"] == "acquired"


@pytest.mark.parametrize(
    ("outcome", "is_error"),
    [("busy", False), ("timed_out", False), ("cancelled", False), ("deadlock", True), ("usage", True)],
)
def test_what_was_not_acquired_says_why(outcome: str, is_error: bool) -> None:
    """A no, or not in time, is no error; a refusal is."""
    seen, story = Seen(), Story()
    ann, bob = story.open("ann"), story.open("bob")
    story.acquire(ann, "wallet", owner="t", meta=carrying(ANN))
    match outcome:
        case "busy":
            story.acquire(bob, "wallet", wait_ms=0, meta=carrying(BOB))
        case "timed_out":
            story.acquire(bob, "wallet", wait_ms=100, meta=carrying(BOB))
            story.entry(elapsed_ms=200)
        case "cancelled":
            story.acquire(bob, "wallet", request=5, meta=carrying(BOB))
            story.entry(Cancel(bob, 5), elapsed_ms=50)
        case "deadlock":
            story.acquire(ann, "wallet", owner="t", meta=carrying(BOB))
        case _:
            story.acquire(ann, "wallet", ttl_ms=1 << 60, meta=carrying(BOB))
    seen.take(story)
    span = next(span for span in seen.spans if f"{span.parent.span_id:016x}" == BOB)  # type: ignore[union-attr]
    assert said(span)["lock.outcome"] == outcome
    assert "lock.fence" not in said(span)
    assert (span.status.status_code is StatusCode.ERROR) is is_error


def test_the_end_of_a_session_ends_its_waits_and_holds() -> None:
    """A wait that ends with its session is cancelled, and nobody is linked to a hold that is over."""
    seen, story = Seen(), Story()
    ann, bob, eve = (story.open(name) for name in ("ann", "bob", "eve"))
    story.acquire(ann, "wallet", meta=carrying(ANN))
    story.acquire(bob, "wallet", meta=carrying(BOB))
    story.entry(CloseSession(bob), elapsed_ms=30)
    story.entry(Break("wallet"))
    story.acquire(eve, "wallet")
    story.acquire(ann, "wallet", wait_ms=0, meta=carrying(EVE))
    seen.take(story)
    _, of_bob, busy = seen.spans
    assert (said(of_bob)["lock.outcome"], said(of_bob)["lock.wait_ms"]) == ("cancelled", 30)
    assert busy.links == ()


def test_only_what_is_sampled_is_traced() -> None:
    """The application that began the trace decides; what came without a context, or with none, has no span."""
    seen, story = Seen(), Story()
    ann = story.open("ann")
    odd = ("", carrying(ANN, "00"), '"traceparent"', '{"traceparent": 7}', '{"x": {"traceparent": "00-0-0-01"}}')
    for number, meta in enumerate(odd):
        story.acquire(ann, f"n:{number}", meta=meta)
    story.acquire(ann, "bad", meta='{"traceparent": "%s"}' % ("x" * 54 + "1"))
    seen.take(story)
    assert seen.spans == []


def test_who_follows_remembers_and_makes_none() -> None:
    """A wait that began under another leader has its span from the node that leads when it ends."""
    seen, story = Seen(), Story()
    ann, bob = story.open("ann"), story.open("bob")
    fence = story.acquire(ann, "wallet", meta=carrying(ANN), elapsed_ms=5)
    story.acquire(bob, "wallet", meta=carrying(BOB), mode=SHARED)
    seen.take(story, leads=False, dated=None)
    assert seen.spans == []
    since = story.machine.position
    story.release(ann, fence, "wallet", elapsed_ms=700)
    seen.take(story, since)
    (span,) = seen.spans
    assert span.start_time == (START_MS + 5) * 1_000_000
    assert (said(span)["lock.wait_ms"], said(span)["lock.mode"], len(span.links)) == (700, "shared", 1)


def test_a_journal_that_is_read_anew_is_remembered_anew() -> None:
    """Tickets of what was lost with a leader may be another's by now."""
    seen, story = Seen(), Story()
    ann, bob = story.open("ann"), story.open("bob")
    fence = story.acquire(ann, "wallet", meta=carrying(ANN))
    story.acquire(bob, "wallet", meta=carrying(BOB))
    seen.take(story)
    seen.observer.take(story.began())
    since = story.machine.position
    story.release(ann, fence, "wallet")
    seen.take(story, since)
    assert len(seen.spans) == 1


def test_spans_and_what_is_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many in a second, and the others are counted; the oldest waits and holders are forgotten."""
    monkeypatch.setattr(spans_module, "REMEMBERED_MAX", 2)
    seen, story = Seen(Settings(traces=True, spans_per_s_max=3)), Story()
    ann, bob = story.open("ann"), story.open("bob")
    fences = [story.acquire(ann, f"n:{number}", meta=carrying(ANN)) for number in range(5)]
    for number in range(5):
        story.acquire(bob, f"n:{number}", meta=carrying(BOB))
    seen.take(story)
    assert (len(seen.spans), seen.figure("fencehold_spans_total")) == (3, 3)
    assert seen.figure("fencehold_spans_dropped_total") == 2
    since = story.machine.position
    for number, fence in enumerate(fences):
        story.release(ann, fence, f"n:{number}")
    seen.take(story, since)
    # Whether they are made or dropped: of two waits only is anything known.
    assert seen.figure("fencehold_spans_total") + seen.figure("fencehold_spans_dropped_total") == 5 + 2


def test_a_budget_fills_with_time_and_not_beyond_a_second() -> None:
    """However long nothing came, no more than those of a second are made at once."""
    now = 0.0
    budget = Budget(10, lambda: now)
    assert sum(budget.take() for _ in range(20)) == 10
    now = 0.5
    budget.refill()
    assert sum(budget.take() for _ in range(20)) == 5
    now = 100.0
    budget.refill()
    assert sum(budget.take() for _ in range(20)) == 10
    assert (budget.made, budget.dropped) == (25, 35)


def test_instants_do_without_append_times_that_are_not_remembered() -> None:
    """Of many entries in one go only the last appends are told."""
    story = Story()
    ann = story.open("ann")
    for number in range(3):
        story.acquire(ann, f"n:{number}", elapsed_ms=10)
    entries = story.entries(append_s=(0.002,))
    told = replace(entries, dated=(0, START_MS))
    found = [instants_of(told, thing.applied) for thing in told.things]
    made_ms = [at.made_ns // 1_000_000 - START_MS for at in found if at is not None]
    took_ms = [(at.durable_ns - at.made_ns) // 1_000_000 for at in found if at is not None]
    assert (made_ms, took_ms) == ([0, 10, 20, 30], [0, 0, 0, 2])
