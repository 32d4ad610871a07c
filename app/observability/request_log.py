"""Counts and times requests by route, and logs them if `BESSEMER_ACCESS_LOG` is set."""

import logging
import time
from collections.abc import Sequence

from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.middleware import Middleware, seeing_head
from app.observability.metrics import AppMetrics
from bessemer.telemetry.logs import LogFields

UNMATCHED = "unmatched"
OTHER_METHOD = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
EVENT_STREAM = b"text/event-stream"
BROKEN_STATUS = 500
LOGGED_PATH_CHARACTERS = 1024

access = logging.getLogger("app.access")


class Metering(Middleware):
    """Counts, times and logs every request."""

    def __init__(self, app: ASGIApp, metrics: AppMetrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it."""
        answer = Answer()
        began = time.perf_counter()
        with self._metrics.in_progress.track_inprogress():
            try:
                await self._app(scope, receive, seeing_head(send, answer.saw))
            finally:
                self._count(scope, answer, time.perf_counter() - began)

    def _count(self, scope: Scope, answer: "Answer", seconds: float) -> None:
        method, route = method_label(scope), route_label(scope)
        fields: LogFields = {
            "method": method,
            "route": route,
            "status": answer.status,
            "seconds": round(seconds, 4),
        }
        path = scope["path"][:LOGGED_PATH_CHARACTERS]
        access.info("%s %s", scope["method"], path, extra={"fields": fields})
        self._metrics.requests.labels(method, route, str(answer.status)).inc()
        if not answer.is_event_stream:
            self._metrics.durations.labels(method, route).observe(seconds)


class Answer:
    """The response's head; a request that raises before its response is a 500."""

    status = BROKEN_STATUS
    is_event_stream = False

    def saw(self, head: Message) -> None:
        """Note the head of the response."""
        self.status = head["status"]
        self.is_event_stream = _is_event_stream(head.get("headers", ()))


def route_label(scope: Scope) -> str:
    """The route's path template, such as ``/v1/models/{digest}``, to bound the number of labels."""
    route = scope.get("route")
    return route.path if isinstance(route, APIRoute) else UNMATCHED


def method_label(scope: Scope) -> str:
    """A standard method, or ``other``, to bound the number of labels."""
    method: str = scope["method"]
    return method if method in METHODS else OTHER_METHOD


def _is_event_stream(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-type" and value.startswith(EVENT_STREAM) for name, value in headers)
