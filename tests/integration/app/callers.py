"""Clients with keys of their own."""

import httpx
from fastapi import FastAPI

from app.service import Service
from bessemer.contract.access import Scope
from bessemer.contract.keys import KeyRequest


def client_of(app: FastAPI, tenant: str, scope: Scope = Scope.COMPILE) -> httpx.AsyncClient:
    """A client with a new key of a tenant, for an app that runs and asks for keys."""
    service: Service = app.state.service
    key = service.store.keys.create(KeyRequest(tenant=tenant, scope=scope)).key
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers={"Authorization": f"Bearer {key}"}
    )
