"""Request ids: the client's or a new one, in the response and in every log line."""

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bessemer.telemetry.logs import begin_log_fields

HEADER = "X-Request-Id"
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class RequestIds:
    """Middleware around the whole app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its id.

        The log field stays after the response: an escaping error is logged in the same task.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = accepted_id(Headers(scope=scope).get(HEADER))
        begin_log_fields(request=request_id)
        scope.setdefault("state", {})["request_id"] = request_id

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, sending)


def accepted_id(given: str | None) -> str:
    """The client's id if it is safe to log, otherwise a new one."""
    return given if given is not None and _ID.fullmatch(given) else uuid.uuid4().hex
