"""Refuses requests that only a web page of another site sends.

Any page can make a browser send requests to a service on its user's machine or network. Two checks stop this:

* ``Host`` must be an address, or a name of this service. A page that rebinds its own DNS name to the
  service's address sends its own name (Jackson et al., "Protecting Browsers from DNS Rebinding Attacks",
  2007). Services that ask for keys accept any name, since such a page has no key.
* A request that changes something must come from the service's own origin, if it names one. Browsers name it
  on every such request.
"""

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from app.http.problems import problem_response
from app.identity.authentication import Access
from app.identity.login import Login
from app.identity.scopes import READING
from app.middleware import Middleware
from app.settings import AppSettings
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.store.errors import StoreError

FOREIGN_SITES = frozenset({"cross-site", "same-site"})
OWN_NAMES = frozenset({"localhost", socket.gethostname().lower()})


class Origins(Middleware):
    """Refuses requests with a foreign host or origin."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        request = Request(scope)
        problem = await _problem_of(request)
        answer = self._app if problem is None else problem_response(request, problem)
        await answer(scope, receive, send)


async def _problem_of(request: Request) -> Problem | None:
    settings: AppSettings = request.app.state.settings
    access: Access = request.app.state.access
    problem = host_problem(_header(request, "host"), settings.allowed_hosts)
    if problem is not None and not settings.allowed_hosts and await _asks_for_keys(access.login):
        problem = None
    if problem is not None or request.method in READING:
        return problem
    return origin_problem(
        _header(request, "host"),
        _header(request, "origin"),
        _header(request, "sec-fetch-site"),
        settings.allowed_origins,
    )


async def _asks_for_keys(login: Login) -> bool:
    """Whether callers need keys; False, which refuses other names, while the database is unavailable."""
    try:
        return await login.asks_for_keys()
    except StoreError:
        return False


def host_problem(host: str, allowed: Collection[str]) -> Problem | None:
    """Why a ``Host`` header is refused, or None.

    Args:
        host: the header.
        allowed: the names besides addresses and this machine's names; `*` allows any.
    """
    name = _name_of(host)
    if name is not None and (_is_address(name) or name in OWN_NAMES or {name, "*"} & set(allowed)):
        return None
    return make_problem(ErrorCode.HOST_REFUSED, f"This service does not serve the host '{host[:128]}'.")


def origin_problem(host: str, origin: str, site: str, allowed: Collection[str]) -> Problem | None:
    """Why a request that changes something is refused, or None.

    Args:
        host: the ``Host`` header.
        origin: the ``Origin`` header; empty if the request has none.
        site: the ``Sec-Fetch-Site`` header; empty if the request has none.
        allowed: the origins that the operator allows, such as ``https://console.example``.
    """
    if origin in allowed and origin:
        return None
    if origin:
        # the same host under the other scheme is another site, which only Sec-Fetch-Site tells
        is_own = _netloc(origin) == host.lower() and site not in FOREIGN_SITES
        shown = f"a page of {origin[:128]}"
    else:
        is_own = site not in FOREIGN_SITES
        shown = f"a page of another site (Sec-Fetch-Site: {site[:32]})"
    return None if is_own else make_problem(ErrorCode.ORIGIN_REFUSED, f"It came from {shown}.")


def _header(request: Request, name: str) -> str:
    return request.headers.get(name, "")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name_of(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
