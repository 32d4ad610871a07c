"""The worker's errors.

```
JobError                      one job ends, with a stable code
├─ MisbehavedError            the job violated the worker protocol
├─ CandidateServerLostError   the candidate server itself ended                  candidates/client.py
├─ FunctionTooSlowError       a function takes too long to compile               codegen/compile_module.py
├─ NoDeviceError              no device is left to time a search's candidates    tuning/on_device.py
├─ OperatorsUnsupportedError  the importer lacks operators
└─ StageFailedError           a stage failed; names the stage                    pipeline/pipeline.py

WorkerError                   the worker itself cannot work
├─ MetricsPortError           the port for metrics cannot be opened
├─ SandboxIncompleteError     a required layer of the confinement does not hold
├─ SigningKeyError            the key that signs bundles cannot be used
├─ WorkDirError               the work folder cannot be used
└─ AttemptLostError           an attempt failed, and the job is not to blame
   └─ ZygoteLostError         the zygote did not start, or ended too early

never caught, so that the zygote ends during warm-up and the worker does not start:
ExtensionError                an entry point has the wrong type or is duplicated extensions.py

raised in the process that looks for GPUs                                        gpu_probe.py:
DriverError                   the driver failed

raised on a device, which is a program of its own                                device.py:
StoppedError                  the device cannot work
AwayError                     the service does not answer
GoneError                     the device is unknown, or no longer has its task
UnfitError                    this machine cannot run a bundle
RefusedError                  the service refused a request
BadBundleError                the bundle is not one that a device unpacks

caught within one part of the worker, never the end of a job by themselves:
HostileTreeError              a tree of folders that only a hostile job makes    disk.py
CostModelError                a file of a cost model cannot be read              tuning/cost_model/trees.py
TrainingFailedError           the training of a cost model failed           supervisor/cost_model_training.py
LinkError                     the linker failed                                  codegen/link.py
GpuError                      the driver refused a step of a candidate's runs  candidates/gpu_timing.py
WrongResultError              a candidate computes something else              candidates/gpu_timing.py
LibraryCrashedError           the process that ran a library died                candidates/client.py
PeerError                     another runtime cannot run the model               peers/executors.py
NotPlannableError             the calls of a function cannot be made by C        standalone/plan.py
NotLaunchableError            a function does more than start kernels            cuda/kernels.py
ProgramFailedError            a program ended with another status than 0       candidates/execute.py
MisfitError                   a trace does not apply to a function              tuning/replays.py
NoSuchPlanError               a plan does not belong to its family               schedules/plans.py
NoProductError                a search space does not fit a function             spaces/matmul_block.py
ControlFlowError              a branch or a loop cannot be a part of a program   torchscript/nested_values.py
PackedSequenceError           an operator needs packed steps in torch's order    packed_sequences.py
ScriptRaisedError             the model itself raised                            torchscript/primitives.py
ScriptConversionError         no way led to an exported program                  torchscript/convert.py
UnknownOperatorError          no operator computes a node                   torchscript/script_operators.py
UntranslatableError           a rule does not support these arguments            translation/errors.py
UnsuitableError               torch must decompose a program          translation/call_decompositions.py
```
The code that catches a foreign exception, and knows what it was doing, converts it to one of these.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from bessemer.contract.problem import ErrorCode, Problem, SourcePlace, make_problem
from bessemer.contract.queue import Loss


class JobError(Exception):
    """Ends one job with a problem that its user can act on."""

    def __init__(self, code: ErrorCode, detail: str, places: tuple[SourcePlace, ...] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.places = places

    def problem(self, stage: str | None) -> Problem:
        """The problem document for this error."""
        return make_problem(self.code, self.detail, stage=stage, places=self.places)


@contextmanager
def in_entry(name: str | None) -> Iterator[None]:
    """Name the entry point in errors; None if there is only one."""
    try:
        yield
    except JobError as error:
        if name is not None:
            error.detail = f"entry '{name}': {error.detail}"
        raise


class OperatorsUnsupportedError(JobError):
    """The importer lacks operators; ``places`` lists all of them.

    Attributes:
        template: rules to fill in for the operators that a rule could translate; the message leaves it out.
    """

    def __init__(self, places: tuple[SourcePlace, ...], template: str, advice: tuple[str, ...] = ()) -> None:
        hint = ("`bessemer check --explain` prints a translation rule to fill in",) if template else ()
        detail = "\n".join((f"unsupported: {', '.join(_by_operator(places))}", *advice, *hint))
        super().__init__(ErrorCode.OPERATOR_UNSUPPORTED, detail, places)
        self.template = template


def _by_operator(places: tuple[SourcePlace, ...]) -> Iterator[str]:
    """The first place of each operator, with the number of its others."""
    counts = Counter(place.operator for place in places)
    for operator, count in sorted(counts.items(), key=str):
        first = next(place for place in places if place.operator == operator)
        more = f" and {count - 1} more place{'s' * (count > 2)}" if count > 1 else ""
        yield f"{first}{more}"


class MisbehavedError(JobError):
    """A job violated the worker protocol, by a message or by a file in its folder."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.CHILD_MISBEHAVED, detail)


class WorkerError(Exception):
    """The worker itself cannot work; the message says why."""


class MetricsPortError(WorkerError):
    """The port of ``BESSEMER_METRICS_PORT`` is taken or forbidden."""


class SandboxIncompleteError(WorkerError):
    """A required layer of the confinement does not hold, so this worker must not take jobs."""


class TrainingFailedError(Exception):
    """The process that trains a cost model failed, or took too long."""


class SigningKeyError(WorkerError):
    """The key of ``BESSEMER_SIGNING_KEY`` cannot be used."""


class WorkDirError(WorkerError):
    """The work folder cannot be used."""


class AttemptLostError(WorkerError):
    """An attempt failed, and the job is not to blame: it is attempted again."""

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
"""How torch, TVM and other processes report that memory ran out, in lower case."""

_MISTAKES = (ArithmeticError, AttributeError, LookupError, NameError, SyntaxError, TypeError)
"""Errors of a program; their texts may contain any word of it."""

_DISK_FULL = "no space left on device"

_SERVER_DETAILS = (
    (re.compile(r"/[^\s'\":]*/(?:(?:site|dist)-packages|lib/python3\.\d+)/"), ""),
    (re.compile(r"/[^\s'\":]*/jobs/[^\s'\":/]+/"), ""),
    (re.compile(r"\b0x[0-9a-f]{8,16}\b"), "0x…"),
)

_CPP_FRAMES = "Exception raised from"

_PRIMITIVE = re.compile(r"schedule primitive '([^']+)'")
_REASON = "Error message:"


def failure_of(
    code: ErrorCode, error: BaseException, detail: str | None = None, places: tuple[SourcePlace, ...] = ()
) -> JobError:
    """Convert a foreign exception to a job error.

    The code is ``limit-memory`` if memory ran out, ``worker-disk-full`` if the disk is full, else ``code``.

    Args:
        code: the code for all other causes.
        error: the exception; a job error is returned unchanged.
        detail: the detail; by default, the short message of the exception.
        places: where in the model it happened.
    """
    if isinstance(error, JobError):
        return error
    if met_a_full_disk(error):
        return JobError(ErrorCode.WORKER_DISK_FULL, short_message(error))
    if ran_out_of_memory(error):
        return JobError(ErrorCode.LIMIT_MEMORY, f"an allocation failed: {short_message(error)}")
    return JobError(code, short_message(error) if detail is None else detail, places)


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one of its causes, reports a failed allocation."""
    return any(_is_failed_allocation(link) for link in _chain(error))


def short_message(error: BaseException) -> str:
    """The type and message of an exception on one line of limited length, without torch's C++ frames."""
    text = " ".join(str(error).partition(_CPP_FRAMES)[0].split())[:MAX_MESSAGE_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def refusal(error: BaseException) -> str:
    """The message of an exception; of a schedule primitive's, the first and last line of its reason."""
    head, marker, reason = str(error).partition(_REASON)
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    primitive = _PRIMITIVE.search(head)
    if not (marker and lines and primitive):
        return short_message(error)
    return f"{primitive.group(1)}: {' … '.join(dict.fromkeys((lines[0], lines[-1])))}"


def without_server_details(text: str) -> str:
    """A text in which paths begin at the package or at the job's folder, without addresses in memory."""
    for pattern, replacement in _SERVER_DETAILS:
        text = pattern.sub(replacement, text)
    return text


def _is_failed_allocation(error: BaseException) -> bool:
    if isinstance(error, _MISTAKES):
        return False
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _ALLOCATION_FAILED)


def met_a_full_disk(error: BaseException) -> bool:
    """Whether no space was left on a disk."""
    return any(_DISK_FULL in str(link).lower() for link in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and its chain of causes; an exception may be its own cause."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def describe_end(number: int) -> str:
    """How a process ended, as the end of a sentence about it.

    Args:
        number: the signal that ended it; 0 if it exited.
    """
    return f"was ended by {signal_name(number)}" if number else "ended by itself"


def signal_name(number: int) -> str:
    """``SIGSEGV``; ``signal 40`` for a signal without a name, such as most real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
