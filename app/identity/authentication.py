"""Middleware that identifies the caller before a route reads the request, and keeps the audit log."""

from contextlib import suppress
from dataclasses import dataclass

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.problems import TOO_MANY_STATUS, RefusalError, problem_response, store_problem
from app.identity.caller import Caller
from app.identity.login import Login
from app.identity.scopes import is_audited, required_scope
from app.middleware import Middleware
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.store.errors import StoreError
from bessemer.store.rows.audit import Audit
from bessemer.telemetry.logs import add_log_fields, without_secrets

UNKNOWN = "unknown"
FAILED_STATUS = 500


@dataclass(frozen=True)
class Access:
    """Who may call the app, and the log of what they did."""

    login: Login
    audit: Audit


class Authentication(Middleware):
    """Sets ``request.state.caller``, or refuses the request.

    It appends an entry to the audit log before it forwards the head of a response: a client never learns of a
    change that the log lacks.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if required_scope(scope["method"], scope["path"]) is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        access: Access = request.app.state.access
        recorder = _Recorder(request, access.audit, send)
        try:
            caller = await _admitted(request, access.login)
        except RefusalError as error:
            is_recorded = error.problem.status != TOO_MANY_STATUS  # so that failures cannot fill the log
            response = problem_response(request, error.problem, error.headers)
            await response(scope, receive, recorder.send if is_recorded else send)
        except StoreError as error:
            await problem_response(request, store_problem(error))(scope, receive, send)
        else:
            add_log_fields(caller=caller.subject, tenant=caller.tenant)
            if is_audited(request.method, scope["path"]):
                await recorder.run(self._app, scope, receive)
            else:
                await self._app(scope, receive, send)


async def is_still_admitted(request: Request) -> bool:
    """Whether the caller of a long response is still admitted: its key may have been revoked.

    If the keys cannot be read, the caller stays admitted.
    """
    access: Access = request.app.state.access
    try:
        with suppress(StoreError):
            await _admitted(request, access.login)
    except RefusalError:
        return False
    return True


async def _admitted(request: Request, login: Login) -> Caller:
    """The caller, if its scope suffices."""
    caller = await login.caller(request)
    request.state.caller = caller
    required = required_scope(request.method, request.scope["path"])
    if required is None or caller.scope.includes(required):
        return caller
    detail = f"This request needs the scope `{required}`; the caller has `{caller.scope}`."
    raise RefusalError(make_problem(ErrorCode.FORBIDDEN, detail))


class _Recorder:
    """Forwards a response after the audit log has it; answers 503 if the log cannot be written."""

    def __init__(self, request: Request, audit: Audit, send: Send) -> None:
        self._request = request
        self._audit = audit
        self._send = send
        self._recorded = False
        self._replaced = False

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        """Run the app. A request that raises is recorded too, since it may have changed something."""
        try:
            await app(scope, receive, self.send)
        except Exception:
            if not self._recorded:
                with suppress(StoreError):
                    await run_in_threadpool(self._record, FAILED_STATUS, Headers())
            raise

    async def send(self, message: Message) -> None:
        """Forward one message."""
        if message["type"] == "http.response.start":
            self._recorded = True
            try:
                await run_in_threadpool(self._record, message["status"], Headers(raw=message["headers"]))
            except StoreError as error:
                self._replaced = True
                response = problem_response(self._request, store_problem(error))
                await response(self._request.scope, self._request.receive, self._send)
        if not self._replaced:
            await self._send(message)

    def _record(self, status: int, headers: Headers) -> None:
        request = self._request
        caller: Caller | None = getattr(request.state, "caller", None)
        route = request.scope.get("route")
        path = route.path if isinstance(route, APIRoute) else request.scope["path"]
        self._audit.record(
            subject=caller.subject if caller else UNKNOWN,
            tenant=caller.tenant if caller else None,
            action=without_secrets(f"{request.method} {path}"),
            resource=without_secrets(headers.get("location", request.scope["path"])),
            status=status,
            request_id=getattr(request.state, "request_id", None),
            address=request.client.host if request.client else None,
        )
