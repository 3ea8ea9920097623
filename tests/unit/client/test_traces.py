"""Spans of acquires: what they say, whom they link to, and that there are none unless they are wanted."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import fencehold
from fencehold import aio
from fencehold.errors import Deadlock, StaleFence
from fencehold.guards.offer import Offer
from fencehold.guards.statements import TABLE, statements
from fencehold.locks import traces
from fencehold.locks.templates import template_of
from fencehold.locks.traces import AcquireSpan
from fencehold.locks.trust import Grant
from tests.unit.client.service import service, service_on_a_thread, until, until_true

LINKED: list[object] = []
"""What was seen by those who wait."""


class Seen:
    """The spans that have ended, and what makes others current."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.app = self.provider.get_tracer("app")

    def acquires(self) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith("acquire ")]

    def of(self, outcome: str) -> ReadableSpan:
        (found,) = [span for span in self.acquires() if _said(span)["fencehold.lock.outcome"] == outcome]
        return found

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return found


@pytest.fixture
def seen() -> Iterator[Seen]:
    seen = Seen()
    fencehold.enable_traces(seen.provider)
    yield seen
    fencehold.disable_traces()
    # The thread that looks who holds what is not left behind.
    until_true(lambda: all(thread.name != "fencehold-traces" for thread in threading.enumerate()))


def _said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_an_acquire_has_a_span_that_says_what_became_of_it(seen: Seen) -> None:
    """Of kind CLIENT, called by the template of the name, below the span that is current."""
    async with service() as url, aio.connect(url) as client:
        with seen.app.start_as_current_span("order") as order:
            async with client.lock("order:17") as hold:
                pass
        other = await client.lock("order:17", shared=True, timeout=0).acquire()
        assert await client.lock("order:17", timeout=0).acquire() is None
        assert other is not None
        await other.release()
    first, shared, failed = seen.acquires()
    said = _said(first)
    assert (first.name, first.kind) == ("acquire order:*", SpanKind.CLIENT)
    assert first.parent is not None
    assert first.parent.span_id == order.get_span_context().span_id
    assert said.pop("fencehold.lock.wait_ms") >= 0
    assert said == {
        "fencehold.lock.name": "order:17",
        "fencehold.lock.template": "order:*",
        "fencehold.lock.mode": "exclusive",
        "fencehold.lock.fence": hold.fence,
        "fencehold.lock.outcome": "acquired",
    }
    assert _said(shared)["fencehold.lock.mode"] == "shared"
    assert _said(failed)["fencehold.lock.outcome"] == "timed_out"
    assert "fencehold.lock.fence" not in _said(failed)


async def test_who_waits_is_linked_to_who_holds(seen: Seen) -> None:
    """By the context in the metadata of the hold, which others see as well."""
    async with service() as url, aio.connect(url) as ann, aio.connect(url) as bob:
        hold = await ann.lock("wallet", meta={"job": "nightly"}).acquire()
        waiting = asyncio.create_task(bob.lock("wallet").acquire())
        await until(lambda: len(LINKED) > 0)
        shown = (await ann.explain("wallet")).holders[0].meta
        await hold.release()
        await (await waiting).release()
    first, second = seen.acquires()
    context = first.get_span_context()
    assert context is not None
    assert shown == {
        "job": "nightly",
        "traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}",
    }
    (link,) = second.links
    assert (link.context.trace_id, link.context.span_id) == (context.trace_id, context.span_id)
    assert dict(link.attributes or {}) == {"fencehold.link": "holder", "fencehold.lock.fence": hold.fence}


@pytest.fixture(autouse=True)
def linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes when a link is made: a test waits for that, and not for a time."""
    LINKED.clear()
    on_seen = traces.AcquireSpan.on_seen

    def note(self: traces.AcquireSpan, explanation: Any) -> None:
        on_seen(self, explanation)
        LINKED.append(explanation)

    monkeypatch.setattr(traces.AcquireSpan, "on_seen", note)


def test_threads_are_traced_alike(seen: Seen) -> None:
    """With a look by another thread, while this one waits."""
    with service_on_a_thread() as url, fencehold.connect(url) as ann, fencehold.connect(url) as bob:
        hold = ann.lock("wallet").acquire()
        waiting = threading.Thread(target=lambda: bob.lock("wallet").acquire().release())
        waiting.start()
        until_true(lambda: len(LINKED) > 0)
        hold.release()
        waiting.join()
        with ann.multi(["a:1", "a:2"]):
            pass
    first, second, several = seen.acquires()
    context = first.get_span_context()
    assert context is not None
    assert [link.context.span_id for link in second.links] == [context.span_id]
    assert _said(several)["fencehold.lock.names"] == ("a:1", "a:2")


async def test_a_failure_and_a_cancellation_are_told(seen: Seen) -> None:
    """A failure with its error; who gives up has not failed."""
    async with service() as url, aio.connect(url) as ann, aio.connect(url) as bob:
        held = await ann.lock("one").acquire()
        waiting = asyncio.create_task(bob.lock("one").acquire())
        await until(lambda: len(LINKED) > 0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await held.release()
        async with ann.lock("three"):
            with pytest.raises(Deadlock):
                await ann.lock("three").acquire()
    assert seen.of("cancelled").status.status_code is StatusCode.UNSET
    assert seen.of("deadlock").status.status_code is StatusCode.ERROR


async def test_a_context_that_comes_in_the_metadata_is_carried_on(seen: Seen) -> None:
    """Where no span is current: so do listeners for their clients. What is no context is left alone."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with service() as url, aio.connect(url) as client:
        told: list[Any] = [
            {"traceparent": f"00-{trace}-b7ad6b7169203331-01"},
            {"traceparent": "odd"},
            "text",
            ["list"],
        ]
        for meta in told:
            async with client.lock("carried", meta=meta):
                shown = (await client.explain("carried")).holders[0].meta
            assert isinstance(shown, dict) == isinstance(meta, dict)
        async with client.lock("long", meta={"x": "y" * 990}):
            assert (await client.explain("long")).holders[0].trace == ""
    first, second, *_ = seen.acquires()
    assert first.parent is not None
    assert f"{first.parent.trace_id:032x}" == trace
    assert second.parent is None


def test_a_refusal_by_a_guard_is_an_event_of_the_current_span(seen: Seen) -> None:
    """With the fence that was offered, and the mark it is below."""
    with seen.app.start_as_current_span("write"), pytest.raises(StaleFence):
        statements("sqlite", "named", TABLE, True).judge(Offer("wallet", 3), 7)
    (event,) = [each for each in seen.named("write").events if each.name == "fencehold.fence_refused"]
    assert dict(event.attributes or {}) == {
        "fencehold.lock.name": "wallet",
        "fencehold.lock.fence": 3,
        "fencehold.guard.mark": 7,
    }


def test_without_being_wanted_nothing_is_made_or_imported() -> None:
    """An acquire asks for nothing but whether it is wanted."""
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        hold = client.lock("quiet", meta={"a": "b"}).acquire()
        assert client.explain("quiet").holders[0].meta == {"a": "b"}
        hold.release()


def test_without_opentelemetry_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else needs it."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(fencehold.UsageError, match=r"pip install 'fencehold\[traces\]'"):
        fencehold.enable_traces()


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("order:17", "order:*"),
        ("user/9f86d081884c7d65/cart", "user/*/cart"),
        ("job-6fa459ea-ee8a-3ca4-894e-db77e160355e", "job-*"),
        ("nightly", "nightly"),
        ("x" * 300, "x" * 120),
    ],
)
def test_spans_are_called_by_templates(name: str, template: str) -> None:
    """So that a million names are not a million kinds of spans."""
    assert template_of(name) == template


def test_an_acquire_that_is_interrupted_as_it_ends_holds_nothing(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the grant and the end of its span, too."""

    def interrupted(_span: AcquireSpan, _grant: Grant | None) -> None:
        raise KeyboardInterrupt

    with service_on_a_thread() as url, fencehold.connect(url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(AcquireSpan, "on_answer", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.lock("wallet").acquire()
        until_true(lambda: not client.lock("wallet").locked())
    (span,) = seen.acquires()
    assert _said(span)["fencehold.lock.outcome"] == "interrupted"


async def test_an_acquire_that_is_cancelled_as_it_ends_holds_nothing(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likewise on an event loop."""

    def cancelled(_span: AcquireSpan, _grant: Grant | None) -> None:
        raise asyncio.CancelledError

    async with service() as url, aio.connect(url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(AcquireSpan, "on_answer", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await client.lock("wallet").acquire()
        async with client.lock("wallet", timeout=30):
            pass
    assert _said(seen.acquires()[0])["fencehold.lock.outcome"] == "cancelled"


class Failing(SpanProcessor):
    """Of an application, with a bug."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("as it begins")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("as it ends")


class FailingAtTheEnd(Failing):
    def on_start(self, span: Any, parent_context: Any = None) -> None: ...


@pytest.mark.parametrize("processor", [Failing, FailingAtTheEnd])
async def test_a_processor_that_fails_fails_no_acquire(seen: Seen, processor: type[Failing]) -> None:
    """What cannot be traced is not traced: a lock is acquired, or not, as without traces."""
    seen.provider.add_span_processor(processor())
    async with service() as url, aio.connect(url) as client:
        async with client.lock("wallet") as hold:
            assert hold.fence
            with pytest.raises(Deadlock):
                await client.lock("wallet").acquire()
