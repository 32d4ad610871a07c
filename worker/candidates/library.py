"""The process that holds one library: it loads, runs and times it."""

from __future__ import annotations

import ctypes
import math
import os
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

from bessemer.contract.report import RUNTIME, FunctionTime
from worker.candidates.process import Work, receive_value, send_value, use_threads
from worker.errors import short_message
from worker.measure.timed import timed

if TYPE_CHECKING:
    import numpy as np

    from worker.parameters import ParameterFile

_KIBIBYTE = 1024
MAIN = "main"
"""The function that runs a model; if it has several entry points, the first."""

ENTRY_PREFIX = "entry_"
"""The prefix of functions that run other entry points; the entry point's name follows."""

INPUT_CHECK = "check_input_"
"""The prefix of functions that only check an input."""

PARAMETER = "bessemer_parameter"
"""The library's function that returns a parameter by its index."""

_RUNTIME_PREFIXES = ("vm.builtin.", INPUT_CHECK, PARAMETER)
"""The virtual machine's own functions (allocation, checks)."""


@dataclass(frozen=True)
class Run:
    """Run a function once on these inputs and return the outputs."""

    inputs: tuple[np.ndarray, ...]
    function: str = MAIN


@dataclass(frozen=True)
class Time:
    """Return the seconds of each of ``runs`` runs, or of as many as ``most_seconds`` allows."""

    runs: int
    most_seconds: float = math.inf
    warm_up: bool = True


@dataclass(frozen=True)
class UseThreads:
    """Compute with this many threads from now on; only the original model can change their number."""

    threads: int


@dataclass(frozen=True)
class Profile:
    """Return the time per function over ``runs`` runs."""

    runs: int


@dataclass(frozen=True)
class PeakMemory:
    """Return how many bytes loading and running have added so far."""


@dataclass(frozen=True)
class Answer:
    """What a command returned."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The library raised."""

    detail: str


Command = Run | Time | UseThreads | Profile | PeakMemory


class Executor(Protocol):
    """A library or the original model, loaded in this process."""

    def execute(self, command: Command) -> Any:
        """Carry out a command and return its result."""
        ...


def served_work(payload: bytes) -> Work:
    """The work of a process that loads an executor with a pickled function and serves its commands."""

    def work(reader: int, writer: int) -> None:
        serve(lambda: cast("Executor", pickle.loads(payload)()), reader, writer)

    return work


def serve(load: Callable[[], Executor], reader: int, writer: int) -> None:
    """Load, report it, and answer commands until the pipe closes. An exception is an answer, too."""
    try:
        executor = load()
    except Exception as error:
        send_value(writer, Raised(short_message(error)))
        return
    send_value(writer, Answer(None))
    while True:
        send_value(writer, _answer(executor, receive_value(reader)))


def library_work(path: Path, threads: int, parameters: ParameterFile | None = None) -> Work:
    """The work of a process that loads the library at ``path`` and serves its commands."""

    def work(reader: int, writer: int) -> None:
        use_threads(threads)
        serve(partial(LoadedLibrary, path, parameters), reader, writer)

    return work


def _answer(executor: Executor, command: Command) -> Answer | Raised:
    try:
        return Answer(executor.execute(command))
    except Exception as error:
        return Raised(short_message(error))


class LoadedLibrary:
    """A library in this process."""

    def __init__(self, path: Path, parameters: ParameterFile | None = None) -> None:
        self._memory_at_start_bytes = _peak_resident_bytes()
        import tvm

        from bessemer.bundle.run import planned_functions

        self._tvm = tvm
        module = tvm.runtime.load_module(str(path))
        self._machine = tvm.relax.VirtualMachine(module, tvm.cpu())
        threads = int(os.environ["TVM_NUM_THREADS"])
        self._planned = planned_functions(ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD), threads)
        self._prepared = () if parameters is None else _prepared(self._machine, parameters)
        self._name = MAIN
        self._function = self._function_of(MAIN)
        self._arguments: tuple[Any, ...] = ()
        self._ran_on_machine = False

    def execute(self, command: Command) -> Any:
        """See ``Executor.execute``."""
        match command:
            case Run(inputs, function):
                return self.run(inputs, function)
            case Time(runs, most_seconds, warm_up):
                return self.time(runs, most_seconds, warm_up)
            case Profile(runs):
                return self.profile(runs)
            case PeakMemory():
                return self.added_memory_bytes()
        raise TypeError(f"{type(command).__name__} is for original models")

    def run(self, inputs: tuple[np.ndarray, ...], function: str = MAIN) -> tuple[np.ndarray, ...]:
        """Run once on copies of ``inputs`` and return the outputs, nested ones flattened."""
        self._name, self._function = function, self._function_of(function)
        self._ran_on_machine = False
        self._arguments = (*(self._tvm.runtime.tensor(array) for array in inputs), *self._prepared)
        return tuple(tensor.numpy() for tensor in _flat(self._function(*self._arguments)))

    def time(self, runs: int, most_seconds: float = math.inf, warm_up: bool = True) -> tuple[float, ...]:
        """See ``timed``."""
        return timed(partial(self._function, *self._arguments), runs, most_seconds, warm_up)

    def profile(self, runs: int) -> tuple[FunctionTime, ...]:
        """Time per function, its median over ``runs`` runs, largest first.

        The virtual machine allocates its memory in the first run after ``run``, where functions that write
        into new pages take up to three times as long. So the first profile runs it once more.

        The rest of an unobserved run is the runtime's own time, but no more than the virtual machine's calls
        took under observation: these many short calls seem longer there than they are.
        """
        run_seconds = median(self.time(runs))
        if not self._ran_on_machine:
            self._machine[self._name](*self._arguments)
            self._ran_on_machine = True
        timer = FunctionTimer()
        # TVM cannot remove an instrument, so the last one does nothing
        self._machine.set_instrument(timer.instrument)
        try:
            observed = self._machine[self._name]
            for _ in range(runs):
                observed(*self._arguments)
        finally:
            self._machine.module["set_instrument"](_ignore)
        return timer.functions(runs, run_seconds)

    def _function_of(self, name: str) -> Callable[..., Any]:
        """What a bundle's user runs: the planned calls, or the virtual machine if there are none."""
        first = next(iter(self._planned.values()), None)
        planned = first if name == MAIN else self._planned.get(name.removeprefix(ENTRY_PREFIX))
        return planned or self._machine[name]

    def added_memory_bytes(self) -> int:
        """How much the largest resident set has grown since the fork."""
        return _peak_resident_bytes() - self._memory_at_start_bytes


class FunctionTimer:
    """Measures the time between the two calls that the virtual machine makes around each function.

    Each pair of calls costs a microsecond or two. The shortest interval counts as that cost and is subtracted
    from every other.
    """

    def __init__(self) -> None:
        self._intervals: defaultdict[str, list[float]] = defaultdict(list)
        self._start_seconds = 0.0

    def instrument(self, _function: object, name: str, before: bool, _result: object, *_rest: object) -> int:
        """The virtual machine calls this before and after each function."""
        now = time.perf_counter()
        if before:
            self._start_seconds = time.perf_counter()
            return 0
        label = RUNTIME if name.startswith(_RUNTIME_PREFIXES) else name
        self._intervals[label].append(now - self._start_seconds)
        return 0

    def functions(self, runs: int, run_seconds: float) -> tuple[FunctionTime, ...]:
        """See ``profile_of``."""
        return profile_of(self._intervals, runs, run_seconds)


def profile_of(
    intervals: Mapping[str, Sequence[float]], runs: int, run_seconds: float
) -> tuple[FunctionTime, ...]:
    """The time of each function in one run, largest first.

    The time is the median over the runs of the sum of the function's calls: one interrupted call must not
    make a short function seem long.

    Args:
        intervals: the seconds of all calls of each function, in order.
        runs: how many runs made these calls.
        run_seconds: the time of one unobserved run; what the kernels do not use belongs to the runtime, up to
            the time of its observed calls.
    """
    overhead = min((min(each) for each in intervals.values()), default=0.0)
    of_runs = {name: _seconds_of_runs(each, runs, overhead) for name, each in intervals.items()}
    seconds = {name: median(each) for name, each in of_runs.items()}
    if RUNTIME in seconds:
        kernels = sum(value for name, value in seconds.items() if name != RUNTIME)
        observed = median(_seconds_of_runs(intervals[RUNTIME], runs, overhead=0.0))
        seconds[RUNTIME] = min(max(run_seconds - kernels, 0.0), observed)
    total = sum(seconds.values()) or 1.0
    return tuple(
        FunctionTime(
            name=name,
            calls=len(intervals[name]) // runs,
            milliseconds=seconds[name] * 1e3,
            best_milliseconds=min(*of_runs[name], seconds[name]) * 1e3,
            share=seconds[name] / total,
        )
        for name in sorted(seconds, key=lambda name: -seconds[name])
    )


def _seconds_of_runs(intervals: Sequence[float], runs: int, overhead: float) -> list[float]:
    calls = max(len(intervals) // runs, 1)
    starts = range(0, len(intervals), calls)
    return [sum(intervals[start : start + calls]) - overhead * calls for start in starts]


def _prepared(machine: Any, parameters: ParameterFile) -> tuple[Any, ...]:
    """The parameters as entry points take them, loaded as a bundle's user loads them."""
    from bessemer.bundle.run import ParameterReader

    wanted = ParameterReader(parameters.document.model_dump(mode="json"))
    return wanted.prepared(machine[wanted.prepare], parameters.path)


def _ignore(*_arguments: object) -> int:
    return 0


def _flat(value: Any) -> list[Any]:
    if hasattr(value, "numpy"):
        return [value]
    return [tensor for item in value for tensor in _flat(item)]


def _peak_resident_bytes() -> int:
    # /proc cannot be read inside the sandbox.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE
