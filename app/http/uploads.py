"""Receiving models: streamed to the store, hashed, registered, and queued for inspection."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from app.http.problems import refuse
from app.quotas import STORED, WORKER, put_within_quota, require_room
from app.service import TenantService
from bessemer.contract.base import Digest
from bessemer.contract.model import Model, ModelState
from bessemer.contract.problem import ErrorCode
from bessemer.store.blobs.hashing import Blob
from bessemer.telemetry.logs import add_log_fields


async def receive_model(
    service: TenantService,
    chunks: AsyncIterator[bytes],
    expected: Digest | None,
    name: str | None = None,
    declared_bytes: int = 1,
) -> tuple[Model, bool]:
    """Store a model and queue its inspection.

    Args:
        service: the service as the model's owner sees it.
        chunks: the file.
        expected: the digest that the client named, if any.
        name: a name for the model, unless it has one.
        declared_bytes: the size of the file, if the client named it.

    Returns:
        The model, and whether it is new.

    Raises:
        RefusalError: the connection closed before the file was complete, or it exceeds the tenant's quota;
            nothing is stored.
        StoreError: the file is too large, empty, stalled or has another digest, or the store is away.
    """
    max_bytes = service.settings.max_upload_bytes
    is_new = expected is None or await run_in_threadpool(service.data.models.get, expected) is None
    if is_new:
        await run_in_threadpool(partial(require_room, service, WORKER, STORED, more_bytes=declared_bytes))
    try:
        async with aclosing(service.metrics.counted(chunks)) as counted:
            blob = await put_within_quota(service, counted, expected, max_bytes, is_new)
    except ClientDisconnect as error:
        raise refuse(
            ErrorCode.UPLOAD_INCOMPLETE, "The connection closed before the body was complete."
        ) from error
    add_log_fields(model=blob.digest)
    return await run_in_threadpool(_register, service, blob, name)


def refuse_if_too_large(
    request: Request, limit_bytes: int, code: ErrorCode = ErrorCode.MODEL_TOO_LARGE
) -> None:
    """Refuse a body by its declared length, before reading it.

    Raises:
        RefusalError: 413.
    """
    declared = declared_bytes(request)
    if declared > limit_bytes:
        raise refuse(code, f"The body has {declared} bytes; the limit is {limit_bytes}.")


def declared_bytes(request: Request) -> int:
    """The size of a body; 1 if the request does not declare it."""
    declared = request.headers.get("content-length", "")
    return int(declared[:20]) if declared.isdecimal() else 1


def _register(service: TenantService, blob: Blob, name: str | None) -> tuple[Model, bool]:
    models = service.data.models
    created = models.get(blob.digest) is None
    if created:
        require_room(service, STORED, more_bytes=blob.size_bytes)
    again = models.inspect_again(blob.digest)
    model = models.add(blob.digest, blob.size_bytes, name)
    if (created or again) and model.state is ModelState.INSPECTING:
        service.try_enqueue(models, blob.digest)
    return model, created
