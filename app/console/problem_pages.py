"""Turns the console's problem responses into pages, or into redirects to the sign-in page."""

from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.console.rendering import page
from app.console.session import HOME, sign_in_address
from app.http.problems import PROBLEM_MEDIA_TYPE, internal_problem
from app.middleware import Middleware
from bessemer.contract.problem import ErrorCode, Problem

PREFIX = "/console/"
JSON = "application/json"
INTERNAL_STATUS = 500


class ProblemPages(Middleware):
    """Wraps every middleware that answers with problems.

    The console's scripts name JSON in ``Accept``, and get problems unchanged.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. A problem is buffered, and replaced by a page."""
        if not _is_for_a_person(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal start, body, has_begun
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                has_begun = True
                await send(message)
            else:
                body += message.get("body", b"")

        try:
            await self._app(scope, receive, sending)
        except Exception:  # a defect, which the server logs
            if not has_begun:
                problem = internal_problem()
                await _page_of(Request(scope), problem, problem.status)(scope, receive, send)
            raise
        if start is not None:
            await _answer(Request(scope), start, body)(scope, receive, send)


def _is_for_a_person(scope: Scope) -> bool:
    return scope["path"].startswith(PREFIX) and JSON not in Headers(scope=scope).get("accept", "")


def _is_problem(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type") == PROBLEM_MEDIA_TYPE


def _page_of(request: Request, problem: Problem | None, status: int) -> Response:
    """A problem as a page; None for a response to HEAD."""
    request_id = getattr(request.state, "request_id", "") if status >= INTERNAL_STATUS else ""
    return page(request, "problem.html.j2", status, problem=problem, request_id=request_id)


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
        is_page = request.method in ("GET", "HEAD")
        return RedirectResponse(sign_in_address(root, wanted.removeprefix(root) if is_page else HOME), 303)
    response = _page_of(request, problem, start["status"])
    for name in ("retry-after", "allow", "connection"):
        value = Headers(raw=start["headers"]).get(name)
        if value is not None:
            response.headers[name] = value
    return response
