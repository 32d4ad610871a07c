"""Reading, listing and cancelling compilations."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.http.bodies import DocumentRoute
from app.http.downloads import artifact_response, text_response
from app.http.polling import cancellation
from app.http.problems import refuse
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, problems
from app.routes.lookup import CompilationDep, named_artifact
from app.service import ServiceDep
from bessemer.contract.job import LOG, Compilation, CompilationPage
from bessemer.contract.listing import CompilationQuery
from bessemer.contract.problem import ErrorCode

router = APIRouter(prefix="/v1/compilations", tags=["compilations"], route_class=DocumentRoute)


@router.get(
    "",
    summary="List compilations, newest first",
    responses=documentation.answer(200, "A page of compilations.", documentation.PAGE)
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_compilations(service: ServiceDep, query: Annotated[CompilationQuery, Query()]) -> CompilationPage:
    """Pass a page's `next` as `cursor` to read on; compilations that arrive meanwhile disturb nothing."""
    page = service.store.jobs.page(query.limit, query.cursor, query)
    return page.model_copy(update={"items": tuple(map(service.queue_positions.with_position, page.items))})


@router.get(
    "/{id}",
    summary="Read a compilation",
    responses=documentation.answer(200, "The compilation.", documentation.COMPILATION) | problems(*LOOKUP),
)
def get_compilation(service: ServiceDep, job: CompilationDep) -> Compilation:
    """Where it is, what it found, and what it made."""
    return service.queue_positions.with_position(job)


@router.get(
    "/{id}/logs",
    summary="Read what a compilation printed",
    response_class=Response,
    responses=documentation.described(
        200, "The log, as text.", {"text/plain": {"schema": {"type": "string"}}}
    )
    | problems(*LOOKUP),
)
def get_logs(service: ServiceDep, request: Request, job: CompilationDep) -> Response:
    """The end of it while it runs, a second late at most; the whole once it has ended.

    Of a compilation that was cancelled, the end is all that is kept.
    """
    if any(artifact.name == LOG for artifact in job.artifacts):
        return artifact_response(service, request, named_artifact(job, LOG), job.file_stem)
    return text_response(service.store.logs.read(job.id))


@router.delete(
    "/{id}",
    status_code=204,
    summary="Delete a compilation",
    responses=documentation.described(204, "It is deleted.") | problems(*LOOKUP, ErrorCode.STATE_CONFLICT),
)
def delete_compilation(service: ServiceDep, job: CompilationDep) -> None:
    """With its events, artifacts and invocations, once it has ended; cancel it first where it has not."""
    if not service.store.removal.delete_job(job.id):
        raise refuse(ErrorCode.NOT_FOUND, f"There is no compilation '{job.id}'.")


@router.post(
    "/{id}/cancel",
    status_code=202,
    summary="Cancel a compilation",
    responses=documentation.answer(200, "It is cancelled.", documentation.CANCELLED)
    | documentation.answer(202, "It runs, and was asked to stop.", documentation.RUNNING)
    | problems(*LOOKUP, ErrorCode.STATE_CONFLICT),
)
def cancel_compilation(service: ServiceDep, response: Response, job: CompilationDep) -> Compilation:
    """A queued compilation is cancelled at once, a running one within a second or so."""
    after = service.store.jobs.request_cancel(job.id)
    return cancellation(response, "compilation", job.id, after)
