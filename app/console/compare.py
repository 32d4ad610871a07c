"""Compilations side by side, and the page to choose them on."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.console.differences import (
    Compared,
    figure_rows,
    function_table,
    gate_outcome,
    headings,
    is_judged,
    latency_bars,
    pass_table,
    reasons,
    request_table,
    same_reference,
)
from app.console.filters import given
from app.console.rendering import page
from app.console.words import clip
from app.http.problems import RefusalError, invalid_problem, refuse
from app.observability.log_fields import is_job_prefix
from app.reports import read_report
from app.routes.lookup import find_compilation, look_up
from app.service import ServiceDep, TenantService
from bessemer.contract.job import REFERENCE, Compilation, JobState
from bessemer.contract.listing import CompilationFilter
from bessemer.contract.names import shown_labels
from bessemer.contract.problem import ErrorCode, FieldError
from bessemer.contract.request import MAX_TARGETS

MOST = MAX_TARGETS
OFFERED = 60
"""The newest compilations that the page offers."""
router = APIRouter(include_in_schema=False)


@router.get("/console/compare")
def show_comparison(
    request: Request,
    service: ServiceDep,
    ids: Annotated[list[str], Query(alias="id")] = [],  # noqa: B006
    group: str | None = None,
    oldest_first: bool = False,
) -> Response:
    """Compare the compilations that the query names, or those of a group; with fewer than two, offer some."""
    jobs = _of_group(service, group) if group else _named(service, ids)
    if oldest_first:  # lists have the newest first, but a comparison begins with the older one
        jobs = tuple(sorted(jobs, key=lambda job: job.created_at))
    if len(jobs) < 2 and not (group and jobs):
        return _offer(request, service, jobs, was_submitted=oldest_first)
    columns = [Compared(job, read_report(service, job).report) for job in jobs]
    base, *others = columns
    verdicts = [(column, outcome) for column in others if (outcome := gate_outcome(column, base)) is not None]
    return page(
        request,
        "compare.html.j2",
        columns=columns,
        headings=headings(columns),
        query="&".join(f"id={column.job.id}" for column in columns),
        first_queries=[_query(columns, column) for column in columns],
        has_ended=all(job.state.final for job in jobs),
        bars=latency_bars(columns),
        figures=figure_rows(columns),
        functions=function_table(columns),
        passes=pass_table(columns),
        requests=request_table(columns),
        same_reference=same_reference(columns, REFERENCE),
        verdicts=[(column, outcome, reasons(outcome), is_judged(outcome)) for column, outcome in verdicts],
        group=group,
        clip=clip,
    )


def _named(service: TenantService, ids: Sequence[str]) -> tuple[Compilation, ...]:
    wanted = list(dict.fromkeys(each.strip() for each in ids if each.strip()))
    if len(wanted) > MOST:
        problem = FieldError(field="id", message=f"expected {MOST} compilations at most")
        raise RefusalError(invalid_problem((problem,)))
    found = {job.id: job for job in (find_compilation(service, each) for each in wanted)}
    return tuple(map(service.with_position, found.values()))


def _of_group(service: TenantService, group: str) -> tuple[Compilation, ...]:
    jobs = service.data.jobs
    found = (
        look_up("group", group, lambda one: jobs.group(one) or None, jobs.groups_starting)
        if is_job_prefix(group)
        else None
    )
    if found is None:
        raise refuse(ErrorCode.NOT_FOUND, f"Group '{group[:64]}' not found.")
    return tuple(map(service.with_position, found))


def _query(columns: Sequence[Compared], first: Compared) -> str:
    """The query with another compilation as the first."""
    rest = (column for column in columns if column is not first)
    return "&".join(f"id={column.job.id}" for column in (first, *rest))


def _offer(
    request: Request, service: TenantService, chosen: tuple[Compilation, ...], was_submitted: bool
) -> Response:
    wanted = given(request, CompilationFilter)
    found = service.data.jobs.page(OFFERED, None, wanted)
    others = tuple(job for job in found.items if job.id not in {each.id for each in chosen})
    return page(
        request,
        "compare_choose.html.j2",
        chosen=chosen,
        was_submitted=was_submitted,
        others=others,
        wanted=wanted,
        labels=shown_labels,
        states=tuple(JobState),
        most=MOST,
    )
