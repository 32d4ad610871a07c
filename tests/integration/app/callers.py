"""Requests of several tenants, without keys.

``CallerFromHeader`` runs after the app's own authentication and replaces the caller that it found.
"""

import httpx
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from app.identity.caller import Caller
from bessemer.contract.access import Scope

TENANT_HEADER = "X-Test-Tenant"


class CallerFromHeader:
    """Middleware that takes the caller's tenant from ``TENANT_HEADER``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        tenant = Headers(scope=scope).get(TENANT_HEADER) if scope["type"] == "http" else None
        if tenant is not None:
            scope["state"]["caller"] = Caller(f"test:{tenant}", tenant, Scope.ADMIN)
        await self._app(scope, receive, send)


def take_callers_from_header(app: FastAPI) -> None:
    """Install ``CallerFromHeader`` innermost, before the app starts."""
    app.user_middleware.append(Middleware(CallerFromHeader))


def client_of(app: FastAPI, tenant: str) -> httpx.AsyncClient:
    """A client whose caller belongs to a tenant."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {TENANT_HEADER: tenant}
    return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)
