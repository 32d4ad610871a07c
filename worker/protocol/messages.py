"""The messages of a job's child to the supervisor: JSON lines of at most ``MAX_LINE_BYTES``.

The supervisor treats them as hostile input: a malformed message ends the job.
"""

import json
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, FiniteFloat, TypeAdapter, model_validator

from bessemer.bundle.manifest import ARCHIVE, PROVENANCE, BundleFile
from bessemer.contract.base import Digest, Document, Readable
from bessemer.contract.cost_model import MeasuredFunction
from bessemer.contract.device import (
    MAX_CANDIDATES,
    MAX_OUTPUTS,
    MAX_REPEATS,
    MAX_ROUNDS,
    DeviceFeature,
    Platform,
)
from bessemer.contract.job import LOG, BundleCheck, Figures
from bessemer.contract.model import Inspection
from bessemer.contract.options import MAX_TRIALS
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.records import (
    JudgedTrial,
    MeasuredTrial,
    Packed,
    SearchScope,
    SizedFunction,
    WorkloadHash,
)
from bessemer.contract.report import Latency, ModelEstimate, TuneVerdict
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import MAX_CORES
from bessemer.contract.tensor import TensorSpec

MAX_LINE_BYTES = 1 << 19
MAX_COUNT = 1 << 53
MAX_FILES_AT_ONCE = 256
LOG_NAME = LOG
CANDIDATES_ARCHIVE = "candidates.tar.zst"
"""The archive in a job's ``output`` folder, while a device times what is in it."""

EARLY_ARCHIVE = "early.tar.zst"
"""The bundle in a job's ``output`` folder that is published while the job runs."""

OBJECT = "object.o"
"""The object in the ``output`` folder of a job that compiles functions for the cache."""

SUPERVISORS_FILES = PROVENANCE | {LOG_NAME}
"""Artifacts that the supervisor makes."""


Measured = TypeVar("Measured", Figures, Latency, BundleCheck, TuneVerdict, ModelEstimate)


def _finite(measured: Measured) -> Measured:
    json.loads(json.dumps(measured.model_dump(mode="json"), allow_nan=False), parse_int=_bounded)
    return measured


def _bounded(digits: str) -> int:
    number = int(digits)
    if abs(number) > MAX_COUNT:
        raise ValueError(f"expected at most {MAX_COUNT}, not a number of {len(digits)} digits")
    return number


class Confined(Document):
    """Sent once, before the upload is opened."""

    kind: Literal["confined"] = "confined"
    sandbox: SandboxStatus
    seconds: FiniteFloat


class StageStarted(Document):
    """A stage begins."""

    kind: Literal["stage-started"] = "stage-started"
    stage: Stage


class StageFinished(Document):
    """A stage has succeeded."""

    kind: Literal["stage-finished"] = "stage-finished"
    stage: Stage
    seconds: FiniteFloat


class ProgressMade(Document):
    """Progress of a stage: ``done`` of ``total`` in the stage's own unit."""

    kind: Literal["progress"] = "progress"
    stage: Stage
    done: int = Field(ge=0, le=MAX_COUNT)
    total: int = Field(ge=0, le=MAX_COUNT)
    detail: Readable = Field(default="", max_length=400)
    estimate: Annotated[ModelEstimate, AfterValidator(_finite)] | None = None


class TurnRequested(Document):
    """The job waits for its turn to measure."""

    kind: Literal["turn-requested"] = "turn-requested"


class TurnEnded(Document):
    """The job's turn to measure has ended."""

    kind: Literal["turn-ended"] = "turn-ended"


class CandidatesBuilt(Document):
    """The job waits for devices to time candidates, whose archive is in its ``output`` folder.

    If ``together``, one device times all, so that their times can be compared; else devices share them.
    """

    kind: Literal["candidates-built"] = "candidates-built"
    platform: Platform
    device_features: Annotated[tuple[DeviceFeature, ...], Field(max_length=64)] = ()
    count: int = Field(ge=1, le=MAX_CANDIDATES, description="How many there are.")
    together: bool = Field(default=True, description="Whether one device must time all of them.")
    rounds: int = Field(ge=1, le=MAX_ROUNDS, description="How often each is timed, in turns.")
    repeat: int = Field(ge=1, le=MAX_REPEATS, description="The most times of each in one round.")
    repeat_seconds: FiniteFloat = Field(gt=0, le=60, description="The time for these, in seconds.")
    timeout_seconds: FiniteFloat = Field(
        gt=0, le=600, description="How long one candidate may take in a round."
    )


class EarlyBundleMade(Document):
    """The job waits until a bundle in its ``output`` folder is checked and published."""

    kind: Literal["early-bundle-made"] = "early-bundle-made"
    figures: Annotated[Figures, AfterValidator(_finite)] | None = Field(
        description="The figures of its benchmark; null if the library is not measured yet."
    )


MAX_FUNCTIONS = 4096
MAX_SIZED_FUNCTIONS = 256
MAX_TRIALS_AT_ONCE = 64
MAX_REPORTED_FUNCTIONS = 256
"""The number of functions for whose plans a job may report measurements."""


class RecordsRequested(Document):
    """The job waits for the records of its functions, and for the trials of its earlier attempts.

    A job that does not search ``applies`` records: its result depends on them.
    """

    kind: Literal["records-requested"] = "records-requested"
    scope: SearchScope
    functions: Annotated[tuple[WorkloadHash, ...], Field(max_length=MAX_FUNCTIONS)]
    applies: bool


class NearRecordsRequested(Document):
    """The job waits for records of functions that are similar to its own. It has asked for those before."""

    kind: Literal["near-records-requested"] = "near-records-requested"
    functions: Annotated[tuple[SizedFunction, ...], Field(max_length=MAX_SIZED_FUNCTIONS)]


class TrialsMeasured(Document):
    """The job waits until its trials are stored; ``workloads`` has the modules of functions that are new."""

    kind: Literal["trials-measured"] = "trials-measured"
    first: int = Field(ge=0, le=MAX_TRIALS, description="The number of the first trial.")
    trials: Annotated[tuple[MeasuredTrial, ...], Field(max_length=MAX_TRIALS_AT_ONCE)]
    workloads: Annotated[dict[WorkloadHash, Packed], Field(max_length=1)] = Field(default={})
    elapsed_seconds: FiniteFloat = Field(ge=0)


class TrialsJudged(Document):
    """Which records the library uses, or does not use after a comparison. The last such message counts."""

    kind: Literal["trials-judged"] = "trials-judged"
    judged: Annotated[tuple[JudgedTrial, ...], Field(max_length=MAX_TRIALS_AT_ONCE)]


class PlansMeasured(Document):
    """What a search measured of a function's plans, for cost models; ``source`` is the function's hash."""

    kind: Literal["plans-measured"] = "plans-measured"
    function: MeasuredFunction


MAX_OBJECTS = 4096


class ObjectsRequested(Document):
    """The job waits for compiled functions from the worker's cache, by the digests of their texts.

    If the job succeeds, its ``output`` folder has the text of each key that was not found, as
    ``functions-KEY.json``.
    """

    kind: Literal["objects-requested"] = "objects-requested"
    keys: Annotated[tuple[Digest, ...], Field(max_length=MAX_OBJECTS)]


class BundleRead(Document):
    """The fresh process has read files of a bundle, and run none of them; ``last`` ends the list."""

    kind: Literal["bundle-read"] = "bundle-read"
    files: Annotated[tuple[BundleFile, ...], Field(max_length=MAX_FILES_AT_ONCE)]
    last: bool


CODES = frozenset(
    {
        ErrorCode.MODEL_NOT_RECOGNIZED,
        ErrorCode.MODEL_DAMAGED,
        ErrorCode.MODEL_UNSAFE_ARCHIVE,
        ErrorCode.MODEL_LOAD_FAILED,
        ErrorCode.MODEL_MODULE_INVALID,
        ErrorCode.MODEL_LEAF_UNAVAILABLE,
        ErrorCode.MODEL_OPERATOR_UNAVAILABLE,
        ErrorCode.MODEL_FORWARD_MISSING,
        ErrorCode.METHOD_MISSING,
        ErrorCode.MODEL_SIGNATURE_UNSUPPORTED,
        ErrorCode.MODEL_TENSORS_UNSUPPORTED,
        ErrorCode.MODEL_STATEFUL,
        ErrorCode.MODEL_RAISED,
        ErrorCode.INPUTS_MISSING,
        ErrorCode.CONSTANTS_MISSING,
        ErrorCode.INPUTS_MISMATCH,
        ErrorCode.REFERENCE_MISSING,
        ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED,
        ErrorCode.INPUTS_UNREADABLE,
        ErrorCode.INVOCATION_FAILED,
        ErrorCode.EXTENSION_INVALID,
        ErrorCode.LIBRARY_FUNCTION_MISSING,
        ErrorCode.CAPTURE_FAILED,
        ErrorCode.OPERATOR_UNSUPPORTED,
        ErrorCode.TRANSLATE_FAILED,
        ErrorCode.OPTIMIZE_FAILED,
        ErrorCode.REWRITE_UNKNOWN,
        ErrorCode.KERNEL_UNKNOWN,
        ErrorCode.KERNEL_UNAVAILABLE,
        ErrorCode.SPACE_UNKNOWN,
        ErrorCode.FUNCTION_UNKNOWN,
        ErrorCode.SPACE_FAILED,
        ErrorCode.STRATEGY_UNKNOWN,
        ErrorCode.SCHEDULE_FAILED,
        ErrorCode.RECORDS_INVALID,
        ErrorCode.TUNE_FAILED,
        ErrorCode.BUILD_FAILED,
        ErrorCode.GPU_UNSUPPORTED,
        ErrorCode.FUNCTION_TOO_SLOW,
        ErrorCode.TARGET_NOT_RUNNABLE,
        ErrorCode.VERIFY_MISMATCH,
        ErrorCode.VERIFY_CRASHED,
        ErrorCode.BENCHMARK_FAILED,
        ErrorCode.PACKAGE_FAILED,
        ErrorCode.SANDBOX_INCOMPLETE,
        ErrorCode.LIMIT_MEMORY,
        ErrorCode.WORKER_DISK_FULL,
        ErrorCode.CHILD_KILLED,
        ErrorCode.CHILD_CRASHED,
    }
)
"""The codes that a child may end with. Only the supervisor uses the others."""


def _check_code(code: ErrorCode) -> ErrorCode:
    if code not in CODES:
        raise ValueError(f"a child must not report {code.value}")
    return code


class Failed(Document):
    """The job ended with a problem; it sends only the problem's detail. Last message."""

    kind: Literal["failed"] = "failed"
    code: Annotated[ErrorCode, AfterValidator(_check_code)]
    detail: Readable
    stage: Stage | None = None
    places: tuple[SourcePlace, ...] = ()


class Inspected(Document):
    """An inspection succeeded. Last message."""

    kind: Literal["inspected"] = "inspected"
    inspection: Inspection


def _distinct(files: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(files)) < len(files) or SUPERVISORS_FILES.intersection(files):
        own = ", ".join(sorted(SUPERVISORS_FILES))
        raise ValueError(f"the files must be different, and must not include {own}")
    return files


class Compiled(Document):
    """A compilation succeeded; its files are in the job's ``output`` folder. Last message.

    If it stopped early, ``stopped_after`` is the last stage, and later results are missing. A library for
    another platform is not ``measured``, and not verified either if that is ``left_to_device``. ``tune`` says
    how a search on a device ended. ``compiles`` is what a check found, which stops after ``translate``.
    """

    kind: Literal["compiled"] = "compiled"
    verified: bool | None
    figures: Annotated[Figures, AfterValidator(_finite)] | None
    files: Annotated[tuple[str, ...], Field(max_length=64), AfterValidator(_distinct)]
    stopped_after: Stage | None = None
    measured: bool = True
    left_to_device: bool = False
    device_features: Annotated[tuple[DeviceFeature, ...], Field(max_length=64)] = ()
    tune: Annotated[TuneVerdict, AfterValidator(_finite)] | None = None
    compiles: bool | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        last = self.stopped_after or Stage.PACKAGE
        if (
            (self.verified is False and self.figures is not None)
            or (self.verified is None) == (last.includes(Stage.VERIFY) and not self.left_to_device)
            or (self.figures is not None) != (last.includes(Stage.BENCHMARK) and self.measured)
            or (ARCHIVE in self.files) != (last is Stage.PACKAGE)
            or (self.compiles is not None and last is not Stage.TRANSLATE)
        ):
            raise ValueError(f"the fields do not match a compilation that stopped after {last.value}")
        return self


class Checked(Document):
    """A bundle's library computes what the bundle says. Last message.

    ``check`` is None if only a device can run it, or if the request asks for no verification.
    """

    kind: Literal["checked"] = "checked"
    check: Annotated[BundleCheck, AfterValidator(_finite)] | None


class Amended(Document):
    """A bundle with what a device found is in the job's ``output`` folder. Last message."""

    kind: Literal["amended"] = "amended"
    files: Annotated[tuple[str, ...], Field(max_length=8), AfterValidator(_distinct)]


class ObjectCompiled(Document):
    """The object is in the job's ``output`` folder. Last message."""

    kind: Literal["object-compiled"] = "object-compiled"


class Invoked(Document):
    """An invocation succeeded; its outputs are in the job's ``output`` folder. Last message."""

    kind: Literal["invoked"] = "invoked"
    threads: int = Field(ge=1, le=MAX_CORES)
    latency: Annotated[Latency, AfterValidator(_finite)] | None
    outputs: Annotated[tuple[TensorSpec, ...], Field(max_length=MAX_OUTPUTS)]


Message = Annotated[
    Confined
    | StageStarted
    | StageFinished
    | ProgressMade
    | TurnRequested
    | TurnEnded
    | CandidatesBuilt
    | EarlyBundleMade
    | RecordsRequested
    | NearRecordsRequested
    | TrialsMeasured
    | TrialsJudged
    | PlansMeasured
    | ObjectsRequested
    | BundleRead
    | Failed
    | Inspected
    | Compiled
    | Checked
    | Amended
    | Invoked
    | ObjectCompiled,
    Field(discriminator="kind"),
]
MESSAGES: TypeAdapter[Message] = TypeAdapter(Message)
