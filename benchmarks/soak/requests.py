"""Requests of the soak's users, and what they observe."""

from dataclasses import dataclass
from enum import StrEnum

from bessemer.contract.job import Event
from bessemer.contract.problem import ErrorCode


class RequestKind(StrEnum):
    """A kind of request."""

    COMPILE = "compile"
    TUNE = "tune"
    PREFLIGHT = "preflight"
    CANCEL = "cancel"
    INVOKE = "invoke"


@dataclass(frozen=True)
class Followed:
    """A job that a user followed to its end, with its events.

    Attributes:
        cancel_seconds: from a cancel's answer until the job's processes were gone, if it was running.
    """

    job_id: str
    wish: RequestKind
    events: tuple[Event, ...]
    failure: ErrorCode | None = None
    cancel_seconds: float | None = None
