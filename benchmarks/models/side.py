"""A process of its own for each way to run a model: it loads, answers with its outputs, and takes its turns.

It is stopped between two commands, so that no thread of its pool looks for work in another side's turn.
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
    """This way to run a model is not installed here."""


class SideFailedError(Exception):
    """A side is missing or failed; ``missing`` tells which."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to run: ``call`` runs it, ``read`` makes arrays of what ``call`` returned.

    ``mode`` is entered around everything.
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
    """Answer with the seconds of each of ``runs`` runs; without ``warm`` of the very next ones."""

    runs: int
    warm: bool = True


@dataclass(frozen=True)
class CountThreads:
    """Answer with the number of threads that burn processor time while the model runs."""


@dataclass
class SideProcess:
    """The other end: one side of the alternation."""

    process: ForkedProcess
    ready: Ready
    rest_seconds: float = field(default=0.0, init=False)

    @classmethod
    def start(cls, load: Callable[[], Loaded], log: Path) -> Self:
        """Fork a process that loads a model and runs it once.

        Args:
            load: called in the process.
            log: takes what it prints.

        Raises:
            SideFailedError: it is missing, raised, died or took too long.
        """
        process = fork_process(side_work(load, log))
        try:
            answer = receive(process, LOAD_SECONDS)
        except SideFailedError:
            process.kill()
            raise
        if isinstance(answer, Unready):
            process.kill()
            raise SideFailedError(answer.reason, answer.missing)
        stop(process)
        return cls(process, answer)

    def time(self, runs: int) -> tuple[float, ...]:
        """See ``worker.measure.rounds.Side.time``."""
        return self._ask(TimeRuns(runs))

    def time_cold(self) -> float:
        """Seconds of a single run without warm-up, for what takes seconds."""
        return self._ask(TimeRuns(1, warm=False))[0]

    def busy_threads(self) -> int:
        """How many threads burn processor time while the model runs."""
        return self._ask(CountThreads())

    def rest(self) -> None:
        """See ``worker.measure.rounds.Side.rest``: it is stopped already."""

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
    """Stop a process; returns when all of its threads stand still."""
    process.pause()
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def receive(process: ForkedProcess, seconds: float) -> Any:
    """What a process sends next.

    Raises:
        SideFailedError: it ended, or sent nothing in time.
    """
    if not process.wait_readable(seconds):
        raise SideFailedError(f"no answer within {seconds:g} s")
    try:
        return process.receive()
    except EOFError:
        raise SideFailedError("its process ended") from None


def side_work(load: Callable[[], Loaded], log: Path) -> Work:
    """The work of a side's process."""

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
    """Send what this process and its children print to the end of a file."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def busy_threads(call: Callable[[], object]) -> int:
    """Threads of this process that take a tenth of the busiest one's time while ``call`` is repeated.

    Compared with each other, not with the clock: a loaded machine gives all of them less.
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
    """Time on a processor by thread; a thread that ends meanwhile is left out."""
    found: dict[str, int] = {}
    for folder in Path("/proc/self/task").iterdir():
        try:
            found[folder.name] = int((folder / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return found
