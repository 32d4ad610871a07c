"""Submitting compilations."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Response

from app.admission import (
    extensions_refusal,
    missing_extension,
    missing_model,
    priority_refusal,
    refusal,
    time_refusal,
)
from app.http.forms import FORM, SubmissionRoute
from app.http.idempotency import IdempotencyKey, resource_id
from app.http.polling import poll_later
from app.http.problems import RefusalError
from app.openapi import document as documentation
from app.openapi.document import problems
from app.quotas import QUEUED, STORED, WORKER, require_room
from app.service import ServiceDep, TenantService
from bessemer.contract.base import Digest
from bessemer.contract.extension import Extension
from bessemer.contract.identity import identity_of
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.contract.queue import QUEUES, job_kind
from bessemer.contract.request import CompilationRequest
from bessemer.contract.service import Worker, takers_of
from bessemer.telemetry.logs import add_log_fields
from bessemer.telemetry.traces import current_traceparent

router = APIRouter(prefix="/v1/compilations", tags=["compilations"], route_class=SubmissionRoute)

REQUEST_EXAMPLES = {
    "a preset": {
        "summary": "A preset, and a short search",
        "value": documentation.REQUEST.model_dump(mode="json", exclude_defaults=True),
    },
    "a processor": {
        "summary": "LLVM's name of a processor; a `.pt2` file contains its inputs",
        "value": {"model": documentation.REQUEST.model, "target": "skylake-avx512"},
    },
    "a processor in the compiler's own terms": {
        "summary": "A processor with its cores",
        "value": {"model": documentation.REQUEST.model, "target": {"mcpu": "znver4", "cores": 4}},
    },
    "a preflight": {
        "summary": "Check in seconds whether a model compiles",
        "value": {"model": documentation.REQUEST.model, "target": "host", "stop_after": "translate"},
    },
    "several models": {
        "summary": "One library with an entry point for each of two models",
        "value": {
            "model": documentation.REQUEST.model,
            "target": "host",
            "entries": {"prefill": {}, "decode": {"model": documentation.OTHER_DIGEST}},
        },
    },
    "looking inside": {
        "summary": "Each operator as a tensor expression, and the module after every pass",
        "value": {
            "model": documentation.REQUEST.model,
            "target": "host",
            "translate": {"level": "tensor_expressions"},
            "inspect": {"ir": True, "assembly": True},
        },
    },
}
RequestBody = Annotated[CompilationRequest, Body(openapi_examples=REQUEST_EXAMPLES)]


@router.post(
    "",
    status_code=202,
    summary="Compile a model for a target",
    responses=documentation.answer(
        200, "An earlier compilation of an identical request answered it.", documentation.CACHED
    )
    | documentation.answer(
        202, "The compilation is queued.", documentation.COMPILATION, "The URL of the compilation."
    )
    | problems(
        ErrorCode.REQUEST_INVALID,
        ErrorCode.TARGET_UNSUPPORTED,
        ErrorCode.UPLOAD_INCOMPLETE,
        ErrorCode.MODEL_TOO_LARGE,
        ErrorCode.MODEL_EMPTY,
        ErrorCode.DIGEST_MISMATCH,
        ErrorCode.MODEL_MISSING,
        ErrorCode.EXTENSION_MISSING,
        ErrorCode.EXTENSION_TOO_LARGE,
        ErrorCode.EXTENSION_INVALID,
        ErrorCode.MODEL_NOT_RECOGNIZED,
        ErrorCode.INPUTS_MISSING,
        ErrorCode.CONSTANTS_MISSING,
        ErrorCode.INPUTS_MISMATCH,
        ErrorCode.IDEMPOTENCY_CONFLICT,
        ErrorCode.REQUEST_TOO_LARGE,
    ),
    openapi_extra=FORM,
)
def submit_compilation(
    service: ServiceDep, response: Response, request: RequestBody, idempotency_key: IdempotencyKey = None
) -> Compilation:
    """Queue a compilation of an uploaded model. Poll it at `Location`, or follow its `/events`.

    A request for a rejected model fails with the code of the model's inspection. A form can include the
    model and the extensions, which saves separate uploads. An identical request that a compilation of your
    tenant has answered before is answered at once with its results (`cached`), unless `cache` is false.
    """
    job_id = resource_id(service.id_secret, idempotency_key, service.data.tenant)
    add_log_fields(job=job_id, model=request.model)
    identities: frozenset[Digest] = frozenset()
    if idempotency_key is None or service.data.jobs.get(job_id) is None:
        identities = _require_admissible(service, request)
    job = service.data.jobs.submit(job_id, request, current_traceparent(), identities)
    response.headers["Location"] = f"/v1/compilations/{job_id}"
    if job.cached:
        _touch_uploads(service, job)
        response.status_code = 200
        return job
    if job.state is JobState.QUEUED:
        _require_uploads(service, job)
        service.try_enqueue(service.data.jobs, job_id)
    poll_later(response)
    return service.with_position(job)


def _require_uploads(service: TenantService, job: Compilation) -> None:
    """Withdraw a job whose uploads were deleted since the check; from here on, the job protects them."""
    for problem in _touch_uploads(service, job):
        service.data.jobs.withdraw(job.id)
        raise RefusalError(problem)


def _touch_uploads(service: TenantService, job: Compilation) -> tuple[Problem, ...]:
    """Note that a job's uploads are used; the problems of those that are missing."""
    data, request = service.data, job.request
    models = [missing_model(digest) for digest in request.models if not data.models.touch(digest)]
    extensions = [
        missing_extension(digest) for digest in request.uploads if not data.extensions.touch(digest)
    ]
    return (*models, *extensions)


def _require_admissible(service: TenantService, request: CompilationRequest) -> frozenset[Digest]:
    """Refuse a request that cannot be accepted; return the results that would answer it."""
    require_room(service, QUEUED, WORKER, STORED)
    models = {digest: service.data.models.get(digest) for digest in request.models}
    extensions = {digest: service.data.extensions.get(digest) for digest in request.uploads}
    problem = (
        refusal(request, models[request.model], models)
        or extensions_refusal(extensions)
        or priority_refusal(request.priority, service.quota.highest_priority)
    )
    if problem is None and request.tune.seconds is not None and request.searches:
        workers = service.live_workers()
        problem = time_refusal(request.tune.seconds, workers)
    if problem is not None:
        raise RefusalError(problem)
    return _identities(request, extensions, service.live_workers()) if request.cache else frozenset()


def _identities(
    request: CompilationRequest, uploads: Mapping[Digest, Extension | None], workers: Sequence[Worker]
) -> frozenset[Digest]:
    """The identities of the results that the live workers would make."""
    names = {digest: None if upload is None else upload.name for digest, upload in uploads.items()}
    takers = takers_of(request.needs, QUEUES[job_kind(request)], workers)
    kinds = {kind for worker in takers if (kind := worker.kind) is not None}
    return frozenset(identity_of(request, names, kind) for kind in kinds)
