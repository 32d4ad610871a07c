"""What the job child asks of the candidate server, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bessemer.contract.problem import ErrorCode

if TYPE_CHECKING:
    from worker.parameters import ParameterFile


@dataclass(frozen=True)
class BuildCandidate:
    """A library to build.

    Attributes:
        payload: the pickle of a function that writes a library to a path; opened by the builder only.
        library: the file that it writes.
    """

    payload: bytes
    library: str


@dataclass(frozen=True)
class BuildBatch:
    """Compile candidates, ``workers`` at a time; each is killed after ``timeout_seconds``."""

    candidates: tuple[BuildCandidate, ...]
    workers: int
    timeout_seconds: float


@dataclass(frozen=True)
class BuildOutcome:
    """The library's path, or what went wrong."""

    library: str | None
    error: str | None


@dataclass(frozen=True)
class CompileFunctions:
    """Functions to compile to one object file.

    Attributes:
        names: the functions'.
        payload: a pickled call without arguments that writes the object; only the compiler unpickles it.
        seconds: the processor time that they may take.
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
    """How the compilation of a group ended: well, by a failure, or at the end of its time."""

    failure: tuple[ErrorCode, str] | None = None
    is_late: bool = False


@dataclass(frozen=True)
class CompileProgress:
    """The progress of a batch: how many functions are compiled, and which are in work, oldest first."""

    done: int
    running: tuple[str, ...]


@dataclass(frozen=True)
class TensorArgument:
    """One argument of a candidate: its dtype and its shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class MeasureCandidate:
    """A library whose function ``main`` is to be timed."""

    library: str
    arguments: tuple[TensorArgument, ...]


@dataclass(frozen=True)
class Evaluation:
    """How a candidate is timed: ``repeats`` averages over about ``repeat_seconds`` each, after a warm-up."""

    repeats: int = 8
    repeat_seconds: float = 0.006
    max_calls: int = 2000


@dataclass(frozen=True)
class MeasureBatch:
    """Time candidates one after the other; each is given ``timeout_seconds``."""

    candidates: tuple[MeasureCandidate, ...]
    threads: int
    evaluation: Evaluation
    timeout_seconds: float


@dataclass(frozen=True)
class MeasureOutcome:
    """Seconds of one call, averaged within each repeat, or what went wrong."""

    seconds: tuple[float, ...]
    error: str | None


@dataclass(frozen=True)
class OpenLibrary:
    """Load a library in a process of its own, within ``seconds``; ``parameters`` where it contains none."""

    path: str
    threads: int
    seconds: float
    parameters: ParameterFile | None = None


@dataclass(frozen=True)
class OpenOriginal:
    """Load the original model in a process of its own, within ``seconds``.

    ``payload`` is the pickle of a function that loads it.
    """

    payload: bytes
    seconds: float


@dataclass(frozen=True)
class CallLibrary:
    """Pass ``command`` on to the process of a library or model, which has ``seconds`` to answer."""

    handle: int
    command: Any
    seconds: float


@dataclass(frozen=True)
class CloseLibrary:
    """End the process of a library or model."""

    handle: int


@dataclass(frozen=True)
class Opened:
    """The library or model is loaded."""

    handle: int


@dataclass(frozen=True)
class Crashed:
    """The process is gone; ``signal`` is 0 where it raised, hung or ended by itself."""

    signal: int
    detail: str


Request = BuildBatch | CompileBatch | MeasureBatch | OpenLibrary | OpenOriginal | CallLibrary | CloseLibrary
