"""Where the spans of a server's processes go: to an OTLP collector, as OpenTelemetry's own variables say.

`OTEL_EXPORTER_OTLP_ENDPOINT` (`http://127.0.0.1:4318` unless it is set), `OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and the others mean what they mean everywhere.
"""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from fencehold.errors import UsageError
from fencehold.locks.traces import enable_traces

_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


def check_export() -> None:
    """Raises `UsageError` if OpenTelemetry and its exporter are not installed."""
    try:
        is_there = all(find_spec(module) is not None for module in _NEEDED)
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise UsageError("--traces needs OpenTelemetry: pip install 'fencehold[traces]'")


def otlp_provider(service: str) -> Any:
    """A `TracerProvider` that sends its spans by OTLP; `shutdown` sends the rest.

    Args:
        service: the name of the process, unless `OTEL_SERVICE_NAME` is set.

    Raises:
        UsageError: OpenTelemetry is not installed.
    """
    check_export()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named))
    # In a thread of its own, and bounded: a collector that is down delays no acquire.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def export_traces(kind: str) -> Callable[[], None]:
    """Have the acquires of this process, a listener, traced; returns a function that sends the rest at the end.

    Raises:
        UsageError: OpenTelemetry is not installed.
    """
    provider = otlp_provider(f"fencehold-{kind}")
    enable_traces(provider)
    shutdown: Callable[[], None] = provider.shutdown
    return shutdown
