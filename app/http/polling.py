"""How a client is told to look again, at what goes on."""

from typing import TypeVar

from fastapi import Response

from app.http.problems import refuse
from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import ErrorCode

RETRY_AFTER_SECONDS = 1

Cancelled = TypeVar("Cancelled", Compilation, Invocation)


def look_again(response: Response) -> None:
    """Say when another look may show something new."""
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)


def cancellation(response: Response, kind: str, name: str, after: Cancelled | None) -> Cancelled:
    """The answer to a request to cancel: 200 where that is done, or else the route's own 202.

    Args:
        response: of the route.
        kind: ``compilation`` or ``invocation``.
        name: the id of the one that was to be cancelled.
        after: its document after the request; None where it is gone.

    Raises:
        RefusalError: it is gone, or has ended in another way.
    """
    if after is None:
        raise refuse(ErrorCode.NOT_FOUND, f"There is no {kind} '{name}'.")
    if after.state in (JobState.SUCCEEDED, JobState.FAILED):
        raise refuse(ErrorCode.STATE_CONFLICT, f"{kind.capitalize()} {name} has {after.state} already.")
    if after.state is JobState.CANCELLED:
        response.status_code = 200
    else:
        look_again(response)
    return after
