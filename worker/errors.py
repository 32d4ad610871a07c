"""The worker's errors.

```
JobError                      one job ends, with a stable code
├─ MisbehavedError            the job said, or left in its folder, what no job does
├─ CandidateServerLostError   the candidate server itself is gone      candidates/client.py
├─ FunctionTooSlowError       a function takes too long to compile     codegen/in_shares.py
├─ OperatorsUnsupportedError  every operator that the importer lacks, with its places
└─ StageFailedError           the same, with the stage in which the job ended      pipeline/pipeline.py

WorkerError                   the worker itself cannot work
├─ MetricsPortError           the port for metrics cannot be listened on
├─ SandboxIncompleteError     a required layer of the confinement does not hold
├─ WorkDirError             the work folder cannot be used
└─ AttemptLostError           an attempt ended through no fault of the job's
   └─ ZygoteLostError         the zygote could not be started, or ended before it answered

caught by nobody: the zygote ends while it warms up, and the worker does not start:
ExtensionError                an entry point gives something else, or twice       extensions.py

caught within their own part of the worker, never a job's end by themselves:
HostileTreeError              a tree of folders that no honest job makes          usage.py
LinkError                     the linker refused                                  candidates/link.py
LibraryCrashedError           the process that ran a library died                 candidates/client.py
EntrantCrashedError           one of two schedules of a model crashed             tuning/whole_model.py
NoSuchPlanError               a search's plan is none of its family's             schedules/plans.py
NoProductError                a search space does not fit a function              spaces/products.py
ScriptRaisedError             the model itself raised                             torchscript/primitives.py
ScriptConversionError         neither way led to an exported program              torchscript/convert.py
UnknownOperatorError          nothing here or in torch computes a node            torchscript/operators.py
UntranslatableError           a rule does not know these arguments           translation/untranslatable.py
```
Foreign exceptions are turned into these where they are caught: in the stage that knows what it was doing.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

from bessemer.contract.problem import ErrorCode, Problem, SourcePlace, make_problem
from bessemer.contract.queue import Loss


class JobError(Exception):
    """Ends one job with a problem that its user can act upon."""

    def __init__(self, code: ErrorCode, detail: str, places: tuple[SourcePlace, ...] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.places = places

    def problem(self, stage: str | None) -> Problem:
        """The problem document of this error."""
        return make_problem(self.code, self.detail, stage=stage, places=self.places)


class OperatorsUnsupportedError(JobError):
    """The importer lacks operators; ``places`` lists all of them.

    ``advice`` says what to do about those that no rule can translate; ``template`` is a rule to fill in for
    others.
    """

    def __init__(self, places: tuple[SourcePlace, ...], template: str, advice: tuple[str, ...] = ()) -> None:
        names = sorted({place.operator for place in places if place.operator})
        rule = (f"A rule adds an operator:\n\n{template}",) if template else ()
        detail = "\n\n".join((f"unsupported: {', '.join(names)}", *advice, *rule))
        super().__init__(ErrorCode.OPERATOR_UNSUPPORTED, detail, places)


class MisbehavedError(JobError):
    """A job said, or left in its folder, what no job does."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.CHILD_MISBEHAVED, detail)


class WorkerError(Exception):
    """The worker itself cannot work; the message says why."""


class MetricsPortError(WorkerError):
    """The port of ``BESSEMER_METRICS_PORT`` is taken, or may not be used."""


class SandboxIncompleteError(WorkerError):
    """A required layer of the confinement does not hold: this worker may take no job."""


class WorkDirError(WorkerError):
    """The work folder cannot be used."""


class AttemptLostError(WorkerError):
    """An attempt ended through no fault of the job's: another one is made."""

    def __init__(self, detail: str, why: Loss) -> None:
        super().__init__(detail)
        self.why = why


class ZygoteLostError(AttemptLostError):
    """The zygote could not be started, or ended before it answered."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, Loss.ZYGOTE_LOST)


MAX_MESSAGE_CHARACTERS = 600

_ALLOCATION_FAILED = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "bad_alloc",
    "memoryerror",
)
"""How torch, TVM and other processes of the job say in a text that memory ran out, in lower case."""

_DISK_FULL = "no space left on device"

_CPP_FRAMES = "Exception raised from"


def failure_of(
    code: ErrorCode, error: BaseException, detail: str | None = None, places: tuple[SourcePlace, ...] = ()
) -> JobError:
    """What a foreign exception becomes: ``limit-memory`` where memory ran out, ``worker-disk-full`` where the
    disk did, else ``code``.

    Args:
        code: what it means where it was caught.
        error: the exception; a job error stays what it is.
        detail: what to say; by default, its short message.
        places: where in the model it came from.
    """
    if isinstance(error, JobError):
        return error
    if _met_a_full_disk(error):
        return JobError(ErrorCode.WORKER_DISK_FULL, short_message(error))
    if ran_out_of_memory(error):
        return JobError(ErrorCode.LIMIT_MEMORY, f"an allocation failed: {short_message(error)}")
    return JobError(code, short_message(error) if detail is None else detail, places)


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one that it came from, says that an allocation failed."""
    return any(_is_failed_allocation(link) for link in _chain(error))


def short_message(error: BaseException) -> str:
    """A foreign exception's type and message on one line of a fair length, without torch's C++ frames."""
    text = " ".join(str(error).partition(_CPP_FRAMES)[0].split())[:MAX_MESSAGE_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_failed_allocation(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _ALLOCATION_FAILED)


def _met_a_full_disk(error: BaseException) -> bool:
    return any(_DISK_FULL in str(link).lower() for link in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what it was raised from, and so on; an exception may be its own cause."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def signal_name(number: int) -> str:
    """``SIGSEGV``; ``signal 40`` for one without a name, as most real-time signals are."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
