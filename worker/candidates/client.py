"""The job child's handle on the candidate server, which forks every build and every measuring process.

The server is forked right after confinement, before anything ran in parallel: forking after a torch or TVM
parallel region hangs the child at its next one.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import FunctionTime
from worker.candidates.library import (
    MAIN,
    Answer,
    Command,
    Executor,
    PeakMemory,
    Profile,
    Raised,
    Run,
    Time,
    UseThreads,
)
from worker.candidates.process import ForkedProcess
from worker.candidates.requests import (
    AwaitOriginal,
    BuildBatch,
    BuildOutcome,
    CallLibrary,
    CloseLibrary,
    CompileBatch,
    CompileOutcome,
    CompileProgress,
    Crashed,
    MeasureBatch,
    MeasureOutcome,
    Opened,
    OpenLibrary,
    OpenOriginal,
    Request,
)
from worker.errors import JobError, describe_end
from worker.measure.timed import WARM_UP_RUNS
from worker.measure.turns import ANY_TIME, Turns

if TYPE_CHECKING:
    import numpy as np

    from worker.parameters import ParameterFile

    Arrays = tuple[np.ndarray, ...]

_HEARTBEAT_SECONDS = 1.0
"""How often the client reports the progress of a batch, even if it has not changed."""

_SLOWER = 20
"""A run may take this many times as long as the first: the machine may be busy."""


class LibraryCrashedError(Exception):
    """A process that ran a library or model is lost; ``signal`` is 0 if it hung, exited or raised.

    ``side`` is the name that ``naming_crashes`` gave it, if any.
    """

    def __init__(self, signal: int, detail: str, side: str = "") -> None:
        super().__init__(detail)
        self.signal = signal
        self.side = side


class CandidateServerLostError(JobError):
    """The candidate server itself ended: killed from outside, or by a defect of ours."""

    def __init__(self, number: int) -> None:
        code = ErrorCode.CHILD_KILLED if number == SIGKILL else ErrorCode.CHILD_CRASHED
        super().__init__(code, f"the candidate server {describe_end(number)}")


@dataclass(frozen=True)
class Timeouts:
    """How long a library may take to load, to run once, and to answer besides running.

    The limits are generous. A library that hangs ends its stage with the stage's own error instead of the
    whole job at the job's last limit.
    """

    load_seconds: float = 120.0
    first_run_seconds: float = 300.0
    slack_seconds: float = 30.0

    def for_runs(self, runs: int, run_seconds: float | None) -> float:
        """How long ``runs`` runs may take; ``run_seconds`` is the time of an earlier run, if any."""
        if run_seconds is None:
            return self.first_run_seconds
        return self.slack_seconds + _SLOWER * runs * run_seconds


DEFAULT_TIMEOUTS = Timeouts()


class CandidateClient:
    """Talks to a forked candidate server, one request at a time.

    Attributes:
        lost: how the server was lost, if it was; TVM's callbacks drop this from an exception.
    """

    def __init__(
        self, server: ForkedProcess, timeouts: Timeouts = DEFAULT_TIMEOUTS, turns: Turns = ANY_TIME
    ) -> None:
        self._server = server
        self._turns = turns
        self._loading: dict[bytes, Opened] = {}
        self.timeouts = timeouts
        self.lost: CandidateServerLostError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server and everything that it forked."""
        self._server.close()

    def open_library(self, path: Path, threads: int, parameters: ParameterFile | None = None) -> ModelProcess:
        """Fork a process and load the library in it with ``TVM_NUM_THREADS`` = ``threads``.

        Args:
            path: the library.
            threads: how many threads it computes with.
            parameters: the parameters that it does not contain.

        Raises:
            LibraryCrashedError: the library could not be loaded, or not in time.
            JobError: ``child-killed``: another process sent SIGKILL.
        """
        return self._opened(self.ask(OpenLibrary(str(path), threads, self.timeouts.load_seconds, parameters)))

    def begin_original(self, load: Callable[[], Executor]) -> None:
        """Begin to load the original model, for a later ``open_original`` with an equal ``load``."""
        payload = pickle.dumps(load)
        self._loading[payload] = self.ask(OpenOriginal(payload))

    def open_original(self, load: Callable[[], Executor]) -> ModelProcess:
        """Fork a process and load the original model in it, unless this has begun.

        Args:
            load: loads the model; called in that process, so it must pickle.

        Raises:
            LibraryCrashedError: the model could not be loaded, or not in time.
            JobError: ``child-killed``: another process sent SIGKILL.
        """
        payload = pickle.dumps(load)
        begun = self._loading.pop(payload, None) or self.ask(OpenOriginal(payload))
        return self._opened(self.ask(AwaitOriginal(begun.handle, self.timeouts.load_seconds)))

    def _opened(self, opened: Opened | Crashed) -> ModelProcess:
        if isinstance(opened, Crashed):
            raise _crash_error(opened)
        return ModelProcess(self, opened.handle)

    def build_many(self, batch: BuildBatch) -> tuple[BuildOutcome, ...]:
        """Build candidates, several at once. One that fails is an outcome, never an exception."""
        return self.ask(batch)

    def compile_many(
        self, batch: CompileBatch, on_progress: Callable[[CompileProgress], None]
    ) -> tuple[CompileOutcome, ...]:
        """Compile groups of functions, several at once. One that fails is an outcome, never an exception.

        Args:
            batch: the groups.
            on_progress: called with the batch's progress whenever it changes, and about once a second.
        """
        last = self.ask(batch)
        while isinstance(last, CompileProgress):
            on_progress(last)
            if self._server.wait_readable(_HEARTBEAT_SECONDS):
                last = self._receive()
        assert isinstance(last, tuple)
        return last

    def measure_many(self, batch: MeasureBatch) -> tuple[MeasureOutcome, ...]:
        """Time candidates one after the other, in one turn. One that fails is an outcome."""
        with self.turn():
            return self.ask(batch)

    def turn(self) -> AbstractContextManager[None]:
        """While the context lasts, no other job on this host measures."""
        return self._turns.turn()

    def ask(self, request: Request) -> Any:
        """Send a request and wait for its answer.

        Raises:
            CandidateServerLostError: the server has ended.
        """
        try:
            self._server.send(request)
        except BrokenPipeError as error:
            raise self._loss() from error
        return self._receive()

    def _receive(self) -> Any:
        try:
            return self._server.receive()
        except EOFError as error:
            raise self._loss() from error

    def _loss(self) -> CandidateServerLostError:
        self.lost = self.lost or CandidateServerLostError(self._server.ended_by())
        return self.lost


class ModelProcess:
    """A library or the original model, loaded in a process that runs nothing else.

    Only a library has a profile and a peak memory. The methods raise ``LibraryCrashedError`` if the process
    ended or did not answer in time, or if the library or model raised; and ``JobError`` (``child-killed``) if
    another process sent SIGKILL.
    """

    def __init__(self, client: CandidateClient, handle: int) -> None:
        self._client = client
        self._handle = handle
        self._run_seconds: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._client.ask(CloseLibrary(self._handle))

    def run(self, inputs: Arrays, function: str = MAIN) -> Arrays:
        """Run a function once on copies of the inputs and return the outputs, nested ones flattened."""
        start = time.perf_counter()
        outputs = self._ask(Run(inputs, function), runs=1)
        self._run_seconds = time.perf_counter() - start
        return outputs

    def time(self, runs: int, most_seconds: float = math.inf, warm_up: bool = True) -> tuple[float, ...]:
        """Seconds of each of ``runs`` single runs on the inputs of the last ``run``; see ``timed``."""
        return self._ask(Time(runs, most_seconds, warm_up), runs=WARM_UP_RUNS + runs)

    def use_threads(self, threads: int) -> None:
        """Compute with this many threads from now on. Only an original model can."""
        self._ask(UseThreads(threads), runs=0)

    def profile(self, runs: int) -> tuple[FunctionTime, ...]:
        """Time per function, its median over ``runs`` runs on the inputs of the last ``run``."""
        return self._ask(Profile(runs), runs=WARM_UP_RUNS + 1 + 2 * runs)

    def peak_memory_bytes(self) -> int:
        """How much loading and running have added to the process's largest resident set so far."""
        return self._ask(PeakMemory(), runs=0)

    def _ask(self, command: Command, runs: int) -> Any:
        seconds = self._client.timeouts.for_runs(runs, self._run_seconds)
        answer: Answer | Raised | Crashed = self._client.ask(CallLibrary(self._handle, command, seconds))
        match answer:
            case Answer(value):
                return value
            case Raised(detail):
                raise LibraryCrashedError(0, detail)
            case Crashed():
                raise _crash_error(answer)


@dataclass(frozen=True)
class ProcessSide:
    """A process as a side of an alternation; the server stops it between two turns, so it needs no rest.

    A crash names the side, if it has a ``name``.
    """

    process: ModelProcess
    most_seconds: float = math.inf
    name: str = ""
    rest_seconds: float = 0.0

    def time(self, runs: int, warm_up: bool = True) -> tuple[float, ...]:
        """See ``Side.time``."""
        with naming_crashes(self.name):
            return self.process.time(runs, self.most_seconds, warm_up)

    def use_threads(self, threads: int) -> None:
        """See ``ModelProcess.use_threads``."""
        with naming_crashes(self.name):
            self.process.use_threads(threads)

    def rest(self) -> None:
        """See ``Side.rest``."""


@contextmanager
def naming_crashes(name: str) -> Iterator[None]:
    """Put a name before the message of a ``LibraryCrashedError``, and into its ``side``."""
    try:
        yield
    except LibraryCrashedError as error:
        if not name:
            raise
        raise LibraryCrashedError(error.signal, f"{name}: {error}", side=name) from error


def _crash_error(crashed: Crashed) -> LibraryCrashedError | JobError:
    """Only another process or the kernel ends a library's process with SIGKILL."""
    if crashed.signal == SIGKILL:
        return JobError(ErrorCode.CHILD_KILLED, crashed.detail)
    return LibraryCrashedError(crashed.signal, crashed.detail)
