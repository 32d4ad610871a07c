"""Compilations and their events."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from bessemer.contract.base import Digest, Document, JobId
from bessemer.contract.names import Name, file_stem
from bessemer.contract.problem import Problem
from bessemer.contract.queue import QueuePlace
from bessemer.contract.report import BaselineResult, Latency, StageTime, TuneVerdict
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget, target_name


class JobState(StrEnum):
    """Where a job is. The moves between states are in ``TRANSITIONS``."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the job stays in this state for good."""
        return not TRANSITIONS[self]


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.FAILED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


class EventType(StrEnum):
    """What an event tells. The data of each is described in ``docs/events.md``."""

    QUEUED = "queued"
    STARTED = "started"
    CONFINED = "confined"
    STAGE_STARTED = "stage-started"
    STAGE_FINISHED = "stage-finished"
    PROGRESS = "progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether no event can follow."""
        return self in (EventType.SUCCEEDED, EventType.FAILED, EventType.CANCELLED)


class Event(Document):
    """One entry of a job's history; ``seq`` counts from 1 without a gap."""

    seq: int = Field(description="The id of the server-sent event, for `Last-Event-ID`.")
    type: EventType = Field(description="After `succeeded`, `failed` or `cancelled` no event follows.")
    at: datetime = Field(description="When it was recorded, in UTC.")
    data: dict[str, Any] = Field(
        default_factory=dict, description="What belongs to the type, as docs/events.md has it."
    )


class Progress(Document):
    """How far a stage is: ``done`` of ``total`` in units of the stage (trials, for tuning)."""

    stage: Stage = Field(description="The stage that runs.")
    done: int = Field(
        description="Passes of `optimize`, trials of `tune`, functions of `build`, rounds of `benchmark`."
    )
    total: int = Field(
        description="Of the same; 0 where only time limits the stage. A stage may end earlier."
    )
    detail: str = Field(
        default="", description="What was done last, or is being done, for people; may be empty."
    )


LOG = "log.txt"
"""The artifact of what a job printed: the supervisor makes it."""


REFERENCE = "reference.npz"
"""The artifact with the arrays ``inputs/NAME`` and ``outputs/NAME``; bfloat16 as its bits in uint16."""


class Artifact(Document):
    """A file that a compilation made."""

    name: str = Field(description="Under which it is downloaded.")
    digest: Digest = Field(description="The SHA-256 of its bytes, and its `ETag`.")
    size_bytes: int = Field(description="Of the whole file.")
    media_type: str = Field(description="The `Content-Type` of the download.")


class ArtifactList(Document):
    """The files that a compilation made."""

    items: tuple[Artifact, ...] = Field(description="None while the compilation runs.")


class Figures(Document):
    """The most important figures."""

    latency: Latency = Field(description="Of the library, on the reference inputs.")
    unsteady: str = Field(default="", description="Why the latency is unreliable; empty where it was steady.")
    baselines: tuple[BaselineResult, ...] = Field(description="What it was timed beside, as requested.")
    library_bytes: int = Field(description="Of `model.so`; runtime and separate parameters come on top.")
    peak_memory_bytes: int = Field(description="The most that loading and running it adds to a process.")
    max_absolute_error: float = Field(
        description="The largest difference from the model in any element of any output."
    )
    tune: TuneVerdict | None = Field(
        default=None, description="How the search ended; null where none was asked for."
    )


class Compilation(Document):
    """A compilation as its user sees it."""

    id: JobId = Field(
        description="Unique; used again only where it was deleted and its `Idempotency-Key` is sent again."
    )
    name: Name | None = Field(
        default=None, description="The request's `name`, or else the model's; null if neither has one."
    )
    state: JobState = Field(description="`succeeded`, `failed` and `cancelled` are for good.")
    request: CompilationRequest = Field(description="What was asked for, every default filled in.")
    queue: QueuePlace | None = Field(
        default=None, description="Where it stands while it is queued; null from then on."
    )
    target: ResolvedTarget | None = Field(
        default=None, description="What the library was compiled for; null until it has succeeded."
    )
    stage: Stage | None = Field(
        default=None,
        description="The stage that runs, or ran last; of a compilation that succeeded: where it stopped. "
        "Null before the first.",
    )
    progress: Progress | None = Field(
        default=None,
        description="How far the stage that runs is; null where it does not say, and at the end.",
    )
    attempt: int = Field(default=0, description="How often a worker took it; 0 while it waits.")
    lost_attempts: int = Field(
        default=0,
        description="Attempts that ended without a word of their worker; after three the job fails.",
    )
    worker: str | None = Field(
        default=None, description="Who has it in hand, or had it last; null before, and once handed back."
    )
    sandbox: SandboxStatus | None = Field(
        default=None, description="The confinement in which it runs, or ran last; null before."
    )
    stages: tuple[StageTime, ...] = Field(default=(), description="Those that have ended well.")
    verified: bool | None = Field(
        default=None,
        description="True where every output lies within its tolerance of the model's; null until it has "
        "succeeded, and where it stopped before `verify`.",
    )
    figures: Figures | None = Field(
        default=None,
        description="Of what `benchmark` found; null until it has succeeded, and where it stopped before.",
    )
    problem: Problem | None = Field(default=None, description="Why it failed; null where it did not.")
    artifacts: tuple[Artifact, ...] = Field(default=(), description="What it made; none while it runs.")
    created_at: datetime = Field(description="When it was submitted.")
    started_at: datetime | None = Field(default=None, description="When a worker took it first; null before.")
    finished_at: datetime | None = Field(
        default=None, description="When it succeeded, failed or was cancelled; null before."
    )

    @property
    def file_stem(self) -> str | None:
        """The start of the names of its files: its name and its target; None if it has no name."""
        target = self.target.name if self.target else target_name(self.request.target)
        return None if self.name is None else file_stem(self.name, target)


class CompilationPage(Document):
    """A page of compilations, newest first."""

    items: tuple[Compilation, ...] = Field(description="As many as `limit` says; fewer at the end.")
    next: str | None = Field(
        default=None, description="Pass as `cursor` for the next page; null on the last."
    )
