"""The requests of the job child to the candidate server, and the answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from bessemer.contract.problem import ErrorCode

if TYPE_CHECKING:
    from worker.parameters import ParameterFile


@dataclass(frozen=True)
class BuildCandidate:
    """A library to build.

    Attributes:
        payload: a pickled function that writes a library to a path; only the builder unpickles it.
        library: the path.
    """

    payload: bytes
    library: str


@dataclass(frozen=True)
class BuildBatch:
    """Build candidates, ``workers`` at a time; each is killed after ``timeout_seconds``.

    After ``left_seconds``, builds that run are killed, and no others start.
    """

    candidates: tuple[BuildCandidate, ...]
    workers: int
    timeout_seconds: float
    left_seconds: float = inf


NO_TIME = "no time was left to build the candidate"
"""The error of a build that ``left_seconds`` ended."""


@dataclass(frozen=True)
class BuildOutcome:
    """The library's path, or the error."""

    library: str | None
    error: str | None


@dataclass(frozen=True)
class CompileFunctions:
    """Functions to compile to one object file.

    Attributes:
        names: the names of the functions.
        payload: a pickled function without arguments that writes the object; only the compiler unpickles it.
        seconds: the limit of processor time.
    """

    names: tuple[str, ...]
    payload: bytes
    seconds: float


@dataclass(frozen=True)
class CompileBatch:
    """Compile groups of functions, ``workers`` groups at a time."""

    groups: tuple[CompileFunctions, ...]
    workers: int


@dataclass(frozen=True)
class CompileOutcome:
    """How the compilation of a group ended: with success, with a failure, or at its limit of time."""

    failure: tuple[ErrorCode, str] | None = None
    is_late: bool = False


@dataclass(frozen=True)
class CompileProgress:
    """The progress of a batch: how many functions are done, and which are being compiled, oldest first."""

    done: int
    running: tuple[str, ...]


@dataclass(frozen=True)
class TensorArgument:
    """The dtype and shape of one argument of a candidate."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class MeasureCandidate:
    """A library whose function ``main`` to time.

    Attributes:
        library: the library's path; on a GPU, the path of a ``candidate.json``.
        arguments: the function's arguments.
        reference: on a GPU, the candidate whose results it must have; None if they are not checked.
        rival_seconds: the best time of its function so far: one that is clearly slower is timed less; None if
            there is none.
    """

    library: str
    arguments: tuple[TensorArgument, ...]
    reference: str | None = None
    rival_seconds: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """How to time a candidate: ``repeats`` averages over about ``repeat_seconds`` each, after a warm-up."""

    repeats: int = 8
    repeat_seconds: float = 0.006
    max_calls: int = 2000


@dataclass(frozen=True)
class MeasureBatch:
    """Time candidates one after another, on the processor or the GPU; each may take ``timeout_seconds``."""

    candidates: tuple[MeasureCandidate, ...]
    threads: int
    evaluation: Evaluation
    timeout_seconds: float
    on_gpu: bool = False


@dataclass(frozen=True)
class MeasureOutcome:
    """Seconds of one call, averaged within each repeat, or the error.

    After an error that ``ends_process``, the measuring process cannot time another candidate.
    """

    seconds: tuple[float, ...]
    error: str | None
    ends_process: bool = False


@dataclass(frozen=True)
class OpenLibrary:
    """Load a library in its own process, within ``seconds``; ``parameters`` if it does not contain them."""

    path: str
    threads: int
    seconds: float
    parameters: ParameterFile | None = None


@dataclass(frozen=True)
class OpenOriginal:
    """Begin to load the original model in its own process; ``payload`` is a pickled loader."""

    payload: bytes


@dataclass(frozen=True)
class AwaitOriginal:
    """Wait until the original model is loaded, at most ``seconds``."""

    handle: int
    seconds: float


@dataclass(frozen=True)
class CallLibrary:
    """Forward ``command`` to the process of a library or model, which has ``seconds`` to answer."""

    handle: int
    command: Any
    seconds: float


@dataclass(frozen=True)
class CloseLibrary:
    """End the process of a library or model."""

    handle: int


@dataclass(frozen=True)
class Opened:
    """The process of a library or model, which is loaded, or begins to load."""

    handle: int


@dataclass(frozen=True)
class Crashed:
    """The process is lost; ``signal`` is 0 if it raised, hung or exited."""

    signal: int
    detail: str


Request = (
    BuildBatch
    | CompileBatch
    | MeasureBatch
    | OpenLibrary
    | OpenOriginal
    | AwaitOriginal
    | CallLibrary
    | CloseLibrary
)
