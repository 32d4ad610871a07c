"""Responses for resources in progress: when to poll, and cancellation."""

from typing import TypeVar

from fastapi import Response

from app.http.problems import refuse
from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import ErrorCode

RETRY_AFTER_SECONDS = 1

Cancelled = TypeVar("Cancelled", Compilation, Invocation)


def poll_later(response: Response) -> None:
    """Tell the client when to poll again."""
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)


def cancellation(response: Response, kind: str, name: str, after: Cancelled | None) -> Cancelled:
    """The response to a cancellation: 200 if it is cancelled, otherwise the route's 202.

    Args:
        response: the route's response.
        kind: ``compilation`` or ``invocation``.
        name: its id.
        after: its document after the request; None if it was deleted.

    Raises:
        RefusalError: it was deleted, or has ended in another state.
    """
    if after is None:
        raise refuse(ErrorCode.NOT_FOUND, f"{kind.capitalize()} '{name}' not found.")
    if after.state in (JobState.SUCCEEDED, JobState.FAILED):
        raise refuse(ErrorCode.STATE_CONFLICT, f"{kind.capitalize()} {name} has already {after.state}.")
    if after.state is JobState.CANCELLED:
        response.status_code = 200
    else:
        poll_later(response)
    return after
