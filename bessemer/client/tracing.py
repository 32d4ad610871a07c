"""InFlight the caller's trace on to the server."""

import os
import sys

__all__ = ["trace_headers"]

TRACEPARENT = "traceparent"
TRACEPARENT_VARIABLE = "TRACEPARENT"


def trace_headers() -> dict[str, str]:
    """The header that names the caller's span: OpenTelemetry's current one, else that of ``TRACEPARENT``.

    OpenTelemetry is taken where the caller's program has imported it: without that there is no span.
    """
    trace = sys.modules.get("opentelemetry.trace")
    context = trace.get_current_span().get_span_context() if trace else None
    if context is not None and context.is_valid:
        text = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
        return {TRACEPARENT: text}
    given = os.environ.get(TRACEPARENT_VARIABLE)
    return {TRACEPARENT: given} if given else {}
