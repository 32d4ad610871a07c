"""What users of a soak ask for, and what they see."""

from dataclasses import dataclass
from enum import StrEnum

from bessemer.contract.job import Event
from bessemer.contract.problem import ErrorCode


class Wish(StrEnum):
    """What a user asks for."""

    COMPILE = "compile"
    TUNE = "tune"
    PREFLIGHT = "preflight"
    CANCEL = "cancel"
    INVOKE = "invoke"


@dataclass(frozen=True)
class Followed:
    """A job that a user has followed to its end: every event, as it came.

    Attributes:
        cancel_seconds: from the answer to a cancel until the job's processes were gone, where it ran then.
    """

    job_id: str
    wish: Wish
    events: tuple[Event, ...]
    failure: ErrorCode | None = None
    cancel_seconds: float | None = None
