"""Requests that may be sent again: the same key names the same resource."""

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
        description="The same key and request give the same resource, however often they are sent; the same "
        "key with another request is a conflict. Printable ASCII.",
        examples=["3f8a4c1e-build-17"],
    ),
]


def resource_id(key: str | None, *scope: str) -> JobId:
    """An id: the same for the same key within the same scope, a new one without a key."""
    if key is None:
        return uuid.uuid4().hex
    return hashlib.sha256("\0".join((*scope, key)).encode()).hexdigest()[:32]
