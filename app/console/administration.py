"""The administrators' pages: keys, tenants with their quotas, retention and the audit log."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from app.console.filters import next_page
from app.console.rendering import page
from app.http.bodies import DocumentRoute
from app.http.problems import invalid_problem
from app.http.validation import field_errors
from app.identity.caller import ANONYMOUS
from app.quotas import usage_of
from app.routes.audit import MAX_ID
from app.routes.keys import KeyId, create_key, revoke_key
from app.service import OperatorDep, Service, TenantService
from app.settings import AppSettings
from bessemer.contract.access import DEFAULT_TENANT, Scope
from bessemer.contract.base import now
from bessemer.contract.keys import ApiKey, KeyRequest
from bessemer.contract.listing import MAX_PAGE
from bessemer.contract.problem import Problem
from bessemer.contract.usage import Quota
from bessemer.store.rows.keys import is_valid

PREFIX = "/console/admin"
MOST_KEYS = 200
MOST_TENANTS = 50
RETENTION = ("retention_days", "model_retention_days", "record_retention_days", "audit_retention_days")
router = APIRouter(prefix=PREFIX, include_in_schema=False, route_class=DocumentRoute)


@router.get("")
def show_administration(request: Request, service: OperatorDep) -> Response:
    """Keys, tenants and retention."""
    return _administration(request, service, None)


@router.post("/keys")
def create(
    request: Request,
    service: OperatorDep,
    tenant: Annotated[str, Form()] = DEFAULT_TENANT,
    scope: Annotated[str, Form()] = Scope.COMPILE.value,
    name: Annotated[str, Form()] = "",
    expires_days: Annotated[str, Form()] = "",
) -> Response:
    """Create a key, and show its secret on this page alone."""
    fields = {"tenant": tenant, "scope": scope, "name": name.strip(), "expires_days": expires_days.strip()}
    try:
        wanted = KeyRequest.model_validate({key: value for key, value in fields.items() if value})
    except ValidationError as error:
        details = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        return _administration(request, service, invalid_problem(field_errors(details)))
    answer = Response()
    created = create_key(service, answer, wanted)
    needs_administrator = _needs_administrator(request, service.store.keys.list())
    response = page(
        request, "key_created.html.j2", 201, created=created, needs_administrator=needs_administrator
    )
    response.headers.update({name: answer.headers[name] for name in ("location", "cache-control")})
    return response


@router.post("/keys/{id}/revoke")
def revoke(request: Request, service: OperatorDep, key_id: KeyId) -> Response:
    """Revoke a key, and go back to the list."""
    revoke_key(service, key_id)
    return RedirectResponse(f"{request.scope.get('root_path', '')}{PREFIX}", 303)


@router.get("/audit")
def show_audit(
    request: Request,
    service: OperatorDep,
    before: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
) -> Response:
    """A page of the audit log, newest first."""
    found = service.store.audit.page(MAX_PAGE, before)
    return page(request, "audit.html.j2", found=found, next=next_page(request, found.next, "before"))


def _administration(request: Request, service: Service, problem: Problem | None) -> Response:
    keys, at = service.store.keys.list(), now()
    needs_administrator = _needs_administrator(request, keys)
    tenants = sorted({DEFAULT_TENANT, *service.quotas.by_tenant, *(key.tenant for key in keys)})
    return page(
        request,
        "administration.html.j2",
        200 if problem is None else problem.status,
        problem=problem,
        keys=[(key, is_valid(key, at)) for key in keys[:MOST_KEYS]],
        more_keys=max(0, len(keys) - MOST_KEYS),
        scopes=tuple(Scope),
        usages=[usage_of(_tenant(service, tenant)) for tenant in tenants[:MOST_TENANTS]],
        more_tenants=max(0, len(tenants) - MOST_TENANTS),
        quota_names=tuple(Quota.model_fields),
        retention=[(_variable(name), getattr(service.settings, name), _meaning(name)) for name in RETENTION],
        default_tenant=DEFAULT_TENANT,
        has_keys=bool(keys),
        needs_administrator=needs_administrator,
        default_scope=Scope.ADMIN if needs_administrator else Scope.COMPILE,
    )


def _needs_administrator(request: Request, keys: Iterable[ApiKey]) -> bool:
    """Whether a new key would lock out the caller, who has none, if it is not an administrator's."""
    at = now()
    has_administrator = any(key.scope is Scope.ADMIN and is_valid(key, at) for key in keys)
    return request.state.caller is ANONYMOUS and not has_administrator


def _tenant(service: Service, tenant: str) -> TenantService:
    return TenantService(service.store.for_tenant(tenant), service)


def _variable(name: str) -> str:
    return f"{AppSettings.model_config.get('env_prefix', '')}{name}".upper()


def _meaning(name: str) -> str:
    return AppSettings.model_fields[name].description or ""
