"""The job child's handle on the candidate server, which forks every build and every measuring process.

The server is forked right after confinement, before anything ran in parallel: forking after a torch or TVM
parallel region hangs the child at its next one.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import FunctionTime
from worker.candidates.library import Answer, Command, PeakMemory, Profile, Raised, Run, Served, Time
from worker.candidates.process import ForkedProcess
from worker.candidates.requests import (
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
from worker.candidates.timeouts import DEFAULT_TIMEOUTS, Timeouts
from worker.errors import JobError
from worker.measure.timed import WARM_UP_RUNS
from worker.measure.turns import ANY_TIME, Turns
from worker.signals import signal_name

if TYPE_CHECKING:
    import numpy as np

    from worker.parameters import ParameterFile

    Arrays = tuple[np.ndarray, ...]

_HEARTBEAT_SECONDS = 1.0
"""How often the progress of a batch is reported, even if it has not changed."""


class LibraryCrashedError(Exception):
    """A process that ran a library died; ``signal`` says how (0: it hung, ended by itself or raised)."""

    def __init__(self, signal: int, detail: str) -> None:
        super().__init__(detail)
        self.signal = signal


class CandidateServerLostError(JobError):
    """The candidate server itself is gone: killed from outside, or by a defect of ours."""

    def __init__(self, number: int) -> None:
        code = ErrorCode.CHILD_KILLED if number == SIGKILL else ErrorCode.CHILD_CRASHED
        how = f"was ended by {signal_name(number)}" if number else "ended by itself"
        super().__init__(code, f"the candidate server {how}")


class Runner(Protocol):
    """A library or the original model, loaded in a process of its own that runs nothing else."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, inputs: Arrays) -> Arrays:
        """Run it once on copies of the inputs and return its outputs, nested ones flattened.

        Raises:
            LibraryCrashedError: the process died or did not answer in time, or the library or model raised.
            JobError: ``child-killed``: somebody ended the process by SIGKILL.
        """
        ...

    def time(self, runs: int, most_seconds: float = math.inf) -> tuple[float, ...]:
        """Seconds of each of ``runs`` single runs on the inputs of the last ``run``; see ``timed``."""
        ...


class Library(Runner, Protocol):
    """A library, loaded in a process of its own that runs nothing else."""

    def profile(self, runs: int) -> tuple[FunctionTime, ...]:
        """Time per function, its median over ``runs`` runs on the inputs of the last ``run``."""
        ...

    def peak_memory_bytes(self) -> int:
        """What loading and running have added to the process's largest resident set so far."""
        ...


class Candidates(Protocol):
    """What the pipeline asks of the candidate server."""

    def open_library(self, path: Path, threads: int, parameters: ParameterFile | None = None) -> Library:
        """Fork a process and load the library in it with ``TVM_NUM_THREADS`` = ``threads``.

        Args:
            path: the library.
            threads: with how many it computes.
            parameters: those that it does not contain.

        Raises:
            LibraryCrashedError: the library could not be loaded, or not in time.
            JobError: ``child-killed``: somebody ended the process by SIGKILL.
        """
        ...

    def open_original(self, load: Callable[[], Served]) -> Runner:
        """Fork a process and load the original model in it.

        Args:
            load: loads the model; called in that process, so it can be pickled.

        Raises:
            LibraryCrashedError: the model could not be loaded, or not in time.
            JobError: ``child-killed``: another process sent SIGKILL.
        """
        ...

    def build_many(self, batch: BuildBatch) -> tuple[BuildOutcome, ...]:
        """Compile candidates, several at once; one that fails is an outcome, never an exception."""
        ...

    def compile_many(
        self, batch: CompileBatch, on_progress: Callable[[CompileProgress], None]
    ) -> tuple[CompileOutcome, ...]:
        """Compile groups of functions, several at once; one that fails is an outcome, never an exception.

        Args:
            batch: the groups.
            on_progress: called with the batch's progress, whenever it changes and about once a second.
        """
        ...

    def measure_many(self, batch: MeasureBatch) -> tuple[MeasureOutcome, ...]:
        """Time candidates one after the other; one that fails is an outcome, never an exception.

        It is a turn of its own.
        """
        ...

    def turn(self) -> AbstractContextManager[None]:
        """While the context lasts, no other job on this host measures."""
        ...


class CandidateClient:
    """Talks to a forked candidate server; one request at a time.

    Attributes:
        lost: how the server was lost, if it was; an exception that passes through TVM's callbacks forgets it.
    """

    def __init__(
        self, server: ForkedProcess, timeouts: Timeouts = DEFAULT_TIMEOUTS, turns: Turns = ANY_TIME
    ) -> None:
        self._server = server
        self._turns = turns
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

    def open_library(
        self, path: Path, threads: int, parameters: ParameterFile | None = None
    ) -> ServedLibrary:
        """See ``Candidates.open_library``."""
        return self._open(OpenLibrary(str(path), threads, self.timeouts.load_seconds, parameters))

    def open_original(self, load: Callable[[], Served]) -> ServedLibrary:
        """See ``Candidates.open_original``."""
        return self._open(OpenOriginal(pickle.dumps(load), self.timeouts.load_seconds))

    def _open(self, request: OpenLibrary | OpenOriginal) -> ServedLibrary:
        opened = self.ask(request)
        if isinstance(opened, Crashed):
            raise _loss(opened)
        assert isinstance(opened, Opened)
        return ServedLibrary(self, opened.handle)

    def build_many(self, batch: BuildBatch) -> tuple[BuildOutcome, ...]:
        """See ``Candidates.build_many``."""
        return self.ask(batch)

    def compile_many(
        self, batch: CompileBatch, on_progress: Callable[[CompileProgress], None]
    ) -> tuple[CompileOutcome, ...]:
        """See ``Candidates.compile_many``."""
        last = self.ask(batch)
        while isinstance(last, CompileProgress):
            on_progress(last)
            if self._server.wait_readable(_HEARTBEAT_SECONDS):
                last = self._receive()
        assert isinstance(last, tuple)
        return last

    def measure_many(self, batch: MeasureBatch) -> tuple[MeasureOutcome, ...]:
        """See ``Candidates.measure_many``."""
        with self.turn():
            return self.ask(batch)

    def turn(self) -> AbstractContextManager[None]:
        """See ``Candidates.turn``."""
        return self._turns.turn()

    def ask(self, request: Request) -> Any:
        """Send a request and wait for its answer.

        Raises:
            CandidateServerLostError: the server is gone.
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


class ServedLibrary:
    """A library or model in a process of the candidate server's."""

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
        """End the library's process."""
        self._client.ask(CloseLibrary(self._handle))

    def run(self, inputs: Arrays) -> Arrays:
        """See ``Library.run``."""
        start = time.perf_counter()
        outputs = self._ask(Run(inputs), runs=1)
        self._run_seconds = time.perf_counter() - start
        return outputs

    def time(self, runs: int, most_seconds: float = math.inf) -> tuple[float, ...]:
        """See ``Library.time``."""
        return self._ask(Time(runs, most_seconds), runs=WARM_UP_RUNS + runs)

    def profile(self, runs: int) -> tuple[FunctionTime, ...]:
        """See ``Library.profile``."""
        return self._ask(Profile(runs), runs=WARM_UP_RUNS + 2 * runs)

    def peak_memory_bytes(self) -> int:
        """See ``Library.peak_memory_bytes``."""
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
                raise _loss(answer)


def _loss(crashed: Crashed) -> LibraryCrashedError | JobError:
    """How a library's process was lost; by SIGKILL it is ended from outside only, or by the kernel."""
    if crashed.signal == SIGKILL:
        return JobError(ErrorCode.CHILD_KILLED, crashed.detail)
    return LibraryCrashedError(crashed.signal, crashed.detail)
