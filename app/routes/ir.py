"""Snapshots of the module between passes: the list, each snapshot, and each diff."""

from __future__ import annotations

import io
from typing import Annotated, Any

import zstandard
from fastapi import APIRouter, Path, Response
from pydantic import ValidationError

from app.http.downloads import CONTENT_SECURITY_POLICY
from app.http.problems import RefusalError, refuse
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, described, problems
from app.routes.lookup import CompilationDep, named_artifact
from app.service import ServiceDep, TenantService
from bessemer.contract.ir import IR_INDEX, IR_TEXTS, MAX_INDEX_BYTES, IrListing, IrStep, IrText
from bessemer.contract.job import Artifact, Compilation
from bessemer.contract.names import did_you_mean
from bessemer.contract.problem import ErrorCode
from bessemer.store.errors import DamagedError

router = APIRouter(prefix="/v1/compilations", tags=["artifacts"])

HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": CONTENT_SECURITY_POLICY}
MEDIA_TYPE = "text/plain; charset=utf-8"
PLAIN: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
REFUSALS = problems(*LOOKUP)

StepName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        description="The `step` of an entry in the list; or its `name`, `phase` or `stage`, in any case, if "
        "only one entry has it.",
        examples=["FuseTIR"],
    ),
]


@router.get(
    "/{id}/ir",
    summary="List the snapshots of the module",
    responses=documentation.answer(200, "The snapshots, in order.", documentation.IR) | REFUSALS,
)
def list_ir(service: ServiceDep, job: CompilationDep) -> IrListing:
    """List the snapshots after `translate`, after each pass of `optimize`, and after `tune`.

    Requires `inspect.ir` in the request. The snapshots are available after the compilation has ended; a
    failed compilation has those taken before the failure.
    """
    return read_listing(service, job)


@router.get(
    "/{id}/ir/{step}",
    summary="Get a snapshot",
    response_class=Response,
    responses=described(200, "TVMScript, without the elements of constants.", PLAIN) | REFUSALS,
)
def get_ir(service: ServiceDep, job: CompilationDep, step: StepName) -> Response:
    """Return the module after a step as TVMScript."""
    entry = named_step(job, read_listing(service, job), step)
    return Response(read_text(service, job, entry.text, IR_TEXTS), headers=HEADERS, media_type=MEDIA_TYPE)


@router.get(
    "/{id}/ir/{step}/diff",
    summary="Get the diff of a step",
    response_class=Response,
    responses=described(200, "A unified diff against the previous step; empty if nothing changed.", PLAIN)
    | REFUSALS,
)
def get_ir_diff(service: ServiceDep, job: CompilationDep, step: StepName) -> Response:
    """Return what the step changed as a unified diff."""
    entry = named_step(job, read_listing(service, job), step)
    return Response(read_text(service, job, entry.diff, IR_TEXTS), headers=HEADERS, media_type=MEDIA_TYPE)


MAX_WINDOW_BYTES = 1 << 23
"""More than any of our texts needs; frames that need more are refused."""


def read_listing(service: TenantService, job: Compilation) -> IrListing:
    """The list of a compilation's snapshots. Blocks.

    Raises:
        RefusalError: 404, the request did not ask for them, or the job has written none yet.
        BlobMissingError: the artifact's bytes were deleted.
    """
    artifact = _snapshot_artifact(job, IR_INDEX)
    if artifact.size_bytes > MAX_INDEX_BYTES:
        raise _unreadable(job)
    try:
        return IrListing.read_json(b"".join(service.data.artifacts.stream(artifact.digest)))
    except (ValidationError, DamagedError) as error:
        raise _unreadable(job) from error


def named_step(job: Compilation, listing: IrListing, step: str) -> IrStep:
    """The step with this number or name; see ``IrListing.named``.

    Raises:
        RefusalError: 404, no step or several steps match.
    """
    found = listing.named(step)
    if len(found) == 1:
        return found[0]
    if found:
        numbers = ", ".join(f"{entry.step} ({entry.name})" for entry in found)
        detail = f"Compilation {job.id} has several steps named {step}: use a number instead: {numbers}."
    else:
        near = did_you_mean(step, listing.names, count=3)
        detail = f"Compilation {job.id} has no step {step}: it has {len(listing.items)}, from 0{near}"
    raise refuse(ErrorCode.NOT_FOUND, detail)


def read_text(service: TenantService, job: Compilation, text: IrText, name: str) -> bytes:
    """One text, unpacked. Blocks.

    Args:
        service: the service as the compilation's owner sees it.
        job: the compilation.
        text: where it is.
        name: the artifact that it is in.

    Raises:
        RefusalError: 404, the text does not match the list.
        BlobMissingError: the artifact's bytes were deleted.
    """
    artifact = named_artifact(job, name) if text.packed_bytes else None
    if artifact is None:
        return b""
    end = text.offset + text.packed_bytes
    if end > artifact.size_bytes:
        raise _unreadable(job)
    try:
        packed = b"".join(service.data.artifacts.stream(artifact.digest, text.offset, end))
    except DamagedError as error:
        raise _unreadable(job) from error
    return _unpacked(job, packed, text.text_bytes)


def _unpacked(job: Compilation, packed: bytes, size: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    try:
        with unpacker.stream_reader(io.BytesIO(packed)) as reader:
            data = reader.read(size)
    except zstandard.ZstdError as error:
        raise _unreadable(job) from error
    if len(data) != size:
        raise _unreadable(job)
    return data


def _snapshot_artifact(job: Compilation, name: str) -> Artifact:
    if not job.request.inspect.ir:
        detail = f"Compilation {job.id} kept no IR: ask for it with `inspect.ir`."
        raise refuse(ErrorCode.NOT_FOUND, detail)
    return named_artifact(job, name)


def _unreadable(job: Compilation) -> RefusalError:
    return refuse(ErrorCode.NOT_FOUND, f"The snapshots of compilation {job.id} cannot be read.")
