"""Idempotency keys: the same key creates the same resource."""

import hmac
import uuid
from typing import Annotated

from fastapi import Header

from bessemer.contract.access import Tenant
from bessemer.contract.base import JobId

KEY_PATTERN = r"^[ -~]*$"
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=KEY_PATTERN,
        description="Repeating a request with the same key returns the same resource. The same key with "
        "another request is a conflict. Printable ASCII.",
        examples=["3f8a4c1e-build-17"],
    ),
]


def resource_id(secret: bytes, key: str | None, tenant: Tenant, *scope: str) -> JobId:
    """The id of a key within a tenant and a scope, or a new id without a key.

    Without the secret, a caller cannot compute the id of a key, or tell whether two ids have the same key.
    """
    if key is None:
        return uuid.uuid4().hex
    text = "\0".join((tenant, *scope, key))  # no part contains NUL
    return hmac.digest(secret, text.encode(), "sha256").hex()[:32]
