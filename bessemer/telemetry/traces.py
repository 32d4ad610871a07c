"""Traces across app, queue and job, sent by OpenTelemetry to the collector that its own environment names.

Where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is not set, nothing is loaded, recorded or sent; but a client's trace is
still handed on, so that a worker that does trace continues it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

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
    """A collector is named, and the packages that would send to it are not installed."""

    def __init__(self) -> None:
        super().__init__(f"{ENDPOINTS[0]} is set; sending traces needs: pip install 'bessemer[telemetry]'")


class SpanKind(StrEnum):
    """What a span is to the one above it."""

    SERVER = "SERVER"
    CONSUMER = "CONSUMER"
    INTERNAL = "INTERNAL"


class Span(Protocol):
    """Something that takes time."""

    @property
    def traceparent(self) -> str | None:
        """What a span beneath this one is told, in W3C's form."""
        ...

    def describe(self, name: str, attributes: Attributes) -> None:
        """Name it anew, and add to what is known of it."""
        ...

    def end(self, error: str | None = None) -> None:
        """It is over; ``error`` says what went wrong."""
        ...


class Tracer(Protocol):
    """Where spans begin."""

    def start(
        self,
        name: str,
        parent: str | None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        began_at: datetime | None = None,
    ) -> Span:
        """Begin a span.

        Args:
            name: what takes the time.
            parent: the traceparent of the span above; None begins a trace.
            kind: what it is to the span above.
            attributes: what is known of it.
            began_at: when it began; by default now.
        """
        ...

    def close(self) -> None:
        """Send what is left. Blocks, for seconds where the collector is away."""
        ...


@dataclass(frozen=True)
class UnrecordedSpan:
    """InFlight on what it was told."""

    traceparent: str | None

    def describe(self, name: str, attributes: Attributes) -> None:
        """Nothing."""

    def end(self, error: str | None = None) -> None:
        """Nothing."""


class NoTracer:
    """Where no collector is named. Implements ``Tracer``."""

    def start(
        self,
        name: str,
        parent: str | None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        began_at: datetime | None = None,
    ) -> Span:
        """A span that is recorded nowhere."""
        return UnrecordedSpan(parent)

    def close(self) -> None:
        """Nothing."""


class RecordedSpan:
    """A span of OpenTelemetry's. Implements ``Span``."""

    def __init__(self, span: "otel.Span") -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        """What a span beneath this one is told."""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def describe(self, name: str, attributes: Attributes) -> None:
        """Name it anew, and add to what is known of it."""
        self._span.update_name(name)
        self._span.set_attributes(attributes)

    def end(self, error: str | None = None) -> None:
        """It is over."""
        from opentelemetry.trace import Status, StatusCode

        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class OpenTelemetry:
    """Sends spans in batches, from a thread of its own. Implements ``Tracer``."""

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
        """Begin a span."""
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
        """Send what is left."""
        self._provider.shutdown()


def open_tracer(program: str) -> Tracer:
    """The tracer of a program, as the environment asks for it.

    Args:
        program: its name, unless ``OTEL_SERVICE_NAME`` has another.

    Raises:
        TelemetryMissingError: a collector is named, and the packages of the extra ``telemetry`` are missing.
    """
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return NoTracer()
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
    """A traceparent as W3C has it, or None: anything else begins a trace of its own."""
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None


def current_traceparent() -> str | None:
    """That of the span that the present task works within."""
    return _CURRENT.get()


@contextmanager
def within(span: Span) -> Iterator[None]:
    """Let what the context does belong to a span."""
    token = _CURRENT.set(span.traceparent)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1_000_000) * 1000
