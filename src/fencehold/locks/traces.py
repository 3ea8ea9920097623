"""Traces: a span for each acquire, by OpenTelemetry, where that is wanted.

1. Off until `enable_traces` is called: until then one variable is checked, and nothing else. OpenTelemetry is an
   extra.
2. The span's context travels in the metadata of the acquire (`traceparent`, W3C Trace Context): so a waiter finds
   the holder's span, and links to it, whatever language, protocol or client each of them uses.
3. An acquire whose metadata come with a `traceparent`, where no span is current, belongs to that trace: so
   listeners continue the traces of their clients.
4. Tracing makes no acquire fail: what cannot be traced is not traced.
"""

import asyncio
import json
import re
import time
from contextlib import suppress
from typing import Any

from fencehold.errors import FenceholdError, StaleFence, UsageError
from fencehold.locks.templates import template_of
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.locks.views import Explanation

TRACEPARENT = "traceparent"
LOOK_S = 0.01
"""An acquire that has waited for so long looks up who holds what it waits for."""
LINKS_MAX = 5
_META_BYTES_MAX = 1_024
"""The service's limit: metadata that would be longer are sent as they are, without the context."""
_CONTEXT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

tracer: Any = None
"""What makes spans; None: traces are off."""


def enable_traces(provider: Any = None) -> None:
    """Have a span made for every acquire of this process.

    Args:
        provider: an OpenTelemetry `TracerProvider`; the global one, if it is not given.

    Raises:
        UsageError: OpenTelemetry is not installed.
    """
    global tracer  # noqa: PLW0603 - one for the process
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise UsageError("traces need OpenTelemetry: pip install 'fencehold[traces]'") from None
    tracer = (provider or trace).get_tracer("fencehold")


def disable_traces() -> None:
    """Make no more spans."""
    global tracer  # noqa: PLW0603 - one for the process
    tracer = None


class AcquireSpan:
    """The span of one acquire, from the request to the reply."""

    __slots__ = ("_begun_at", "_span", "terms")

    def __init__(self, terms: Terms) -> None:
        from opentelemetry.trace import INVALID_SPAN, SpanKind  # noqa: PLC0415 - there, as traces are on

        said = _object_in(terms.meta)
        template = template_of(terms.names[0])
        attributes: dict[str, Any] = {
            "fencehold.lock.name": terms.names[0],
            "fencehold.lock.template": template,
            "fencehold.lock.mode": "permit" if terms.limit else "shared" if terms.shared else "exclusive",
        }
        if len(terms.names) > 1:
            attributes["fencehold.lock.names"] = terms.names
        try:
            self._span = tracer.start_span(
                f"acquire {template}", _parent_in(said), kind=SpanKind.CLIENT, attributes=attributes
            )
        except Exception:
            # Rule 4: a processor of the application's fails, or traces were just turned off.
            self._span = INVALID_SPAN
        self.terms = _carrying(terms, said, self._span.get_span_context())
        self._begun_at = time.perf_counter()

    def on_seen(self, seen: Explanation) -> None:
        """The name is held: link to the spans of its holders."""
        with suppress(Exception):  # rule 4
            if not self._span.is_recording():
                # It was answered while the lookup was in flight, or is not sampled.
                return
            for holder in seen.holders[:LINKS_MAX]:
                context = context_of(holder.trace)
                if context is not None:
                    link = {"fencehold.link": "holder", "fencehold.lock.fence": holder.fence}
                    self._span.add_link(context, link)

    def on_answer(self, grant: Grant | None) -> None:
        """It was acquired, or not in time."""
        with suppress(Exception):  # rule 4
            if grant is not None:
                self._span.set_attribute("fencehold.lock.fence", grant.fence)
            self._end("acquired" if grant is not None else "timed_out")

    def on_error(self, error: BaseException) -> None:
        """It failed, or was cancelled."""
        with suppress(Exception):  # rule 4
            if isinstance(error, FenceholdError):
                from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

                self._span.record_exception(error)
                self._span.set_status(Status(StatusCode.ERROR, str(error)))
                self._end(_words(type(error).__name__))
            else:
                self._end("cancelled" if isinstance(error, asyncio.CancelledError) else "interrupted")

    def _end(self, outcome: str) -> None:
        waited_ms = round(1000 * (time.perf_counter() - self._begun_at), 3)
        self._span.set_attributes({"fencehold.lock.outcome": outcome, "fencehold.lock.wait_ms": waited_ms})
        self._span.end()


def noted(refusal: StaleFence) -> StaleFence:
    """A refusal by a guard, noted in the span that is current."""
    if tracer is not None:
        from opentelemetry.trace import get_current_span  # noqa: PLC0415

        facts: dict[str, str | int] = {
            "fencehold.lock.name": refusal.name,
            "fencehold.lock.fence": refusal.fence,
            "fencehold.guard.mark": refusal.mark,
        }
        get_current_span().add_event("fencehold.fence_refused", facts)
    return refusal


def _object_in(meta: str) -> dict[str, Any] | None:
    """What metadata say, if names can be added to it."""
    if not meta:
        return {}
    try:
        said = json.loads(meta)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _parent_in(said: dict[str, Any] | None) -> Any:
    """The context that an acquire came with; None: the one that is current, if there is any."""
    from opentelemetry import trace  # noqa: PLC0415

    if said is None or trace.get_current_span().get_span_context().is_valid:
        return None
    context = context_of(str(said.get(TRACEPARENT, "")))
    return None if context is None else trace.set_span_in_context(trace.NonRecordingSpan(context))


def _carrying(terms: Terms, said: dict[str, Any] | None, context: Any) -> Terms:
    """The same terms, with the span's own context in the metadata."""
    if said is None or not context.is_valid:
        return terms
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    text = json.dumps({**said, TRACEPARENT: parent}, ensure_ascii=False, separators=(",", ":"))
    return terms if len(text.encode()) > _META_BYTES_MAX else terms.saying(text)


def context_of(traceparent: str) -> Any:
    """The context of a remote span; None: the text is not one."""
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

    found = _CONTEXT.fullmatch(traceparent)
    if found is None:
        return None
    context = SpanContext(int(found[1], 16), int(found[2], 16), True, TraceFlags(int(found[3], 16)))
    return context if context.is_valid else None


def _words(name: str) -> str:
    """`LockTimeout` as `lock_timeout`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
