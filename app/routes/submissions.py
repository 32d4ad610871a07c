"""Submitting compilations."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Response

from app.admission import (
    device_refusal,
    extensions_refusal,
    gpu_refusal,
    missing_extension,
    missing_model,
    offers_refusal,
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
from bessemer.contract.base import Digest, JobId
from bessemer.contract.device import platforms_of
from bessemer.contract.group import Group, group_of
from bessemer.contract.identity import identity_of
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.contract.queue import QUEUES, job_kind
from bessemer.contract.request import CompilationRequest, Submission
from bessemer.contract.service import takers_of
from bessemer.contract.target import gpus_of
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
    "a GPU": {
        "summary": "An NVIDIA GPU; without a worker that has one, only unverified",
        "value": {
            "model": documentation.REQUEST.model,
            "target": {"kind": "cuda", "arch": "sm_90"},
            "verification": "none",
        },
    },
    "several targets": {
        "summary": "A group: a compilation for each of several targets",
        "value": {"model": documentation.REQUEST.model, "target": ["host", "aarch64", "riscv64"]},
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
RequestBody = Annotated[Submission, Body(openapi_examples=REQUEST_EXAMPLES)]


@router.post(
    "",
    status_code=202,
    summary="Compile a model for one target or several",
    responses=documentation.one_of(
        200,
        "Earlier compilations of identical requests answered it.",
        {"one target": documentation.CACHED, "several targets": documentation.CACHED_GROUP},
        "The URL of the compilation or the group.",
        Compilation | Group,
    )
    | documentation.one_of(
        202,
        "The compilation is queued, or those of the group are.",
        {"one target": documentation.COMPILATION, "several targets": documentation.GROUP},
        "The URL of the compilation or the group.",
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
        ErrorCode.REWRITE_UNKNOWN,
        ErrorCode.KERNEL_UNKNOWN,
        ErrorCode.SPACE_UNKNOWN,
        ErrorCode.STRATEGY_UNKNOWN,
        ErrorCode.IDEMPOTENCY_CONFLICT,
        ErrorCode.REQUEST_TOO_LARGE,
    ),
    openapi_extra=FORM,
)
def submit_compilation(
    service: ServiceDep, response: Response, request: RequestBody, idempotency_key: IdempotencyKey = None
) -> Compilation | Group:
    """Queue a compilation of an uploaded model. Poll it at `Location`, or follow its `/events`.

    If `target` is a list, the answer is a group, with a compilation for each target: all are queued, or none
    is. One that fails does not affect the others.

    A request for a rejected model fails with the code of the model's inspection. A form can include the
    model and the extensions, which saves separate uploads. An identical request that a compilation of your
    tenant has answered before is answered at once with its results (`cached`), unless `cache` is false.
    """
    new_id = resource_id(service.id_secret, idempotency_key, service.data.tenant)
    if isinstance(request.target, tuple):
        add_log_fields(group=new_id, model=request.model)
        response.headers["Location"] = f"/v1/groups/{new_id}"
        group = _submit_group(service, new_id, request, idempotency_key)
        _answer_at_once_or_later(response, group.items)
        return group
    add_log_fields(job=new_id, model=request.model)
    response.headers["Location"] = f"/v1/compilations/{new_id}"
    job = _submit_one(service, new_id, request, idempotency_key)
    _answer_at_once_or_later(response, (job,))
    return job


def _answer_at_once_or_later(response: Response, jobs: Sequence[Compilation]) -> None:
    if all(job.cached for job in jobs):
        response.status_code = 200
    else:
        poll_later(response)


def _submit_one(service: TenantService, job_id: JobId, request: Submission, key: str | None) -> Compilation:
    jobs = service.data.jobs
    if key is None or jobs.get(job_id) is None:
        _require_admissible(service, request)
    (wanted,) = request.for_each_target()
    job = jobs.submit(job_id, wanted, current_traceparent(), _identities(service, wanted))
    _enqueue(service, request, (job,))
    return service.with_position(job)


def _submit_group(service: TenantService, group: JobId, request: Submission, key: str | None) -> Group:
    data = service.data
    wanted = request.for_each_target()
    missing = len(wanted) - (0 if key is None else len(data.jobs.group(group)))
    if missing > 0:
        _require_admissible(service, request, missing)
    ids = [
        resource_id(service.id_secret, key, data.tenant, "target", str(index)) for index in range(len(wanted))
    ]
    requests = dict(zip(ids, wanted, strict=True))
    identities = {job_id: _identities(service, each) for job_id, each in requests.items()}
    jobs = data.jobs.submit_group(group, requests, current_traceparent(), identities)
    _enqueue(service, request, jobs)
    return group_of(tuple(map(service.with_position, jobs)))


def _enqueue(service: TenantService, request: Submission, jobs: Sequence[Compilation]) -> None:
    """Enqueue the queued jobs of a request, and mark its uploads as used."""
    queued = [job for job in jobs if job.state is JobState.QUEUED]
    problems_found = _touch_uploads(service, request)
    for problem in problems_found if queued else ():
        for job in queued:
            service.data.jobs.withdraw(job.id)
        raise RefusalError(problem)
    for job in queued:
        service.try_enqueue(service.data.jobs, job.id)


def _touch_uploads(service: TenantService, request: Submission) -> tuple[Problem, ...]:
    """Mark a request's uploads as used; returns a problem for each that was deleted since the check."""
    data = service.data
    models = [missing_model(digest) for digest in request.models if not data.models.touch(digest)]
    extensions = [
        missing_extension(digest) for digest in request.uploads if not data.extensions.touch(digest)
    ]
    return (*models, *extensions)


def _require_admissible(service: TenantService, request: Submission, jobs: int = 1) -> None:
    """Refuse a request that cannot be accepted."""
    require_room(service, QUEUED, WORKER, STORED, more_jobs=jobs)
    models = {digest: service.data.models.get(digest) for digest in request.models}
    extensions = {digest: service.data.extensions.get(digest) for digest in request.uploads}
    problem = (
        refusal(request, models[request.model], models)
        or extensions_refusal(extensions)
        or priority_refusal(request.priority, service.quota.highest_priority)
    )
    workers = service.live_workers() if problem is None else ()
    if problem is None:
        problem = offers_refusal(request, workers)
    if problem is None and request.tune.seconds is not None and request.searches:
        problem = time_refusal(request.tune.seconds, workers)
    if problem is None and any(map(gpus_of, request.targets)):
        on_devices = platforms_of(service.data.devices.live())
        problem = gpu_refusal(request.targets, request.is_verified, workers, on_devices)
    if problem is None and request.device is not None:
        problem = device_refusal(request.device, service.data.devices.names())
    if problem is not None:
        raise RefusalError(problem)


def _identities(service: TenantService, request: CompilationRequest) -> frozenset[Digest]:
    """The identities of the results that live workers would produce; none if the request skips the cache."""
    if not request.cache:
        return frozenset()
    uploads = {digest: service.data.extensions.get(digest) for digest in request.uploads}
    names = {digest: None if upload is None else upload.name for digest, upload in uploads.items()}
    takers = takers_of(request.needs, QUEUES[job_kind(request)], service.live_workers())
    kinds = {kind for worker in takers if (kind := worker.kind) is not None}
    return frozenset(identity_of(request, names, kind) for kind in kinds)
