"""Idempotency keys: the same key creates the same resource."""

import hashlib
import uuid
from typing import Annotated

from fastapi import Header

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


def resource_id(key: str | None, *scope: str) -> JobId:
    """The id of a key within a scope, or a new id without a key."""
    if key is None:
        return uuid.uuid4().hex
    return hashlib.sha256("\0".join((*scope, key)).encode()).hexdigest()[:32]
