"""Request ids: the client's or a new one, in the response and in every log line."""

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from app.middleware import Middleware, seeing_head
from bessemer.telemetry.logs import begin_log_fields

HEADER = "X-Request-Id"
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class RequestIds(Middleware):
    """Gives every request an id. It wraps all other middleware."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its id.

        The log field stays after the response: an escaping error is logged in the same task.
        """
        request_id = accepted_id(Headers(scope=scope).get(HEADER))
        begin_log_fields(request=request_id)
        scope.setdefault("state", {})["request_id"] = request_id

        def identify(head: Message) -> None:
            MutableHeaders(scope=head)[HEADER] = request_id

        await self._app(scope, receive, seeing_head(send, identify))


def accepted_id(given: str | None) -> str:
    """The client's id if it is safe to log, otherwise a new one."""
    return given if given is not None and _ID.fullmatch(given) else uuid.uuid4().hex
