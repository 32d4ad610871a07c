"""A collector of OpenTelemetry traces, over real HTTP, that keeps what it receives."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span, its ids in hexadecimal; ``program`` is the service that sent it."""

    program: str
    name: str
    trace: str
    id: str
    parent: str
    failed: bool
    attributes: dict[str, str | int]


class Collector(ThreadingHTTPServer):
    """Answers ``POST /v1/traces``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[Received] = []

    @property
    def environment(self) -> dict[str, str]:
        """Settings that make a program send its traces here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server_port}"}


class Handler(BaseHTTPRequestHandler):
    """Decodes one export."""

    server: Collector

    def do_POST(self) -> None:
        """Keep the spans."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        self.server.spans.extend(received(ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Suppress the log."""


def received(request: ExportTraceServiceRequest) -> Iterator[Received]:
    """Every span of an export."""
    for resource in request.resource_spans:
        about = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield Received(
                program=about["service.name"],
                name=span.name,
                trace=span.trace_id.hex(),
                id=span.span_id.hex(),
                parent=span.parent_span_id.hex(),
                failed=span.status.code == span.status.STATUS_CODE_ERROR,
                attributes={
                    entry.key: entry.value.string_value or entry.value.int_value for entry in span.attributes
                },
            )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()
