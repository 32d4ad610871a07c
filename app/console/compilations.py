"""The list of compilations, and the page of one."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from app.console.rendering import page
from app.routes.compilations import cancel_compilation, list_compilations
from app.routes.lookup import CompilationDep
from app.service import ServiceDep
from bessemer.contract.job import JobState
from bessemer.contract.listing import CompilationQuery
from bessemer.contract.stage import Stage

PREFIX = "/console/compilations"
router = APIRouter(prefix=PREFIX, include_in_schema=False)


@router.get("")
def show_compilations(
    request: Request, service: ServiceDep, query: Annotated[CompilationQuery, Query()]
) -> Response:
    """A page of compilations, newest first."""
    found = list_compilations(service, query)
    template = "compilation_rows.html.j2" if "hx-request" in request.headers else "compilations.html.j2"
    return page(request, template, found=found, query=query, states=tuple(JobState))


@router.get("/{id}")
def show_compilation(request: Request, service: ServiceDep, job: CompilationDep) -> Response:
    """One compilation; a browser with scripts fetches the part that changes again at each event."""
    template = "compilation_live.html.j2" if "hx-request" in request.headers else "compilation.html.j2"
    return page(request, template, job=service.with_position(job), stages=tuple(Stage))


@router.post("/{id}/cancel")
def cancel(request: Request, response: Response, service: ServiceDep, job: CompilationDep) -> Response:
    """Cancel it, and go back to its page."""
    cancel_compilation(service, response, job)
    return RedirectResponse(f"{request.scope.get('root_path', '')}{PREFIX}/{job.id}", 303)
