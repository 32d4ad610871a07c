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

KeepBest = Annotated[
    bool,
    Query(
        description="End the search, and deliver a library with the best schedules that it has found.",
        examples=[True],
    ),
]
router = APIRouter(prefix="/v1/compilations", tags=["compilations"], route_class=DocumentRoute)


@router.get(
    "",
    summary="List compilations, newest first",
    responses=documentation.answer(200, "A page of compilations.", documentation.PAGE)
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_compilations(service: ServiceDep, query: Annotated[CompilationQuery, Query()]) -> CompilationPage:
    """To get the next page, pass `next` as `cursor`. New compilations do not shift later pages."""
    page = service.data.jobs.page(query.limit, query.cursor, query)
    return page.model_copy(update={"items": tuple(map(service.with_position, page.items))})


@router.get(
    "/{id}",
    summary="Get a compilation",
    responses=documentation.answer(200, "The compilation.", documentation.COMPILATION) | problems(*LOOKUP),
)
def get_compilation(service: ServiceDep, job: CompilationDep) -> Compilation:
    """Return its state, results and artifacts."""
    return service.with_position(job)


@router.get(
    "/{id}/logs",
    summary="Get the log of a compilation",
    response_class=Response,
    responses=documentation.described(200, "The log as text.", {"text/plain": {"schema": {"type": "string"}}})
    | problems(*LOOKUP),
)
def get_logs(service: ServiceDep, request: Request, job: CompilationDep) -> Response:
    """Return the tail of the log while it runs, at most a second old, and the whole log after it ended.

    A cancelled compilation keeps only the tail.
    """
    if any(artifact.name == LOG for artifact in job.artifacts):
        return artifact_response(service, request, named_artifact(job, LOG), job.file_stem)
    return text_response(service.data.jobs.log_tail(job.id))


@router.delete(
    "/{id}",
    status_code=204,
    summary="Delete a compilation",
    responses=documentation.described(204, "The compilation is deleted.")
    | problems(*LOOKUP, ErrorCode.STATE_CONFLICT),
)
def delete_compilation(service: ServiceDep, job: CompilationDep) -> None:
    """Delete a finished compilation, its events, artifacts and invocations. Cancel a running one first."""
    if not service.data.jobs.delete(job.id):
        raise refuse(ErrorCode.NOT_FOUND, f"Compilation '{job.id}' not found.")


@router.post(
    "/{id}/cancel",
    status_code=202,
    summary="Cancel a compilation",
    responses=documentation.answer(200, "The compilation is cancelled.", documentation.CANCELLED)
    | documentation.answer(202, "The compilation is running and will stop.", documentation.RUNNING)
    | problems(*LOOKUP, ErrorCode.STATE_CONFLICT),
)
def cancel_compilation(
    service: ServiceDep, response: Response, job: CompilationDep, keep_best: KeepBest = False
) -> Compilation:
    """Cancel a compilation: at once if it is queued, within about a second if it is running.

    With `keep_best`, a search ends after the round that it measures, and the compilation goes on: its library
    has the best schedules so far, and is verified as always. With `verification: none`, this is refused.
    """
    if keep_best and not job.request.can_keep_best:
        detail = f"Compilation {job.id} runs no search that can end early: leave out `keep_best`."
        raise refuse(ErrorCode.STATE_CONFLICT, detail)
    jobs = service.data.jobs
    after = jobs.request_best(job.id) if keep_best else jobs.request_cancel(job.id)
    return cancellation(response, "compilation", job.id, after)
