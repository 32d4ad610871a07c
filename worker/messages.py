"""What a job's child says to the supervisor: JSON lines of at most ``MAX_LINE_BYTES``.

The supervisor reads them as hostile input: a line that is no message ends the job.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from bessemer.contract.base import Document
from bessemer.contract.job import Figures
from bessemer.contract.model import Inspection
from bessemer.contract.problem import Problem
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget

MAX_LINE_BYTES = 1 << 18


class Confined(Document):
    """Sent once, before the upload is opened."""

    kind: Literal["confined"] = "confined"
    sandbox: SandboxStatus
    seconds: float


class StageStarted(Document):
    """A stage begins."""

    kind: Literal["stage-started"] = "stage-started"
    stage: Stage


class StageFinished(Document):
    """A stage has ended well."""

    kind: Literal["stage-finished"] = "stage-finished"
    stage: Stage
    seconds: float


class ProgressMade(Document):
    """A stage got on: ``done`` of ``total`` in the stage's own unit."""

    kind: Literal["progress"] = "progress"
    stage: Stage
    done: int
    total: int
    detail: str = Field(default="", max_length=400)


class Failed(Document):
    """The job ended with a problem. Last message."""

    kind: Literal["failed"] = "failed"
    problem: Problem


class Inspected(Document):
    """An inspection ended well. Last message."""

    kind: Literal["inspected"] = "inspected"
    inspection: Inspection


class Compiled(Document):
    """A compilation ended well; its files lie in the job's ``output`` folder. Last message."""

    kind: Literal["compiled"] = "compiled"
    target: ResolvedTarget
    verified: bool
    figures: Figures
    files: tuple[str, ...] = Field(max_length=64)


Message = Annotated[
    Confined | StageStarted | StageFinished | ProgressMade | Failed | Inspected | Compiled,
    Field(discriminator="kind"),
]
MESSAGES: TypeAdapter[Message] = TypeAdapter(Message)
