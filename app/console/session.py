"""Signing in and out: an ``HttpOnly`` cookie carries the caller's key or token."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from app.console.rendering import page
from app.http.bodies import DocumentRoute
from app.http.problems import RefusalError
from app.identity.authentication import Access
from app.identity.login import COOKIE

SIGN_IN = "/console/sign-in"
HOME = "/console/compilations"
MAX_CREDENTIAL = 8192
MAX_PATH = 2048

router = APIRouter(include_in_schema=False, route_class=DocumentRoute)


def sign_in_address(root: str, wanted: str) -> str:
    """The address of the sign-in page, which leads back to ``wanted``."""
    return f"{root}{SIGN_IN}?next={quote(wanted)}"


@router.get(SIGN_IN)
async def show_sign_in(request: Request, next: str = HOME) -> Response:
    """Ask for a key."""
    return page(request, "sign_in.html.j2", next=_own_path(next), problem=None)


@router.post(SIGN_IN)
async def sign_in(
    request: Request,
    key: Annotated[str, Form(max_length=MAX_CREDENTIAL)],
    next: Annotated[str, Form()] = HOME,
) -> Response:
    """Keep the key in a cookie if the service accepts it."""
    access: Access = request.app.state.access
    wanted = _own_path(next)
    credential = key.strip()
    try:
        await access.login.caller_of(request, credential)
    except RefusalError as error:
        return page(request, "sign_in.html.j2", error.problem.status, next=wanted, problem=error.problem)
    response = RedirectResponse(f"{request.scope.get('root_path', '')}{wanted}", 303)
    response.set_cookie(
        COOKIE, credential, httponly=True, samesite="lax", secure=_is_encrypted(request), path="/"
    )
    return response


@router.api_route("/console", methods=["GET", "HEAD"])
@router.api_route("/console/", methods=["GET", "HEAD"])
async def show_first_page(request: Request) -> Response:
    """Redirect to the first page."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}{HOME}", 303)


@router.post("/console/sign-out")
async def sign_out(request: Request) -> Response:
    """Delete the cookie, and redirect to the sign-in page."""
    response = RedirectResponse(f"{request.scope.get('root_path', '')}{SIGN_IN}", 303)
    response.delete_cookie(COOKIE, path="/")
    return response


def _is_encrypted(request: Request) -> bool:
    """Whether the browser uses https. Behind a proxy that does not forward the scheme, ``Origin`` tells."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")


def _own_path(wanted: str) -> str:
    """The path if it is the console's own, or else the first page: never another site."""
    is_own = wanted.startswith("/console/") and len(wanted) <= MAX_PATH and wanted.isprintable()
    return wanted if is_own and "\\" not in wanted else HOME
