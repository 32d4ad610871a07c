"""A process per runtime: it loads the model, returns its outputs and takes turns.

It is stopped between commands, so that its threads don't spin during another side's turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from worker.candidates.process import ForkedProcess, Work, fork_process, receive_value, send_value
from worker.measure.timed import timed

Arrays = tuple[np.ndarray, ...]
Mode = Callable[[], AbstractContextManager[Any]]

LOAD_SECONDS = 900.0
RUN_SECONDS = 600.0
BUSY_SECONDS = 0.3
BUSY_SHARE = 0.1


class MissingError(Exception):
    """The runtime is not installed."""


class SideFailedError(Exception):
    """A side is missing (``missing``) or failed."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to run: ``call`` runs it, ``read`` converts the result to arrays.

    ``mode`` is a context around everything.
    """

    call: Callable[[], object]
    read: Callable[[Any], Arrays]
    mode: Mode = nullcontext


@dataclass(frozen=True)
class Ready:
    """The side has run once."""

    outputs: Arrays
    seconds: float


@dataclass(frozen=True)
class Unready:
    """The side cannot run."""

    reason: str
    missing: bool


@dataclass(frozen=True)
class TimeRuns:
    """Return the seconds of each of ``runs`` runs, after a warm-up if ``warm``."""

    runs: int
    warm: bool = True


@dataclass(frozen=True)
class CountThreads:
    """Return the number of threads that use the processor while the model runs."""


@dataclass
class SideProcess:
    """One side of the alternation, in the parent."""

    process: ForkedProcess
    ready: Ready
    rest_seconds: float = field(default=0.0, init=False)

    @classmethod
    def start(cls, load: Callable[[], Loaded], log: Path) -> Self:
        """Fork a process that loads a model and runs it once.

        Args:
            load: called in the new process.
            log: the file for its output.

        Raises:
            SideFailedError: it is missing, raised, died or timed out.
        """
        process = fork_process(side_work(load, log))
        return cls(process, first_answer(process))

    def time(self, runs: int) -> tuple[float, ...]:
        """See ``worker.measure.rounds.Side.time``."""
        return self._ask(TimeRuns(runs))

    def time_cold(self) -> float:
        """Seconds of one run without warm-up, for slow models."""
        return self._ask(TimeRuns(1, warm=False))[0]

    def busy_threads(self) -> int:
        """Number of threads that use the processor while the model runs."""
        return self._ask(CountThreads())

    def rest(self) -> None:
        """See ``worker.measure.rounds.Side.rest``: it is already stopped."""

    def close(self) -> None:
        """End the process."""
        self.process.kill()

    def _ask(self, command: TimeRuns | CountThreads) -> Any:
        self.process.resume()
        self.process.send(command)
        answer = receive(self.process, RUN_SECONDS)
        stop(self.process)
        if isinstance(answer, Unready):
            raise SideFailedError(answer.reason)
        return answer


def stop(process: ForkedProcess) -> None:
    """Stop a process; returns when all of its threads have stopped."""
    process.pause()
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def first_answer(process: ForkedProcess) -> Any:
    """The first answer of a process that loads a model, which then stops until it is resumed.

    Raises:
        SideFailedError: the model is missing, or the process raised, died or timed out. It is killed.
    """
    try:
        answer = receive(process, LOAD_SECONDS)
    except SideFailedError:
        process.kill()
        raise
    if isinstance(answer, Unready):
        process.kill()
        raise SideFailedError(answer.reason, answer.missing)
    stop(process)
    return answer


def receive(process: ForkedProcess, seconds: float) -> Any:
    """Return the next message of a process.

    Raises:
        SideFailedError: it ended or timed out.
    """
    if not process.wait_readable(seconds):
        raise SideFailedError(f"no answer within {seconds:g} s")
    try:
        return process.receive()
    except EOFError:
        raise SideFailedError("its process ended") from None


def side_work(load: Callable[[], Loaded], log: Path) -> Work:
    """The main function of a side's process."""

    def work(reader: int, writer: int) -> None:
        print_to(log)
        start = time.perf_counter()
        try:
            loaded = load()
            with loaded.mode():
                outputs = loaded.read(loaded.call())
                send_value(writer, Ready(outputs, time.perf_counter() - start))
                while True:
                    send_value(writer, _answer(loaded, receive_value(reader)))
        except (EOFError, BrokenPipeError):
            raise
        except MissingError as error:
            send_value(writer, Unready(str(error), missing=True))
        except Exception as error:
            send_value(writer, Unready(f"{type(error).__name__}: {error}"[:500], missing=False))

    return work


def print_to(log: Path) -> None:
    """Append the output of this process and its children to a file."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def busy_threads(call: Callable[[], object]) -> int:
    """Count threads that use at least a tenth of the busiest thread's time while ``call`` repeats.

    Threads are compared with each other, not with the clock, because the machine may be loaded.
    """
    before, start = _thread_nanoseconds(), time.perf_counter()
    while time.perf_counter() - start < BUSY_SECONDS:
        call()
    taken = [now - before.get(thread, 0) for thread, now in _thread_nanoseconds().items()]
    return sum(each > BUSY_SHARE * max(taken) for each in taken)


def _answer(loaded: Loaded, command: TimeRuns | CountThreads) -> object:
    match command:
        case CountThreads():
            return busy_threads(loaded.call)
        case TimeRuns(runs, warm=True):
            return timed(loaded.call, runs)
        case TimeRuns():
            start = time.perf_counter()
            loaded.call()
            return (time.perf_counter() - start,)


def _thread_nanoseconds() -> dict[str, int]:
    """Processor time per thread; threads that end are left out."""
    found: dict[str, int] = {}
    for folder in Path("/proc/self/task").iterdir():
        try:
            found[folder.name] = int((folder / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return found
