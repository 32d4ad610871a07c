"""Every error response is an RFC 9457 problem (``application/problem+json``)."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.http.request_ids import HEADER
from app.http.validation import field_errors, not_json
from bessemer.contract.problem import ErrorCode, FieldError, Problem, make_problem
from bessemer.contract.target_names import UNSUPPORTED
from bessemer.store.errors import (
    BlobMissingError,
    CursorInvalidError,
    DamagedError,
    DeviceUnknownError,
    DigestMismatchError,
    EmptyUploadError,
    ExtensionInUseError,
    FencedError,
    IdempotencyConflictError,
    JobNotFinalError,
    ModelInUseError,
    StoreError,
    StoreUnavailableError,
    TooLargeError,
    TooManyDevicesError,
    TooManyUploadsError,
    UploadStalledError,
    is_disk_full,
)

PROBLEM_MEDIA_TYPE = "application/problem+json"
UNAVAILABLE_STATUS = 503
TOO_MANY_STATUS = 429
ONLY_LOGGED = (ErrorCode.UNAVAILABLE, ErrorCode.INTERNAL)
"""Store errors whose details are logged, not sent."""
RETRY_AFTER_SECONDS = 2
ERRORS_SHOWN_IN_DETAIL = 3

STORE_CODES: dict[type[StoreError], ErrorCode] = {
    FencedError: ErrorCode.STATE_CONFLICT,
    IdempotencyConflictError: ErrorCode.IDEMPOTENCY_CONFLICT,
    JobNotFinalError: ErrorCode.STATE_CONFLICT,
    ModelInUseError: ErrorCode.MODEL_IN_USE,
    ExtensionInUseError: ErrorCode.EXTENSION_IN_USE,
    DeviceUnknownError: ErrorCode.NOT_FOUND,
    TooManyDevicesError: ErrorCode.QUOTA_EXCEEDED,
    CursorInvalidError: ErrorCode.REQUEST_INVALID,
    TooLargeError: ErrorCode.MODEL_TOO_LARGE,
    EmptyUploadError: ErrorCode.MODEL_EMPTY,
    UploadStalledError: ErrorCode.UPLOAD_INCOMPLETE,
    TooManyUploadsError: ErrorCode.QUOTA_EXCEEDED,
    DigestMismatchError: ErrorCode.DIGEST_MISMATCH,
    BlobMissingError: ErrorCode.NOT_FOUND,
    DamagedError: ErrorCode.INTERNAL,
    StoreUnavailableError: ErrorCode.UNAVAILABLE,
}
STATUS_CODES: dict[int, ErrorCode] = {
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    413: ErrorCode.REQUEST_TOO_LARGE,
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


log = logging.getLogger(__name__)


class RefusalError(HTTPException):
    """Ends a request with a problem."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.status, problem.detail, headers)
        self.problem = problem


def refuse(code: ErrorCode, detail: str, errors: tuple[FieldError, ...] = ()) -> RefusalError:
    """An exception with the code's title, status and advice."""
    return RefusalError(make_problem(code, detail, errors=errors))


def problem_response(
    request: Request, problem: Problem, headers: Mapping[str, str] | None = None
) -> Response:
    """A problem as a response. If the request has a body, the connection closes: its rest is not read."""
    response = Response(problem.model_dump_json(), problem.status, headers, media_type=PROBLEM_MEDIA_TYPE)
    response.headers["Cache-Control"] = "no-store"
    if problem.status in (UNAVAILABLE_STATUS, TOO_MANY_STATUS):
        response.headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))
    if "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0":
        response.headers["Connection"] = "close"
    return response


def install(app: FastAPI) -> None:
    """Make the app answer every error with a problem."""
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(StoreError, _answer_store)
    app.add_exception_handler(Exception, _answer_unexpected)


_NO_ANSWER = "The database, the queue or the artifact store did not answer."
_DISK_FULL = "The disk of the database or of the artifact store is full: its operator must free some space."


def store_problem(error: StoreError) -> Problem:
    """The problem for a store error. Details for the operator go to the log only."""
    code = STORE_CODES[type(error)]
    if code in ONLY_LOGGED:
        log.warning("answering with %s: %s", code, str(error).splitlines()[0])
    if code is ErrorCode.UNAVAILABLE:
        return make_problem(code, _DISK_FULL if is_disk_full(error) else _NO_ANSWER)
    if code is ErrorCode.INTERNAL:
        return internal_problem()
    if isinstance(error, CursorInvalidError):
        return invalid_problem((FieldError(field="cursor", message=str(error)),))
    return make_problem(code, str(error))


def invalid_problem(errors: tuple[FieldError, ...]) -> Problem:
    """The problem for invalid fields."""
    shown = "; ".join(f"{error.field}: {error.message}" for error in errors[:ERRORS_SHOWN_IN_DETAIL])
    rest = len(errors) - ERRORS_SHOWN_IN_DETAIL
    more = f"; and {rest} more" if rest > 0 else ""
    return make_problem(ErrorCode.REQUEST_INVALID, f"{shown}{more}", errors=errors)


def internal_problem() -> Problem:
    """The problem for a defect, without internal details."""
    return make_problem(ErrorCode.INTERNAL, "An unexpected error ended the request; the log has the details.")


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, RefusalError):
        return problem_response(request, error.problem, error.headers)
    code = STATUS_CODES.get(error.status_code, ErrorCode.REQUEST_INVALID)
    if error.status_code >= 500:
        return problem_response(request, internal_problem())
    if code is ErrorCode.METHOD_NOT_ALLOWED:
        methods = allowed_methods(request)
        if "GET" in methods and answers_head(request.url.path):
            methods = tuple(method for method in METHODS if method in (*methods, "HEAD"))
        allowed = ", ".join(methods)
        detail = f"{request.url.path} allows {allowed}, not {request.method}."
        return problem_response(request, make_problem(code, detail), {"Allow": allowed})
    if isinstance(error.__cause__, (ValueError, RecursionError)):
        invalid = invalid_problem((FieldError(field="body", message=not_json(error.__cause__)),))
        return problem_response(request, invalid)
    if code is ErrorCode.NOT_FOUND:
        return problem_response(request, make_problem(code, f"{request.url.path} not found."))
    return problem_response(request, make_problem(code, str(error.detail)), error.headers)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    details: Sequence[dict[str, Any]] = error.errors()
    return problem_response(request, _problem_of_fields(details))


def _problem_of_fields(details: Sequence[Mapping[str, Any]]) -> Problem:
    errors = field_errors(details)
    if all(detail["type"] == UNSUPPORTED for detail in details):
        return make_problem(ErrorCode.TARGET_UNSUPPORTED, errors[0].message, errors=errors)
    return invalid_problem(errors)


async def _answer_store(request: Request, error: Exception) -> Response:
    assert isinstance(error, StoreError)
    return problem_response(request, store_problem(error))


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    headers = {HEADER: request.state.request_id} if hasattr(request.state, "request_id") else None
    return problem_response(request, internal_problem(), headers)


def answers_head(path: str) -> bool:
    """Whether `HEAD` works wherever `GET` does: in the API and the console, except streams."""
    return path.startswith(("/v1/", "/console/")) and not path.endswith("/events")


def allowed_methods(request: Request) -> tuple[str, ...]:
    """The methods of every route at the request's path; the router knows only those of the first."""
    routes = request.app.router.routes
    return tuple(
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    )
