"""Uploads in parts: a browser sends the parts that the service lacks, then asks to join them.

The browser sends the digests of a file's parts. The response names the missing parts, or has the model. So
the same request starts, resumes and ends an upload, whichever app process answers.
"""

from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Self

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field, model_validator
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import ClientDisconnect

from app.http.bodies import DocumentRoute
from app.http.problems import refuse
from app.http.uploads import declared_bytes, receive_model, refuse_if_too_large, register_model
from app.quotas import STORED, WORKER, require_room
from app.service import ServiceDep, TenantService
from bessemer.contract.base import Digest, Document
from bessemer.contract.model import Model
from bessemer.contract.names import name_of_file
from bessemer.contract.problem import ErrorCode
from bessemer.store.blobs.hashing import Blob
from bessemer.store.errors import BlobMissingError

PART_BYTES = 8 << 20
"""The size of every part but the last."""
UNFINISHED = 2
"""How many uploads of the maximum size a tenant may leave unfinished."""

router = APIRouter(include_in_schema=False)
plans = APIRouter(include_in_schema=False, route_class=DocumentRoute)


class Plan(Document):
    """A file to upload.

    Attributes:
        digest: the file's digest.
        size_bytes: the file's size.
        file: the file's name.
        parts: the digests of its parts, in order.
    """

    digest: Digest
    size_bytes: int = Field(ge=1)
    file: str = Field(max_length=1024)
    parts: tuple[Digest, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_the_parts_of_its_size(self) -> Self:
        expected = -(-self.size_bytes // PART_BYTES)
        if len(self.parts) != expected:
            raise ValueError(f"expected {expected} parts of {PART_BYTES} bytes, found {len(self.parts)}")
        return self


class Progress(Document):
    """What an upload needs next.

    Attributes:
        missing: the parts to send, before the client asks again.
        model: the stored model; None while parts are missing.
    """

    missing: tuple[Digest, ...] = ()
    model: Model | None = None


@plans.post("/console/uploads")
async def upload(service: ServiceDep, plan: Plan) -> Progress:
    """Return the missing parts. If none are missing, store the model and return it.

    Requests for the same file run one at a time in this process: the first stores the model and deletes the
    parts, and the others find the model. Requests to other processes may run at the same time.
    """
    async with service.joining(plan.digest):
        return await _joined(service, plan)


async def _joined(service: TenantService, plan: Plan) -> Progress:
    name = name_of_file(plan.file)
    known = await run_in_threadpool(_stored, service, plan, name)
    if known is not None:
        return Progress(model=known)
    if plan.size_bytes > service.settings.max_upload_bytes:
        detail = f"The file has {plan.size_bytes} bytes; the limit is {service.settings.max_upload_bytes}."
        raise refuse(ErrorCode.MODEL_TOO_LARGE, detail)
    parts = service.data.parts
    missing = await run_in_threadpool(parts.missing, plan.parts)
    if not missing:
        chunks = iterate_in_threadpool(parts.joined(plan.parts))
        with suppress(BlobMissingError):  # another process was first
            await receive_model(service, chunks, plan.digest, name, plan.size_bytes)
    known = await run_in_threadpool(_stored, service, plan, name)
    if known is not None:
        return Progress(model=known)
    await run_in_threadpool(partial(require_room, service, WORKER, STORED, more_bytes=plan.size_bytes))
    return Progress(missing=missing)


def _stored(service: TenantService, plan: Plan, name: str | None) -> Model | None:
    """The model if the tenant has stored it. Parts that another request sent since are deleted."""
    known = service.data.models.get(plan.digest)
    if known is None:
        return None
    model, _ = register_model(service, Blob(known.digest, known.size_bytes), name)
    service.data.parts.delete(plan.parts)
    return model


@router.put("/console/uploads/parts/{digest}")
async def put_part(service: ServiceDep, request: Request, digest: Annotated[Digest, Path()]) -> Response:
    """Store one part."""
    refuse_if_too_large(request, PART_BYTES)
    await run_in_threadpool(_require_room_for_part, service, declared_bytes(request))
    settings, at_once = service.settings, service.quota.uploads
    try:
        async with aclosing(service.metrics.counted(request.stream())) as chunks:
            await service.data.parts.put_stream(chunks, digest, PART_BYTES, settings.upload_rate, at_once)
    except ClientDisconnect as error:
        detail = "The connection closed before the part was complete."
        raise refuse(ErrorCode.UPLOAD_INCOMPLETE, detail) from error
    return Response(status_code=204)


def _require_room_for_part(service: TenantService, more_bytes: int) -> None:
    require_room(service, STORED, more_bytes=more_bytes)
    limit = UNFINISHED * service.settings.max_upload_bytes
    used = service.data.parts.stored_bytes()
    if used + more_bytes > limit:
        hours = service.settings.upload_abandoned_seconds / 3600
        detail = f"The tenant's unfinished uploads have {used} bytes; the limit is {limit}."
        raise refuse(
            ErrorCode.QUOTA_EXCEEDED, f"{detail} Finish one, or wait: they are deleted after {hours:g} hours."
        )


router.include_router(plans)
