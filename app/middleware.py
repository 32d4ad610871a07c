"""What the app's middlewares share."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Middleware(ABC):
    """Handles HTTP requests; everything else, such as the lifespan, goes to the app unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or pass another scope on."""
        handle = self.handle if scope["type"] == "http" else self._app
        await handle(scope, receive, send)

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""


def seeing_head(send: Send, see: Callable[[Message], None]) -> Send:
    """A ``send`` that first shows the head of the response to ``see``, which may change it."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            see(message)
        await send(message)

    return sending
