"""Turns a problem that the console answers with into a page, or into the page to sign in on."""

from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.console.rendering import page
from app.console.session import sign_in_address
from app.http.problems import PROBLEM_MEDIA_TYPE
from bessemer.contract.problem import ErrorCode, Problem

PREFIX = "/console/"


class ProblemPages:
    """Middleware around the authentication and the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; a problem is the whole body of its response."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def sending(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")

        await self._app(scope, receive, sending)
        if start is not None:
            await _answer(Request(scope), start, body)(scope, receive, send)


def _is_problem(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type") == PROBLEM_MEDIA_TYPE


def _answer(request: Request, start: Message, body: bytes) -> ASGIApp:
    try:
        problem = Problem.read_json(body)
    except ValidationError:  # a response to HEAD
        problem = None
    if (
        problem is not None
        and problem.code is ErrorCode.UNAUTHENTICATED
        and "hx-request" not in request.headers
    ):
        root = request.scope.get("root_path", "")
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(sign_in_address(root, wanted.removeprefix(root)), 303)
    response = page(request, "problem.html.j2", start["status"], problem=problem)
    for name in ("retry-after", "allow", "connection"):
        value = Headers(raw=start["headers"]).get(name)
        if value is not None:
            response.headers[name] = value
    return response
