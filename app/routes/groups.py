"""Groups: the compilations of requests with several targets."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import RedirectResponse

from app.comparison import compare
from app.http.accept import prefers_html
from app.http.polling import poll_later
from app.http.problems import refuse
from app.observability.log_fields import is_job_prefix
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, Responses, problems
from app.reports import read_report
from app.routes.lookup import hint, look_up
from app.service import ServiceDep, TenantService
from bessemer.contract.group import Comparison, Group, group_of
from bessemer.contract.job import JobState
from bessemer.contract.problem import ErrorCode
from bessemer.telemetry.logs import add_log_fields

router = APIRouter(prefix="/v1/groups", tags=["groups"])

COMPARISON_RESPONSE: Responses = {
    200: {
        "description": "The comparison.",
        "model": Comparison,
    },
    303: {"description": "`Accept` prefers HTML: `Location` is the comparison's page in the console."},
}


def _group(
    service: ServiceDep,
    group_id: Annotated[
        str,
        Path(
            alias="group",
            description="The group's id, or a unique prefix of at least 4 characters.",
            examples=[documentation.GROUP_ID],
        ),
    ],
) -> Group:
    found = None
    if is_job_prefix(group_id):
        find = partial(_find, service)
        found = look_up("group", group_id, find, service.data.jobs.groups_starting)
    if found is None:
        raise _not_found(group_id)
    add_log_fields(group=found.id)
    return found


def _find(service: TenantService, group_id: str) -> Group | None:
    jobs = service.data.jobs.group(group_id)
    return group_of(tuple(map(service.with_position, jobs))) if jobs else None


def _not_found(group_id: str) -> Exception:
    return refuse(ErrorCode.NOT_FOUND, f"Group '{group_id[:64]}' not found.{hint(group_id)}")


GroupDep = Annotated[Group, Depends(_group)]


@router.get(
    "/{group}",
    summary="Get a group",
    responses=documentation.answer(200, "The group.", documentation.GROUP) | problems(*LOOKUP),
)
def get_group(group: GroupDep) -> Group:
    """Return its state and its compilations, each with its own results."""
    return group


@router.get(
    "/{group}/report",
    summary="Compare the results of a group",
    response_class=Response,
    responses=COMPARISON_RESPONSE | problems(*LOOKUP),
)
def get_comparison(service: ServiceDep, request: Request, group: GroupDep) -> Response:
    """Compare the results target by target: how each was verified, latency, sizes and errors.

    A browser is sent to the console's page, if the app serves the console.
    """
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept"}
    if service.settings.console and prefers_html(request.headers.get("accept")):
        address = f"{request.scope.get('root_path', '')}/console/compare?group={group.id}"
        return RedirectResponse(address, 303, headers)
    found = ((job.id, read_report(service, job).report) for job in group.items)
    comparison = compare(group, {job_id: report for job_id, report in found if report is not None})
    return Response(comparison.model_dump_json(), headers=headers, media_type="application/json")


@router.post(
    "/{group}/cancel",
    status_code=202,
    summary="Cancel a group",
    responses=documentation.answer(
        200, "The compilations that had not ended are cancelled.", documentation.CANCELLED_GROUP
    )
    | documentation.answer(202, "Some are running and will stop.", documentation.RUNNING_GROUP)
    | problems(*LOOKUP, ErrorCode.STATE_CONFLICT),
)
def cancel_group(service: ServiceDep, response: Response, group: GroupDep) -> Group:
    """Cancel what has not ended: queued compilations at once, running ones within about a second."""
    going_on = [job.id for job in group.items if not job.state.final]
    if not going_on and group.state is not JobState.CANCELLED:
        raise refuse(ErrorCode.STATE_CONFLICT, f"Group {group.id} has already {group.state}.")
    for job_id in going_on:
        service.data.jobs.request_cancel(job_id)
    after = _find(service, group.id)
    if after is None:
        raise _not_found(group.id)
    if after.state.final:
        response.status_code = 200
    else:
        poll_later(response)
    return after


@router.delete(
    "/{group}",
    status_code=204,
    summary="Delete a group",
    responses=documentation.described(204, "The group is deleted.")
    | problems(*LOOKUP, ErrorCode.STATE_CONFLICT),
)
def delete_group(service: ServiceDep, group: GroupDep) -> None:
    """Delete all compilations of a group with what belongs to them, or none if one has not ended."""
    if not service.data.jobs.delete_group(group.id):
        raise _not_found(group.id)
