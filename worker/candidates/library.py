"""The process that holds one library: it loads it, runs it, times it."""

from __future__ import annotations

import math
import pickle
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol, cast

from bessemer.contract.report import FunctionTime
from worker.candidates import wire
from worker.candidates.process import Work
from worker.candidates.threads import use_threads
from worker.errors import short_message
from worker.measure.timed import timed

if TYPE_CHECKING:
    import numpy as np

    from worker.parameters import ParameterFile

_KIBIBYTE = 1024
_RUNTIME_PREFIX = "vm.builtin."
RUNTIME = "runtime"
"""All of the virtual machine's own functions (allocation, checks) together."""


@dataclass(frozen=True)
class Run:
    """Run once on these inputs and answer with the outputs."""

    inputs: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Time:
    """Answer with the seconds of each of ``runs`` runs, or of as many as ``most_seconds`` allows."""

    runs: int
    most_seconds: float = math.inf


@dataclass(frozen=True)
class Profile:
    """Answer with the time per function over ``runs`` runs."""

    runs: int


@dataclass(frozen=True)
class PeakMemory:
    """Answer with the bytes that loading and running have added so far."""


@dataclass(frozen=True)
class Answer:
    """The value that a command asked for."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The library raised."""

    detail: str


Command = Run | Time | Profile | PeakMemory


class Served(Protocol):
    """What a process of its own holds, and runs on command."""

    def answer(self, command: Command) -> Any:
        """Do what the command says, and return what it asks for."""
        ...


def served_work(payload: bytes) -> Work:
    """The work of a process that serves commands on what a pickled function loads."""

    def work(reader: int, writer: int) -> None:
        serve(lambda: cast("Served", pickle.loads(payload)()), reader, writer)

    return work


def serve(load: Callable[[], Served], reader: int, writer: int) -> None:
    """Load, say so, and answer commands until they end; what raises is an answer too."""
    try:
        served = load()
    except Exception as error:
        wire.send(writer, Raised(short_message(error)))
        return
    wire.send(writer, Answer(None))
    while True:
        wire.send(writer, _answer(served, wire.receive(reader)))


def library_work(path: Path, threads: int, parameters: ParameterFile | None = None) -> Work:
    """The work of a process that serves commands on the library at ``path``."""

    def work(reader: int, writer: int) -> None:
        use_threads(threads)
        serve(partial(LoadedLibrary, path, parameters), reader, writer)

    return work


def _answer(served: Served, command: Command) -> Answer | Raised:
    try:
        return Answer(served.answer(command))
    except Exception as error:
        return Raised(short_message(error))


class LoadedLibrary:
    """A library in this very process."""

    def __init__(self, path: Path, parameters: ParameterFile | None = None) -> None:
        self._memory_at_start_bytes = _peak_resident_bytes()
        import tvm

        self._tvm = tvm
        module = tvm.runtime.load_module(str(path))
        self._machine = tvm.relax.VirtualMachine(module, tvm.cpu())
        self._main = self._machine["main"]
        if parameters is not None:
            self._main = _with_parameters(self._machine, self._main, parameters)
        self._arguments: tuple[Any, ...] = ()

    def answer(self, command: Command) -> Any:
        """See ``Served.answer``."""
        match command:
            case Run(inputs):
                return self.run(inputs)
            case Time(runs, most_seconds):
                return self.time(runs, most_seconds)
            case Profile(runs):
                return self.profile(runs)
            case PeakMemory():
                return self.added_memory_bytes()

    def run(self, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Run once on copies of ``inputs``; the outputs, nested ones flattened."""
        self._arguments = tuple(self._tvm.runtime.tensor(array) for array in inputs)
        return tuple(tensor.numpy() for tensor in _flat(self._main(*self._arguments)))

    def time(self, runs: int, most_seconds: float = math.inf) -> tuple[float, ...]:
        """See ``timed``."""
        return timed(partial(self._main, *self._arguments), runs, most_seconds)

    def profile(self, runs: int) -> tuple[FunctionTime, ...]:
        """Time per function, its median over ``runs`` runs, largest first.

        What remains of an unobserved run is the virtual machine's own time; observed, its many short calls
        would seem longer than they are.
        """
        run_seconds = median(self.time(runs))
        stopwatch = Stopwatch()
        # An instrument stays for good: the last one is a no-op.
        self._machine.set_instrument(stopwatch.instrument)
        try:
            for _ in range(runs):
                self._main(*self._arguments)
        finally:
            self._machine.module["set_instrument"](_ignore)
        return stopwatch.functions(runs, run_seconds)

    def added_memory_bytes(self) -> int:
        """How far the process's largest resident set lies above its size when it was forked."""
        return _peak_resident_bytes() - self._memory_at_start_bytes


class Stopwatch:
    """Takes the time between the two calls that the virtual machine makes around each function.

    Those calls cost a microsecond or two each; the shortest interval of all is taken to be that cost alone,
    and is taken off every other.
    """

    def __init__(self) -> None:
        self._intervals: defaultdict[str, list[float]] = defaultdict(list)
        self._start_seconds = 0.0

    def instrument(self, _function: object, name: str, before: bool, _result: object, *_rest: object) -> int:
        """What the virtual machine calls before and after each function."""
        now = time.perf_counter()
        if before:
            self._start_seconds = time.perf_counter()
            return 0
        label = RUNTIME if name.startswith(_RUNTIME_PREFIX) else name
        self._intervals[label].append(now - self._start_seconds)
        return 0

    def functions(self, runs: int, run_seconds: float) -> tuple[FunctionTime, ...]:
        """The time of each function in a run of ``run_seconds``, over ``runs`` runs; largest first."""
        return profile_of(self._intervals, runs, run_seconds)


def profile_of(
    intervals: Mapping[str, Sequence[float]], runs: int, run_seconds: float
) -> tuple[FunctionTime, ...]:
    """The time of each function in one run, largest first.

    A function's calls within a run are added up, and the median over the runs is taken: one call that was
    interrupted must not make a short function seem long.

    Args:
        intervals: the seconds of all calls of each function, in the order in which they were made.
        runs: how many runs made them.
        run_seconds: of one run that nobody observed; what the kernels leave of it is the runtime's.
    """
    overhead = min((min(each) for each in intervals.values()), default=0.0)
    of_runs = {name: _seconds_of_runs(each, runs, overhead) for name, each in intervals.items()}
    seconds = {name: median(each) for name, each in of_runs.items()}
    if RUNTIME in seconds:
        kernels = sum(value for name, value in seconds.items() if name != RUNTIME)
        seconds[RUNTIME] = max(run_seconds - kernels, 0.0)
    total = sum(seconds.values()) or 1.0
    return tuple(
        FunctionTime(
            name=name,
            calls=len(intervals[name]) // runs,
            milliseconds=seconds[name] * 1e3,
            best_milliseconds=min(of_runs[name]) * 1e3,
            share=seconds[name] / total,
        )
        for name in sorted(seconds, key=lambda name: -seconds[name])
    )


def _seconds_of_runs(intervals: Sequence[float], runs: int, overhead: float) -> list[float]:
    calls = max(len(intervals) // runs, 1)
    starts = range(0, len(intervals), calls)
    return [sum(intervals[start : start + calls]) - overhead * calls for start in starts]


def _with_parameters(machine: Any, main: Callable[..., Any], parameters: ParameterFile) -> Callable[..., Any]:
    """``main`` of the inputs alone, its parameters loaded as a bundle's user loads them."""
    from bessemer.bundle.run import ParameterReader

    wanted = ParameterReader(parameters.document.model_dump(mode="json"))
    return wanted.bind(main, machine[wanted.prepare], parameters.path)


def _ignore(*_arguments: object) -> int:
    return 0


def _flat(value: Any) -> list[Any]:
    if hasattr(value, "numpy"):
        return [value]
    return [tensor for item in value for tensor in _flat(item)]


def _peak_resident_bytes() -> int:
    # /proc cannot be read inside the sandbox.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE
