"""Traces across app, queue and job, exported by OpenTelemetry as its environment variables configure.

Without ``OTEL_EXPORTER_OTLP_ENDPOINT``, nothing is loaded, recorded or sent. A client's trace context is
still passed on, so a worker that does trace continues it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry import trace as otel
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
TRACEPARENT = "traceparent"
NAME_VARIABLE = "OTEL_SERVICE_NAME"
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_CURRENT: ContextVar[str | None] = ContextVar("bessemer_traceparent", default=None)

Attributes = Mapping[str, str | int | float | bool]


class TelemetryMissingError(Exception):
    """A collector is configured, but the packages that export to it are not installed."""

    def __init__(self) -> None:
        super().__init__(f"{ENDPOINTS[0]} is set; to export traces, run pip install 'bessemer[telemetry]'")


class SpanKind(StrEnum):
    """The kind of a span."""

    SERVER = "SERVER"
    CONSUMER = "CONSUMER"
    INTERNAL = "INTERNAL"


class Span:
    """A span of a trace. This one is not recorded, and only passes on its parent's ``traceparent``."""

    def __init__(self, traceparent: str | None) -> None:
        self.traceparent = traceparent

    def describe(self, name: str, attributes: Attributes) -> None:
        """Rename the span and add attributes."""

    def end(self, error: str | None = None) -> None:
        """End the span; ``error`` marks it as failed."""


class Tracer:
    """Starts spans. This one has no collector, so it records nothing."""

    def start(
        self,
        name: str,
        parent: str | None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        began_at: datetime | None = None,
    ) -> Span:
        """Start a span.

        Args:
            parent: the traceparent of the parent span; None starts a trace.
            began_at: the start time; by default, now.
        """
        return Span(parent)

    def close(self) -> None:
        """Export the remaining spans. Blocks for seconds if the collector is unreachable."""


class RecordedSpan(Span):
    """An OpenTelemetry span."""

    def __init__(self, span: "otel.Span") -> None:
        context = span.get_span_context()
        super().__init__(f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}")
        self._span = span

    def describe(self, name: str, attributes: Attributes) -> None:
        """Rename the span and add attributes."""
        self._span.update_name(name)
        self._span.set_attributes(attributes)

    def end(self, error: str | None = None) -> None:
        """End the span."""
        from opentelemetry.trace import Status, StatusCode

        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class OpenTelemetry(Tracer):
    """Exports spans in batches from a background thread."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("bessemer")

    def start(
        self,
        name: str,
        parent: str | None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        began_at: datetime | None = None,
    ) -> Span:
        """Start a span."""
        from opentelemetry.trace import SpanKind as OtelKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        above = TraceContextTextMapPropagator().extract({TRACEPARENT: parent} if parent else {})
        span = self._tracer.start_span(
            name,
            context=above,
            kind=OtelKind[kind.value],
            attributes=attributes,
            start_time=None if began_at is None else _nanoseconds(began_at),
        )
        return RecordedSpan(span)

    def close(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()


def open_tracer(program: str) -> Tracer:
    """The tracer as the environment configures it; ``OTEL_SERVICE_NAME`` overrides the program's name.

    Raises:
        TelemetryMissingError: a collector is configured, but the extra ``telemetry`` is not installed.
    """
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return Tracer()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TelemetryMissingError from error
    resource = Resource.create({SERVICE_NAME: os.environ.get(NAME_VARIABLE) or f"bessemer-{program}"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetry(provider)


def valid_traceparent(text: str | None) -> str | None:
    """The text if it is a valid W3C traceparent, else None, which starts a new trace."""
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None


def current_traceparent() -> str | None:
    """The traceparent of the current task's span."""
    return _CURRENT.get()


@contextmanager
def within(span: Span) -> Iterator[None]:
    """Make a span the current one in this context."""
    token = _CURRENT.set(span.traceparent)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1_000_000) * 1000
