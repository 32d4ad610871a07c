"""The list of models, and a model's page with its history, by digest and by name."""

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response

from app.console.filters import given, next_page
from app.console.history import MOST_POINTS, history
from app.console.rendering import page
from app.http.problems import refuse
from app.reports import read_report
from app.routes.lookup import look_up
from app.service import ServiceDep, TenantService
from bessemer.contract.base import DigestPrefix
from bessemer.contract.job import Compilation
from bessemer.contract.listing import MAX_PAGE, CompilationFilter, ModelQuery
from bessemer.contract.model import Model, ModelFormat, ModelState
from bessemer.contract.names import Name
from bessemer.contract.problem import ErrorCode

MOST_COMPILATIONS = 20
"""The newest compilations in a model's table; its chart has more."""
router = APIRouter(prefix="/console/models", include_in_schema=False)


@router.get("")
def show_models(request: Request, service: ServiceDep) -> Response:
    """A page of models, newest first."""
    query = given(request, ModelQuery)
    found = service.data.models.page(query.limit, query.cursor, query)
    return page(
        request,
        "models.html.j2",
        found=found,
        query=query,
        next=next_page(request, found.next),
        states=tuple(ModelState),
        formats=tuple(ModelFormat),
    )


@router.get("/named")
def show_named(request: Request, service: ServiceDep, name: Name) -> Response:
    """The history of all models with a name: the model of each commit has another digest."""
    found = service.data.models.page(1, None, ModelQuery(name=name)).items
    return _history(request, service, CompilationFilter(name=name), name, next(iter(found), None))


@router.get("/{digest}")
def show_model(request: Request, service: ServiceDep, digest: DigestPrefix) -> Response:
    """A model and its history."""
    models = service.data.models
    model = look_up("model", digest, models.get, models.starting)
    if model is None:
        raise refuse(ErrorCode.NOT_FOUND, f"Model '{digest[:64]}' not found.")
    return _history(request, service, CompilationFilter(model=model.digest), None, model)


def _history(
    request: Request, service: TenantService, wanted: CompilationFilter, name: str | None, model: Model | None
) -> Response:
    jobs = tuple(_newest(service, wanted))
    root = request.scope.get("root_path", "")
    series = history(jobs, lambda job: read_report(service, job).report)
    return page(
        request,
        "model.html.j2",
        name=name,
        model=model,
        jobs=jobs,
        newest=jobs[:MOST_COMPILATIONS],
        is_all=len(jobs) < MOST_POINTS,
        has_history=model is not None and any(job.name == model.name for job in jobs if job.name),
        series=[
            (each, drawn)
            for each in series
            if (drawn := each.chart(lambda job: f"{root}/console/compilations/{job.id}"))
        ],
    )


def _newest(service: TenantService, wanted: CompilationFilter) -> Iterator[Compilation]:
    cursor, left = None, MOST_POINTS
    while left > 0:
        found = service.data.jobs.page(min(MAX_PAGE, left), cursor, wanted)
        yield from found.items
        cursor, left = found.next, left - len(found.items)
        if cursor is None:
            return
