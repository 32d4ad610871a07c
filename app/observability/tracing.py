"""Records a span for each request, in the client's trace if it has one."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.middleware import Middleware, seeing_head
from app.observability.request_log import method_label, route_label
from bessemer.telemetry.traces import TRACEPARENT, Span, SpanKind, Tracer, valid_traceparent, within

UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})
FIRST_ERROR_STATUS = 500


class Tracing(Middleware):
    """Runs each request within a span, except health checks and scrapes."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        super().__init__(app)
        self._tracer = tracer

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within a span."""
        if scope["path"] in UNTRACED:
            await self._app(scope, receive, send)
            return
        parent = valid_traceparent(Headers(scope=scope).get(TRACEPARENT))
        span = self._tracer.start(method_label(scope), parent, SpanKind.SERVER)
        status = FIRST_ERROR_STATUS

        def note(head: Message) -> None:
            nonlocal status
            status = head["status"]

        with within(span):
            try:
                await self._app(scope, receive, seeing_head(send, note))
            finally:
                _end(span, scope, status)


def _end(span: Span, scope: Scope, status: int) -> None:
    method, route = method_label(scope), route_label(scope)
    described = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
        "bessemer.request.id": scope.get("state", {}).get("request_id", ""),
    }
    span.describe(f"{method} {route}", described)
    span.end(f"status {status}" if status >= FIRST_ERROR_STATUS else None)
