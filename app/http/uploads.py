"""Receiving uploads: streamed to the store, hashed and registered. A model is queued for inspection."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from app.http.problems import refuse
from app.quotas import STORED, WORKER, put_within_quota, require_room
from app.service import TenantService
from bessemer.contract.base import Digest
from bessemer.contract.extension import Extension
from bessemer.contract.model import Model, ModelState
from bessemer.contract.problem import ErrorCode
from bessemer.store.blobs.hashing import Blob
from bessemer.store.errors import EmptyUploadError, TooLargeError
from bessemer.store.rows.tenant_rows import Shown
from bessemer.store.rows.tenant_uploads import TenantUploads
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
        declared_bytes: the size of the file, if the client declared it.

    Returns:
        The model, and whether it is new.

    Raises:
        RefusalError: the connection closed before the file was complete, or it exceeds the tenant's quota;
            nothing is stored.
        StoreError: the file is too large, empty, stalled or has another digest, or the store is unavailable.
    """
    blob = await _receive(
        service, service.data.models, chunks, expected, service.settings.max_upload_bytes, declared_bytes
    )
    add_log_fields(model=blob.digest)
    return await run_in_threadpool(register_model, service, blob, name)


async def receive_extension(
    service: TenantService,
    chunks: AsyncIterator[bytes],
    expected: Digest | None,
    name: str | None = None,
    declared_bytes: int = 1,
) -> tuple[Extension, bool]:
    """Store an extension; see ``receive_model``.

    Raises:
        RefusalError: also if the file is too large or empty.
        StoreError: the file is stalled or has another digest, or the store is unavailable.
    """
    extensions, max_bytes = service.data.extensions, service.settings.max_extension_bytes
    try:
        blob = await _receive(service, extensions, chunks, expected, max_bytes, declared_bytes)
    except TooLargeError as error:
        detail = f"The file has more than {max_bytes} bytes."
        raise refuse(ErrorCode.EXTENSION_TOO_LARGE, detail) from error
    except EmptyUploadError as error:
        raise refuse(ErrorCode.EXTENSION_INVALID, "The file is empty.") from error
    return await run_in_threadpool(_register, service, extensions, blob, name)


async def _receive(
    service: TenantService,
    uploads: TenantUploads[Any],
    chunks: AsyncIterator[bytes],
    expected: Digest | None,
    max_bytes: int,
    declared_bytes: int,
) -> Blob:
    is_new = expected is None or await run_in_threadpool(uploads.get, expected) is None
    if is_new:
        await run_in_threadpool(partial(require_room, service, WORKER, STORED, more_bytes=declared_bytes))
    try:
        async with aclosing(service.metrics.counted(chunks)) as counted:
            return await put_within_quota(service, counted, expected, max_bytes, is_new)
    except ClientDisconnect as error:
        raise refuse(
            ErrorCode.UPLOAD_INCOMPLETE, "The connection closed before the body was complete."
        ) from error


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


def register_model(service: TenantService, blob: Blob, name: str | None) -> tuple[Model, bool]:
    """Add the row of a stored model, or note another upload of it, and queue its inspection. Blocks.

    Returns:
        The model, and whether it is new.
    """
    models = service.data.models
    again = models.inspect_again(blob.digest)
    model, created = _register(service, models, blob, name)
    if (created or again) and model.state is ModelState.INSPECTING:
        service.try_enqueue(models, blob.digest)
    return model, created


def _register(
    service: TenantService, uploads: TenantUploads[Shown], blob: Blob, name: str | None
) -> tuple[Shown, bool]:
    created = uploads.get(blob.digest) is None
    if created:
        require_room(service, STORED, more_bytes=blob.size_bytes)
    return uploads.add(blob.digest, blob.size_bytes, name), created
