"""Running a compiled library on uploaded inputs."""

from contextlib import aclosing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from app.http.downloads import artifact_response
from app.http.idempotency import IdempotencyKey, resource_id
from app.http.polling import cancellation, poll_later
from app.http.problems import RefusalError, invalid_problem, refuse
from app.http.uploads import declared_bytes, refuse_if_too_large
from app.observability.log_fields import is_job_prefix
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, problems
from app.quotas import QUEUED, STORED, WORKER, put_within_quota, require_room
from app.routes.artifacts import ARTIFACT_PROBLEMS, DOWNLOAD, NOT_MODIFIED
from app.routes.lookup import CompilationDep, hint, look_up
from app.service import ServiceDep, TenantService
from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.base import Digest, JobId
from bessemer.contract.capability import Needs, lacks, needs_of, needs_of_library
from bessemer.contract.invocation import DEFAULT_RUNS, MAX_RUNS, OUTPUTS, Invocation, InvocationPage
from bessemer.contract.job import Artifact, Compilation, JobState
from bessemer.contract.listing import Page
from bessemer.contract.problem import ErrorCode, FieldError
from bessemer.contract.request import MAIN_ENTRY, EntryName
from bessemer.store.blobs.hashing import Blob
from bessemer.store.errors import (
    DigestMismatchError,
    EmptyUploadError,
    IdempotencyConflictError,
    TooLargeError,
)
from bessemer.telemetry.logs import add_log_fields
from bessemer.telemetry.traces import current_traceparent

router = APIRouter(prefix="/v1/compilations/{id}/invocations", tags=["invocations"])

INPUTS_FILE = "An `.npz` or `.safetensors` file with one array for each input of the library, by name."
Runs = Annotated[
    int,
    Query(
        ge=0,
        le=MAX_RUNS,
        description="How often to time the library after a warm-up run.",
        examples=[100],
    ),
]
EntryPoint = Annotated[
    EntryName | None,
    Query(
        description="The entry point to run, by its name in the request. By default, the first.",
        examples=["decode"],
    ),
]


def _invocation(
    service: ServiceDep,
    job: CompilationDep,
    invocation_id: Annotated[
        str,
        Path(
            alias="invocation",
            description="The invocation's id, or a unique prefix of at least 4 characters.",
            examples=[documentation.INVOCATION.id],
        ),
    ],
) -> Invocation:
    invocations = service.data.invocations
    starting = partial(invocations.starting, job.id)
    found = None
    if is_job_prefix(invocation_id):
        found = look_up("invocation", invocation_id, invocations.get, starting)
    if found is None or found.compilation != job.id:
        detail = f"Compilation {job.id} has no invocation '{invocation_id[:64]}'.{hint(invocation_id)}"
        raise refuse(ErrorCode.NOT_FOUND, detail)
    add_log_fields(invocation=found.id)
    return found


InvocationDep = Annotated[Invocation, Depends(_invocation)]


@router.post(
    "",
    status_code=202,
    summary="Run the compiled library",
    responses=documentation.answer(
        202, "The invocation is queued.", documentation.NEW_INVOCATION, "The URL of the invocation."
    )
    | problems(
        ErrorCode.NOT_FOUND,
        ErrorCode.ID_AMBIGUOUS,
        ErrorCode.STATE_CONFLICT,
        ErrorCode.IDEMPOTENCY_CONFLICT,
        ErrorCode.INPUTS_TOO_LARGE,
        ErrorCode.INPUTS_UNREADABLE,
        ErrorCode.TARGET_NOT_RUNNABLE,
        ErrorCode.UPLOAD_INCOMPLETE,
        ErrorCode.REQUEST_INVALID,
    ),
    openapi_extra=documentation.file_upload(INPUTS_FILE, "x.npz", "/v1/compilations/ID/invocations"),
)
async def invoke_library(
    service: ServiceDep,
    request: Request,
    response: Response,
    job: CompilationDep,
    runs: Runs = DEFAULT_RUNS,
    entry: EntryPoint = None,
    idempotency_key: IdempotencyKey = None,
) -> Invocation:
    """Queue a run of the library on the uploaded inputs, in the sandbox. Poll it at `Location`."""
    _require_bundle(job)
    _require_entry(job, entry)
    await run_in_threadpool(_require_able_worker, service, job)
    invocation_id = resource_id(service.id_secret, idempotency_key, service.data.tenant, job.id)
    add_log_fields(invocation=invocation_id)
    known = await run_in_threadpool(service.data.invocations.get, invocation_id)
    if known is None:
        room = partial(require_room, service, more_bytes=declared_bytes(request))
        await run_in_threadpool(room, QUEUED, WORKER, STORED)
    try:
        blob = await _receive(service, request, None if known is None else known.inputs)
    except DigestMismatchError as error:
        raise IdempotencyConflictError(invocation_id) from error
    invocation = await run_in_threadpool(_submit, service, invocation_id, job, blob, runs, entry)
    response.headers["Location"] = f"/v1/compilations/{job.id}/invocations/{invocation.id}"
    poll_later(response)
    return invocation


@router.get(
    "",
    summary="List the invocations of a compilation, newest first",
    responses=documentation.answer(200, "A page of invocations.", documentation.INVOCATIONS)
    | problems(*LOOKUP),
)
def list_invocations(
    service: ServiceDep,
    job: CompilationDep,
    query: Annotated[Page, Query()],
) -> InvocationPage:
    """To get the next page, pass `next` as `cursor`. New invocations do not shift later pages."""
    return service.data.invocations.page(job.id, query.limit, query.cursor)


@router.get(
    "/{invocation}",
    summary="Get an invocation",
    responses=documentation.answer(200, "The invocation.", documentation.INVOCATION) | problems(*LOOKUP),
)
async def get_invocation(response: Response, invocation: InvocationDep) -> Invocation:
    """Return its state, and then its times and outputs, or a problem."""
    if not invocation.state.final:
        poll_later(response)
    return invocation


@router.get(
    "/{invocation}/outputs",
    summary="Download the outputs",
    response_class=Response,
    responses=DOWNLOAD | ARTIFACT_PROBLEMS,
)
def get_outputs(
    service: ServiceDep, request: Request, job: CompilationDep, invocation: InvocationDep
) -> Response:
    """Download the outputs as an `.npz` file, with its digest as `ETag`.

    Supports `Range`, `If-Range` and `If-None-Match`.
    """
    return artifact_response(service, request, _outputs(invocation), job.file_stem)


@router.head(
    "/{invocation}/outputs",
    summary="Get the outputs' size and digest",
    response_class=Response,
    responses=documentation.described(200, "The headers of the download.") | NOT_MODIFIED | problems(*LOOKUP),
)
def head_outputs(
    service: ServiceDep, request: Request, job: CompilationDep, invocation: InvocationDep
) -> Response:
    """Return the headers of the download, without the body."""
    return artifact_response(service, request, _outputs(invocation), job.file_stem)


@router.post(
    "/{invocation}/cancel",
    status_code=202,
    summary="Cancel an invocation",
    responses=documentation.answer(200, "The invocation is cancelled.", documentation.CANCELLED_INVOCATION)
    | documentation.answer(202, "The invocation is running and will stop.", documentation.RUNNING_INVOCATION)
    | problems(*LOOKUP, ErrorCode.STATE_CONFLICT),
)
def cancel_invocation(service: ServiceDep, response: Response, invocation: InvocationDep) -> Invocation:
    """Cancel an invocation: at once if it is queued, within about a second if it is running."""
    after = service.data.invocations.request_cancel(invocation.id)
    return cancellation(response, "invocation", invocation.id, after)


def _require_bundle(job: Compilation) -> None:
    if any(artifact.name == ARCHIVE for artifact in job.artifacts):
        return
    why = "is " + job.state if job.state is not JobState.SUCCEEDED else f"stopped after {job.stage}"
    raise refuse(ErrorCode.STATE_CONFLICT, f"Compilation {job.id} {why}: it has no bundle to run.")


def _require_entry(job: Compilation, entry: str | None) -> None:
    known = tuple(job.request.entries) or (MAIN_ENTRY,)
    if entry is not None and entry not in known:
        message = f"compilation {job.id} has no entry point '{entry}'; it has {', '.join(known)}"
        raise RefusalError(invalid_problem((FieldError(field="entry", message=message),)))


async def _receive(service: TenantService, request: Request, expected: Digest | None) -> Blob:
    """Store the inputs; a repeated request must have those that are expected, and others are not kept."""
    max_bytes = service.settings.max_inputs_bytes
    refuse_if_too_large(request, max_bytes, ErrorCode.INPUTS_TOO_LARGE)
    try:
        async with aclosing(request.stream()) as chunks:
            return await put_within_quota(service, chunks, expected, max_bytes, is_new=expected is None)
    except TooLargeError as error:
        detail = f"The inputs exceed {error.max_bytes} bytes."
        raise refuse(ErrorCode.INPUTS_TOO_LARGE, detail) from error
    except EmptyUploadError as error:
        raise refuse(ErrorCode.INPUTS_UNREADABLE, "The body is empty.") from error
    except ClientDisconnect as error:
        raise refuse(
            ErrorCode.UPLOAD_INCOMPLETE, "The connection closed before the body was complete."
        ) from error


def _needs(job: Compilation) -> Needs | None:
    """What a worker must have. A bundle that an earlier release published early has the request's target."""
    if job.target is not None:
        return needs_of_library(job.target)
    return needs_of(job.request.target)


def _require_able_worker(service: TenantService, job: Compilation) -> None:
    """Refuse a library that no live worker can run. Without live workers, it is queued."""
    needs = _needs(job)
    workers = service.live_workers()
    lacking = {worker.id: lacks(worker.capability, needs) for worker in workers}
    if workers and all(lacking.values()):
        lines = "; ".join(f"{worker} lacks {', '.join(names)}" for worker, names in lacking.items())
        detail = f"No live worker can run the library of compilation {job.id}: {lines}."
        raise refuse(ErrorCode.TARGET_NOT_RUNNABLE, detail)


def _submit(
    service: TenantService, invocation_id: JobId, job: Compilation, blob: Blob, runs: int, entry: str | None
) -> Invocation:
    needs = _needs(job)
    invocation = service.data.invocations.submit(
        invocation_id,
        job.id,
        blob.digest,
        blob.size_bytes,
        runs,
        None if needs is None else str(needs),
        current_traceparent(),
        entry,
    )
    if invocation is None:
        raise refuse(ErrorCode.NOT_FOUND, f"Compilation {job.id} was deleted.")
    if invocation.state is JobState.QUEUED:
        service.try_enqueue(service.data.invocations, invocation.id)
    return invocation


def _outputs(invocation: Invocation) -> Artifact:
    if invocation.artifact is None:
        detail = f"Invocation {invocation.id} is {invocation.state} and has no {OUTPUTS}."
        raise refuse(ErrorCode.NOT_FOUND, detail)
    return invocation.artifact
