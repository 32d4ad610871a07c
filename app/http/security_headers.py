"""Headers that keep browsers from misreading or embedding responses."""

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from app.middleware import Middleware, seeing_head

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class SecurityHeaders(Middleware):
    """Adds the headers to every response."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers to a response."""
        await self._app(scope, receive, seeing_head(send, _add_headers))


def _add_headers(head: Message) -> None:
    headers = MutableHeaders(scope=head)
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
