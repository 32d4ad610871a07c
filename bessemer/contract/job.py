"""Compilations and their events."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from bessemer.contract.base import Digest, Document, GrowingEnum, JobId
from bessemer.contract.dynamic import MAX_DIMENSIONS
from bessemer.contract.names import Name, file_stem
from bessemer.contract.problem import Problem
from bessemer.contract.queue import QueuePlace
from bessemer.contract.report import (
    BaselineResult,
    BuiltFunctions,
    Latency,
    ModelEstimate,
    PeerVerdict,
    StageTime,
    TuneVerdict,
)
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget, target_name


class JobState(GrowingEnum):
    """The state of a job. ``TRANSITIONS`` has the moves between states."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the job can no longer change its state."""
        return self in TRANSITIONS and not TRANSITIONS[self]


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.FAILED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


class EventType(GrowingEnum):
    """The type of an event. ``docs/events.md`` describes the data of each."""

    QUEUED = "queued"
    STARTED = "started"
    CONFINED = "confined"
    STAGE_STARTED = "stage-started"
    STAGE_FINISHED = "stage-finished"
    PROGRESS = "progress"
    PUBLISHED = "published"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether this is the last event of a job."""
        return self in (EventType.SUCCEEDED, EventType.FAILED, EventType.CANCELLED)


class Event(Document):
    """One entry of a job's history; ``seq`` counts from 1 without gaps."""

    seq: int = Field(description="The id of the server-sent event, for `Last-Event-ID`.")
    type: EventType = Field(description="`succeeded`, `failed` and `cancelled` are final: no event follows.")
    at: datetime = Field(description="When it was recorded, in UTC.")
    data: dict[str, Any] = Field(
        default_factory=dict, description="The data of this type; docs/events.md describes it."
    )


class Progress(Document):
    """Progress of a stage, in units of the stage (trials, for tuning)."""

    stage: Stage = Field(description="The running stage.")
    done: int = Field(
        description="Finished passes of `optimize`, trials of `tune`, functions of `build` or rounds of "
        "`benchmark`."
    )
    total: int = Field(
        description="The most that the stage will do; 0 if only time limits it. It may end earlier."
    )
    detail: str = Field(default="", description="The latest or current unit of work, in words; may be empty.")
    estimate: ModelEstimate | None = Field(
        default=None,
        description="The whole model's latency while `tune` searches; null before and otherwise.",
    )


LOG = "log.txt"
"""The artifact with the job's output, which the supervisor writes."""

REFERENCE = "reference.npz"
"""The artifact with the arrays ``inputs/NAME`` and ``outputs/NAME``; bfloat16 as its bits in uint16.

Those of entry points after the first are ``ENTRY/inputs/NAME`` and ``ENTRY/outputs/NAME``.
"""


class Artifact(Document):
    """A file that a compilation produced."""

    name: str = Field(description="The name to download it by.")
    digest: Digest = Field(description="The SHA-256 of its bytes; also its `ETag`.")
    size_bytes: int = Field(description="Size of the whole file.")
    media_type: str = Field(description="The `Content-Type` of the download.")


class ArtifactList(Document):
    """The files that a compilation produced."""

    items: tuple[Artifact, ...] = Field(
        description="Empty while the compilation runs, unless it has published a bundle early."
    )


class BundleCheck(Document):
    """The findings of a fresh process that ran the bundle's library on the reference inputs.

    The process never opened the upload, so the upload's code cannot have changed the findings. The reference
    itself still comes from the uploaded model.
    """

    latency: Latency | None = Field(
        description="Latency of the library, on its own; null if this machine does not measure the target."
    )
    max_absolute_error: float = Field(
        description="The largest difference from the reference outputs in the bundle."
    )


ONLY_OWN_PROCESSOR = "the worker publishes one only for its own processor"
"""Why a target has no early bundle."""

MAX_VERIFIED_SIZES = 16

MeasuredSizes = Annotated[
    dict[str, int],
    Field(
        max_length=MAX_DIMENSIONS,
        description="The size of each dynamic dimension in the reference inputs; empty if all sizes are "
        "fixed, or if a device measured.",
        examples=[{"batch": 8, "length": 128}],
    ),
]


VerifiedAt = Annotated[
    tuple[Annotated[dict[str, int], Field(max_length=MAX_DIMENSIONS)], ...],
    Field(
        max_length=MAX_VERIFIED_SIZES,
        description="The dynamic sizes at which outputs were compared; empty if all sizes are fixed, and if "
        "a device measured the library. The report also has the inputs' shapes.",
        examples=[[{"batch": 8}, {"batch": 1}]],
    ),
]


class EntryFigures(Document):
    """The benchmark of an entry point after the first."""

    name: str = Field(description="Its name in the request.")
    latency: Latency = Field(description="Latency of the library on the reference inputs.")
    sizes: MeasuredSizes = Field(default={})
    unsteady: str = Field(default="", description="Why the latency is unreliable; empty if it is reliable.")
    tokens_per_second: float | None = Field(
        default=None, description="As in the report; null unless the library is a decoder."
    )
    baselines: tuple[BaselineResult, ...] = Field(description="The baselines on the same inputs.")
    verified_sizes: VerifiedAt = Field(default=())


class Figures(Document):
    """The main results of the benchmark and the verification."""

    latency: Latency = Field(description="Latency of the library on the reference inputs.")
    sizes: MeasuredSizes = Field(default={})
    unsteady: str = Field(default="", description="Why the latency is unreliable; empty if it is reliable.")
    tokens_per_second: float | None = Field(
        default=None,
        description="Tokens that the first entry point reads or writes in a second; null unless the library "
        "is a decoder.",
    )
    baselines: tuple[BaselineResult, ...] = Field(
        description="The requested baselines, timed on the same inputs."
    )
    library_bytes: int = Field(description="Size of `model.so`, without the runtime and separate parameters.")
    peak_memory_bytes: int = Field(
        description="Peak memory that loading and running the library adds to a process."
    )
    max_absolute_error: float = Field(
        description="The largest difference from the model over all elements of all outputs."
    )
    verified_sizes: VerifiedAt = Field(default=())
    entries: tuple[EntryFigures, ...] = Field(
        default=(), description="The entry points after the first, which `latency` and `baselines` are about."
    )
    device: str | None = Field(
        default=None,
        description="The device that measured the library; null if the worker did. A device measures no "
        "baselines.",
    )
    check: BundleCheck | None = Field(
        default=None,
        description="The check of the bundle by a fresh process, which the verdict rests on; null if it did "
        "not run.",
    )
    comparison: PeerVerdict | None = Field(
        default=None,
        description="Whether the library beats other runtimes; null unless the request has "
        "`benchmark.compare`.",
    )
    tune: TuneVerdict | None = Field(
        default=None, description="How the search ended; null if the request did not ask for one."
    )
    built_functions: BuiltFunctions | None = Field(
        default=None, description="As in the report; null for a GPU, and if a device measured the library."
    )


class Compilation(Document):
    """A compilation."""

    id: JobId = Field(
        description="A unique id. It recurs only if you delete the compilation and send its "
        "`Idempotency-Key` again."
    )
    name: Name | None = Field(
        default=None, description="The request's `name`, or else the model's; null if neither has one."
    )
    group: JobId | None = Field(
        default=None,
        description="The id of its group, if the request named several targets; null otherwise.",
    )
    state: JobState = Field(description="`succeeded`, `failed` and `cancelled` are final.")
    request: CompilationRequest = Field(description="The request, with defaults filled in.")
    queue: QueuePlace | None = Field(
        default=None, description="Its place in the queue; null unless it is queued."
    )
    target: ResolvedTarget | None = Field(
        default=None, description="The target with every choice made; null until a bundle can be downloaded."
    )
    stage: Stage | None = Field(
        default=None, description="The running stage, or the last one that ran; null before the first."
    )
    progress: Progress | None = Field(
        default=None, description="Progress of the running stage; null if it reports none, and at the end."
    )
    cached: bool = Field(
        default=False,
        description="Whether an earlier compilation of an identical request answered it; no worker ran it.",
    )
    original: JobId | None = Field(
        default=None,
        description="The compilation that made its results, even if that was deleted; null unless it is "
        "`cached`.",
    )
    attempt: int = Field(default=0, description="Number of times a worker started it; 0 while it waits.")
    lost_attempts: int = Field(
        default=0, description="Attempts whose worker was lost; after three, the compilation fails."
    )
    worker: str | None = Field(
        default=None,
        description="The worker that runs it or ran it last; null before the first, and after a worker "
        "returns it.",
    )
    sandbox: SandboxStatus | None = Field(
        default=None, description="The sandbox of the current or last attempt; null before the first."
    )
    stages: tuple[StageTime, ...] = Field(default=(), description="The stages that have succeeded.")
    verified: bool | None = Field(
        default=None,
        description="True if every output is within its tolerance of the model's; false if the request asks "
        "for no verification; null until the compilation succeeds, and if it stopped before `verify`.",
    )
    compiles: bool | None = Field(
        default=None,
        description="What a check found, which stops after `translate`: whether the model can be translated. "
        "If not, the report's `preflight` says why. Null otherwise, and until the check succeeds.",
    )
    figures: Figures | None = Field(
        default=None,
        description="The main results; null until the compilation succeeds, and if it stopped before "
        "`benchmark`.",
    )
    problem: Problem | None = Field(default=None, description="Why it failed; null unless it failed.")
    artifacts: tuple[Artifact, ...] = Field(
        default=(),
        description="The files that it produced. While it runs, only the bundle that `tune.publish_early` "
        "asks for, which the next one replaces.",
    )
    created_at: datetime = Field(description="When it was submitted.")
    started_at: datetime | None = Field(
        default=None, description="When a worker first started it; null before."
    )
    finished_at: datetime | None = Field(
        default=None, description="When it succeeded, failed or was cancelled; null before."
    )

    @property
    def shown_state(self) -> str:
        """The state in words; of a check that has ended, what it found, which early releases did not keep."""
        if self.compiles is None:
            is_check = self.state is JobState.SUCCEEDED and self.request.stop_after is Stage.TRANSLATE
            return "check: see its report" if is_check else self.state.value
        return "check: compiles" if self.compiles else "check: does not compile"

    @property
    def target_name(self) -> str:
        """The name of the resolved target, or else of the requested one."""
        return self.target.name if self.target else target_name(self.request.target)

    @property
    def file_stem(self) -> str | None:
        """The first part of its file names: its name and its target; None if it has no name."""
        return None if self.name is None else file_stem(self.name, self.target_name)


class CompilationPage(Document):
    """A page of compilations, newest first."""

    items: tuple[Compilation, ...] = Field(description="Up to `limit` entries.")
    next: str | None = Field(
        default=None, description="Pass this as `cursor` to get the next page; null on the last page."
    )
