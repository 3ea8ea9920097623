"""Spans of a listener, sent by OTLP to a receiver that is written here: HTTP and protobuf, as collectors do."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, Stub
from tests.e2e.served import Served, ended, start, until

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
