"""API keys, for administrators."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from app.http.bodies import DocumentRoute
from app.http.problems import refuse
from app.openapi import document as documentation
from app.openapi.document import problems
from app.service import OperatorDep
from bessemer.contract.access import Scope
from bessemer.contract.base import now
from bessemer.contract.keys import KeyList, KeyRequest, NewApiKey
from bessemer.contract.problem import ErrorCode

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=DocumentRoute)

KeyId = Annotated[
    str, Path(alias="id", pattern=r"^[0-9a-f]+$", description="The key's id.", examples=["4f1d2a90c3b7"])
]
NEW_KEY = NewApiKey(
    id="4f1d2a90c3b7",
    tenant="vision",
    scope=Scope.COMPILE,
    name="ci of acme/vision",
    created_at=now(),
    expires_at=None,
    revoked_at=None,
    last_used_at=None,
    key="bsm_4f1d2a90c3b7_fhF0Jk3m0jvYb0Y2gWfZs1n1sQz0s4oV5b1lJkq8x2A",
)
REQUEST_EXAMPLES = {
    "a key for CI": {
        "summary": "A key that may compile for 90 days",
        "value": {"tenant": "vision", "scope": "compile", "name": "ci of acme/vision", "expires_days": 90},
    }
}
RequestBody = Annotated[KeyRequest, Body(openapi_examples=REQUEST_EXAMPLES)]
EXAMPLE = KeyList(items=(NEW_KEY,))


@router.get("", summary="List keys", responses=documentation.answer(200, "The keys.", EXAMPLE) | problems())
def list_keys(service: OperatorDep) -> KeyList:
    """List the keys of all tenants, without their secrets."""
    return KeyList(items=service.store.keys.list())


@router.post(
    "",
    status_code=201,
    summary="Create a key",
    responses=documentation.answer(201, "The new key.", NEW_KEY, "The URL of the key.")
    | problems(ErrorCode.REQUEST_INVALID, ErrorCode.REQUEST_TOO_LARGE),
    openapi_extra={"requestBody": {"description": "The key to create."}},
)
def create_key(service: OperatorDep, response: Response, request: RequestBody) -> NewApiKey:
    """Create a key. Only this response contains it."""
    return _created(service.store.keys.create(request), response)


@router.post(
    "/{id}/rotate",
    status_code=201,
    summary="Replace a key",
    responses=documentation.answer(201, "The new key.", NEW_KEY, "The URL of the key.")
    | problems(ErrorCode.NOT_FOUND, ErrorCode.REQUEST_INVALID),
)
def rotate_key(service: OperatorDep, response: Response, key_id: KeyId) -> NewApiKey:
    """Create a key with the same tenant, scope and lifetime, and revoke the old one."""
    created = service.store.keys.rotate(key_id)
    if created is None:
        raise refuse(ErrorCode.NOT_FOUND, f"Valid key '{key_id[:64]}' not found.")
    return _created(created, response)


@router.delete(
    "/{id}",
    status_code=204,
    summary="Revoke a key",
    responses=documentation.described(204, "The key is revoked.")
    | problems(ErrorCode.NOT_FOUND, ErrorCode.REQUEST_INVALID),
)
def revoke_key(service: OperatorDep, key_id: KeyId) -> None:
    """Revoke a key. Apps accept it for up to five more seconds."""
    if not service.store.keys.revoke(key_id):
        raise refuse(ErrorCode.NOT_FOUND, f"Valid key '{key_id[:64]}' not found.")


def _created(key: NewApiKey, response: Response) -> NewApiKey:
    response.headers["Location"] = f"/v1/keys/{key.id}"
    response.headers["Cache-Control"] = "no-store"
    return key
