"""Submitting, reading, listing and cancelling compilations."""

import hashlib
import uuid
from typing import Annotated

from fastapi import APIRouter, Body, Header, Query, Response

from app import documentation
from app.admission import refusal
from app.documentation import problems
from app.lookup import CompilationDep
from app.problems import ProblemError, refuse
from app.routes.bodies import DocumentRoute
from app.service import Service, ServiceDep
from bessemer.contract.base import DEFAULT_TENANT, JobId
from bessemer.contract.job import Compilation, CompilationPage, JobState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest

router = APIRouter(prefix="/v1/compilations", tags=["compilations"], route_class=DocumentRoute)

MAX_PAGE = 200
REQUEST_EXAMPLES = {
    "a preset": {
        "summary": "A preset, and a short search",
        "value": documentation.REQUEST.model_dump(mode="json", exclude_defaults=True),
    },
    "a processor": {
        "summary": "The compiler's own terms; a `.pt2` carries its inputs",
        "value": {"model": documentation.REQUEST.model, "target": {"mcpu": "znver4", "cores": 4}},
    },
    "a preflight": {
        "summary": "What would not compile, in seconds",
        "value": {"model": documentation.REQUEST.model, "target": "host", "stop_after": "translate"},
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
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="The same key and request give the same compilation, however often they are sent.",
    ),
]


@router.post(
    "",
    status_code=202,
    summary="Compile a model for a target",
    responses=documentation.answer(
        202, "The compilation is queued.", documentation.COMPILATION, "The compilation's address."
    )
    | problems(
        ErrorCode.REQUEST_INVALID,
        ErrorCode.MODEL_MISSING,
        ErrorCode.MODEL_NOT_RECOGNIZED,
        ErrorCode.INPUTS_MISSING,
        ErrorCode.INPUTS_MISMATCH,
        ErrorCode.IDEMPOTENCY_CONFLICT,
        ErrorCode.REQUEST_TOO_LARGE,
    ),
)
def submit_compilation(
    service: ServiceDep, response: Response, request: RequestBody, idempotency_key: IdempotencyKey = None
) -> Compilation:
    """Queue a compilation of an uploaded model; follow it under `Location`, or its `/events`.

    A model that inspection rejected is refused with the code that inspection gave it.
    """
    job_id = compilation_id(idempotency_key, DEFAULT_TENANT)
    if idempotency_key is None or service.store.jobs.get(job_id) is None:
        _require_admissible(service, request)
    job = service.store.jobs.submit(job_id, request, DEFAULT_TENANT)
    if job.state is JobState.QUEUED:
        service.try_enqueue_compilation(job_id)
    response.headers["Location"] = f"/v1/compilations/{job_id}"
    return job


@router.get(
    "",
    summary="List compilations, newest first",
    responses=documentation.answer(200, "A page of compilations.", documentation.PAGE)
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_compilations(
    service: ServiceDep,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="The most compilations of one page.")] = 50,
    cursor: Annotated[str | None, Query(max_length=512, description="`next` of the page before.")] = None,
    state: Annotated[JobState | None, Query(description="Only compilations in this state.")] = None,
) -> CompilationPage:
    """Pass a page's `next` as `cursor` to read on; compilations that arrive meanwhile disturb nothing."""
    return service.store.jobs.page(limit, cursor, state)


@router.get(
    "/{id}",
    summary="Read a compilation",
    responses=documentation.answer(200, "The compilation.", documentation.COMPILATION)
    | problems(ErrorCode.NOT_FOUND, ErrorCode.REQUEST_INVALID),
)
async def get_compilation(job: CompilationDep) -> Compilation:
    """Where it is, what it found, and what it made."""
    return job


@router.post(
    "/{id}/cancel",
    status_code=202,
    summary="Cancel a compilation",
    responses=documentation.answer(200, "It is cancelled.", documentation.COMPILATION)
    | documentation.answer(202, "It runs, and was asked to stop.", documentation.COMPILATION)
    | problems(ErrorCode.NOT_FOUND, ErrorCode.REQUEST_INVALID, ErrorCode.STATE_CONFLICT),
)
def cancel_compilation(service: ServiceDep, response: Response, job: CompilationDep) -> Compilation:
    """A queued compilation is cancelled at once, a running one within a second or so."""
    after = service.store.jobs.request_cancel(job.id)
    if after is None:
        raise refuse(ErrorCode.NOT_FOUND, f"There is no compilation '{job.id}'.")
    if after.state in (JobState.SUCCEEDED, JobState.FAILED):
        raise refuse(ErrorCode.STATE_CONFLICT, f"Compilation {job.id} has {after.state} already.")
    response.status_code = 200 if after.state is JobState.CANCELLED else 202
    return after


def compilation_id(idempotency_key: str | None, tenant: str) -> JobId:
    """The id of a job: the same for the same tenant and key, a new one without a key."""
    if idempotency_key is None:
        return uuid.uuid4().hex
    return hashlib.sha256(f"{tenant}\0{idempotency_key}".encode()).hexdigest()[:32]


def _require_admissible(service: Service, request: CompilationRequest) -> None:
    problem = refusal(request, service.store.models.get(request.model))
    if problem is not None:
        raise ProblemError(problem)
