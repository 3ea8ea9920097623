"""Where the spans of a listener go: to an OTLP collector, as OpenTelemetry's own variables say.

`OTEL_EXPORTER_OTLP_ENDPOINT` (`http://127.0.0.1:4318` unless it is set), `OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and the others mean what they mean everywhere.
"""

import os
from collections.abc import Callable

from fencehold.errors import UsageError
from fencehold.locks.traces import enable_traces


def export_traces(kind: str) -> Callable[[], None]:
    """Have the acquires of this process traced; returns what sends the rest at the end.

    Raises:
        UsageError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise UsageError("--traces needs OpenTelemetry: pip install 'fencehold[traces]'") from None
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"fencehold-{kind}"}
    provider = TracerProvider(resource=Resource.create(named))
    # In a thread of its own, and bounded: a collector that is away holds up nobody.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    enable_traces(provider)
    return provider.shutdown
