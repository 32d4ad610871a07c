"""The client sends its caller's span to the server."""

import pytest
from opentelemetry import context, trace

from bessemer.client.transport import trace_headers

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SPAN = trace.NonRecordingSpan(
    trace.SpanContext(trace_id=1, span_id=2, is_remote=False, trace_flags=trace.TraceFlags(1))
)


def test_a_caller_without_a_span_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert trace_headers() == {}


def test_a_pipelines_span_comes_from_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", GIVEN)
    assert trace_headers() == {"traceparent": GIVEN}


def test_the_current_span_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", GIVEN)
    token = context.attach(trace.set_span_in_context(SPAN))
    try:
        assert trace_headers() == {"traceparent": f"00-{1:032x}-{2:016x}-01"}
    finally:
        context.detach(token)
