"""Spans of a node and its listeners, sent by OTLP to a receiver written here: HTTP and protobuf."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fencehold
from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, Stub
from tests.e2e.served import Served, ended, serving, start, until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = f"00-{TRACE}-{PARENT}-01"


class Receiver:
    """What was sent, by trace."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(ExportTraceServiceRequest.FromString(data))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            said = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans.extend((said["service.name"], span) for span in scope.spans)

    def of(self, service: str) -> list[Any]:
        return [span for name, span in self.spans if name == service]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


def said_by(span: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_a_listener_carries_on_the_trace_of_its_client(
    server: Served, receiver: Receiver, tmp_path: Path, kind: str
) -> None:
    """From the metadata of gRPC, or the header of HTTP, to the collector; and to those who ask who holds it."""
    port_file, name = tmp_path / "port", f"traced-{kind}"
    words = ("listener", kind, "--traces", "--url", server.url, "--port", "0", "--port-file", str(port_file))
    process = start(*words, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    try:
        until(lambda: port_file.exists() or process.poll() is not None)
        port = int(port_file.read_text())
        if kind == "grpc":
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                request = m.LockRequest(name=name, ttl_ms=9_000)
                assert (
                    Stub(channel, LOCK).Lock(request, metadata=(("traceparent", CONTEXT),), timeout=30).hold.fence
                )
                shown = Stub(channel, LOCK).Explain(m.ExplainRequest(name=name)).explanation.holders[0].meta_json
        else:
            lock, headers = f"http://127.0.0.1:{port}/v1/locks/{name}", {"traceparent": CONTEXT}
            assert httpx.post(lock, json={"ttl_ms": 9_000}, headers=headers).status_code == 200
            shown = httpx.get(lock).text
        assert TRACE in shown
    finally:
        # What was not sent yet is sent at the end.
        process.terminate()
        assert ended(process).code == 0
    (span,) = receiver.of(f"fencehold-{kind}")
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == (f"acquire {name}", TRACE, PARENT)
    assert said_by(span)["fencehold.lock.outcome"] == "acquired"


@pytest.fixture
def own_spans() -> Iterator[InMemorySpanExporter]:
    """The spans of the SDK in this process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    fencehold.enable_traces(provider)
    yield exporter
    fencehold.disable_traces()


def test_a_node_goes_on_with_the_trace_of_the_sdk(
    receiver: Receiver, own_spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    """Its span is below the client's; a waiter's is linked to the holder's; at the end the rest is sent."""
    options = ("--memory", "--traces", "--no-http")
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with serving(tmp_path, *options, **variables) as served, fencehold.connect(served.url) as ann:
        hold = ann.lock("order:17").acquire()
        with fencehold.connect(served.url) as bob:
            waiting = threading.Thread(target=lambda: bob.lock("order:17").acquire().release())
            waiting.start()
            until(lambda: ann.explain("order:17").queue)
            hold.release()
            waiting.join()
        until(lambda: len(receiver.of("fencehold")) == 2)
        ann.lock("last").acquire().release()
        fencehold.disable_traces()
        ann.lock("not traced").acquire().release()
    clients = {span.context.span_id.to_bytes(8, "big"): span for span in own_spans.get_finished_spans()}
    spans = receiver.of("fencehold")
    assert {span.parent_span_id for span in spans} == set(clients)
    assert all(
        span.trace_id == clients[span.parent_span_id].context.trace_id.to_bytes(16, "big") for span in spans
    )
    first, second, _ = sorted(spans, key=lambda span: span.end_time_unix_nano)
    assert (first.name, first.kind, list(first.links)) == ("fencehold.acquire", first.SPAN_KIND_SERVER, [])
    (link,) = second.links
    assert link.span_id == first.parent_span_id
    assert said_by(second)["fencehold.lock.outcome"] == "acquired"
    for span in spans:
        # By a time of day that is told in milliseconds, on a machine that may be busy.
        began_s = (span.start_time_unix_nano - clients[span.parent_span_id].start_time) / 1e9
        assert -0.1 < began_s < 10


def test_a_collector_that_is_away_is_logged_and_holds_up_nobody(
    own_spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    """Grants go on, and one line says why there are no spans."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    with serving(tmp_path, "--memory", "--traces", "--no-http", **variables) as served:
        with fencehold.connect(served.url) as client:
            for _ in range(3):
                client.lock("order:17").acquire().release()
        assert served.process.stderr is not None
        said = next((line for line in served.process.stderr if "event=traces_failed" in line), "")
        assert "why=" in said
    assert len(own_spans.get_finished_spans()) == 3
