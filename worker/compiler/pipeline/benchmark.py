"""Benchmark: measures the library beside the baselines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import tvm

from bessemer.contract.options import Baseline
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BaselineResult, BenchmarkResult, FunctionTime, ThreadTrial
from worker.candidates.client import Library, LibraryCrashedError, Runner
from worker.candidates.library import Command, Run, Time
from worker.candidates.side import LibrarySide
from worker.compiler.codegen.flops import Product, find_products
from worker.compiler.frontend.load import load_model
from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.values import Benchmarked, Captured, StageContext, Verified
from worker.errors import failure_of
from worker.measure.looks import Look, look, why_undecided, why_unsteady
from worker.measure.profiles import choose_profile
from worker.measure.rounds import Rounds, Side, alternate
from worker.measure.statistics import latency, round_ratios
from worker.measure.timed import timed
from worker.tensors import as_array, as_tensor

if TYPE_CHECKING:
    import numpy as np


OURS = "the compiled library"

_ROUNDS_SECONDS = 3.0
"""Limit of the rounds that give each side 20 runs where the request's seconds are too short for that."""
_PROFILE_SECONDS = 0.03
_MAX_PROFILE_RUNS = 20
_PROFILES_SECONDS = 0.5
_MAX_PROFILES = 5


def benchmark(verified: Verified, context: StageContext) -> Benchmarked:
    """Time the library in alternation with the baselines, each in a process of its own.

    Before: the library is verified. After: the library is unchanged and has figures; a figure that a second
    measurement contradicts is marked as unsteady.

    Raises:
        JobError: ``benchmark-failed``: the library crashed or a baseline raised under repetition.
    """
    captured = verified.captured
    try:
        result = _measure(verified, context, captured)
    except LibraryCrashedError as error:
        raise failure_of(ErrorCode.BENCHMARK_FAILED, error, str(error)) from error
    return Benchmarked(verified=verified, result=result)


@dataclass(frozen=True)
class OriginalSide:
    """The original model in a process of its own, as a side of an alternation.

    Raises:
        JobError: ``benchmark-failed``: the model raised, or its process ended.
    """

    name: str
    runner: Runner
    most_seconds: float
    rest_seconds: float = 0.0

    def time(self, runs: int) -> tuple[float, ...]:
        """See ``Side.time``."""
        with _named(self.name):
            return self.runner.time(runs, self.most_seconds)

    def rest(self) -> None:
        """See ``Side.rest``: its process is stopped between turns."""


@dataclass(frozen=True)
class MeasuredBaseline:
    """A baseline with its fastest number of threads, and its first measurement with each number."""

    name: str
    side: OriginalSide
    threads: int
    trials: dict[int, Look]


@dataclass(frozen=True)
class SideTimes:
    """The run times of one side, measured before, during and after the alternation."""

    name: str
    first: Look
    rounds: Look
    second: Look

    @property
    def unsteady(self) -> str:
        """Why the figures are unsteady; empty if they are steady."""
        return why_unsteady(self.name, (self.first, self.rounds, self.second))


def _measure(verified: Verified, context: StageContext, captured: Captured) -> BenchmarkResult:
    options, threads = captured.upload.request.benchmark, captured.upload.target.threads
    path = verified.built.library
    with ExitStack() as processes:
        library = processes.enter_context(
            context.candidates.open_library(path, threads, verified.built.parameters)
        )
        library.run(captured.inputs)
        processes.enter_context(context.candidates.turn())
        baselines = tuple(_choose_threads(name, captured, context, processes) for name in options.baselines)
        sides: tuple[Side, ...] = (
            LibrarySide(library, _turn_seconds(captured)),
            *(baseline.side for baseline in baselines),
        )
        first = look(sides[0])
        rounds = alternate(
            sides, options.seconds, lambda done, of: context.advance(done, of, "rounds"), _ROUNDS_SECONDS
        )
        second = tuple(map(look, sides))
        # last, since a library runs slower once it has been profiled
        functions = _profile(library, rounds)
        ours = SideTimes(OURS, first, rounds.runs(0), second[0])
        return BenchmarkResult(
            latency=latency(ours.rounds),
            unsteady=ours.unsteady,
            threads=threads,
            library_bytes=path.stat().st_size,
            peak_memory_bytes=library.peak_memory_bytes(),
            baselines=tuple(
                describe_baseline(baseline, ours.unsteady, rounds, index, second[index])
                for index, baseline in enumerate(baselines, 1)
            ),
            functions=count_products(functions, verified.built.module),
        )


def _choose_threads(
    name: Baseline, captured: Captured, context: StageContext, processes: ExitStack
) -> MeasuredBaseline:
    """Measure a baseline with one thread and with all, and keep the faster.

    The mean decides, so that stalled runs count against the number of threads that causes them.
    """
    trials = {}
    for threads in sorted({1, captured.upload.target.threads}):
        with ExitStack() as trial:
            trials[threads] = look(_open(name, threads, captured, context, trial))
    best = min(trials, key=lambda threads: fmean(trials[threads]))
    return MeasuredBaseline(name.value, _open(name, best, captured, context, processes), best, trials)


def _open(
    name: Baseline, threads: int, captured: Captured, context: StageContext, processes: ExitStack
) -> OriginalSide:
    match name:
        case Baseline.TORCH_EAGER:
            with _named("torch eager"):
                runner = context.candidates.open_original(
                    partial(OriginalModel, captured.upload.path, threads)
                )
                processes.enter_context(runner)
                runner.run(captured.inputs)
            return OriginalSide("torch eager", runner, _turn_seconds(captured))


def _turn_seconds(captured: Captured) -> float:
    """The limit of one turn: several times its planned length."""
    return max(0.5, captured.upload.request.benchmark.seconds / 10)


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except LibraryCrashedError as error:
        raise failure_of(ErrorCode.BENCHMARK_FAILED, error, f"{name}: {error}") from error


def describe_baseline(
    baseline: MeasuredBaseline, ours_unsteady: str, rounds: Rounds, side: int, second: Look
) -> BaselineResult:
    """Describe a baseline for the report.

    Args:
        baseline: the baseline with its first measurement.
        ours_unsteady: why the library's own figures are unsteady; empty if they are steady.
        rounds: the rounds of all sides; the library is the first.
        side: the baseline's index.
        second: the baseline's last measurement.
    """
    spread = round_ratios(rounds.sides[0], rounds.sides[side])
    label = baseline.side.name
    theirs = SideTimes(label, baseline.trials[baseline.threads], rounds.runs(side), second)
    return BaselineResult(
        name=baseline.name,
        threads=baseline.threads,
        latency=latency(theirs.rounds),
        ratio=spread.p50,
        ratio_p10=spread.p10,
        ratio_p90=spread.p90,
        trials=tuple(_trial(threads, each) for threads, each in baseline.trials.items()),
        second_look_ms=latency(second).p50_ms,
        unsteady=theirs.unsteady or why_undecided(label, baseline.threads, baseline.trials) or ours_unsteady,
    )


def _trial(threads: int, seconds: Look) -> ThreadTrial:
    found = latency(seconds)
    return ThreadTrial(threads=threads, runs=found.runs, p50_ms=found.p50_ms, min_ms=found.min_ms)


def count_products(functions: tuple[FunctionTime, ...], module: tvm.IRModule) -> tuple[FunctionTime, ...]:
    """Add the work of their products to profiled functions.

    Args:
        functions: the functions as profiled.
        module: the module before its functions were scheduled.
    """
    known = {
        variable.name_hint: find_products(function)
        for variable, function in module.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    return tuple(_with_products(function, known.get(function.name, ())) for function in functions)


def _with_products(function: FunctionTime, products: tuple[Product, ...]) -> FunctionTime:
    flops = function.calls * sum(product.flops for product in products)
    shapes = "; ".join(product.shapes for product in products)
    return function.model_copy(update={"flops": flops, "products": shapes})


def _profile(library: Library, rounds: Rounds) -> tuple[FunctionTime, ...]:
    """Profile in turns until one agrees with the timed runs, since the machine may be busy in a turn."""
    seconds = rounds.runs(0)
    runs = min(max(int(_PROFILE_SECONDS / min(seconds)), 1), _MAX_PROFILE_RUNS)
    turns = min(max(int(_PROFILES_SECONDS / min(seconds)), 1), _MAX_PROFILES)
    return choose_profile((library.profile(runs) for _ in range(turns)), latency(seconds).p50_ms)


class OriginalModel:
    """The model as its user runs it, in this process, under ``inference_mode``."""

    def __init__(self, path: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self._eager = load_model(path).eager
        self._tensors: tuple[torch.Tensor, ...] = ()

    def answer(self, command: Command) -> Any:
        """See ``Served.answer``.

        Raises:
            TypeError: the command is for libraries only.
        """
        match command:
            case Run(inputs):
                return self.run(inputs)
            case Time(runs, most_seconds):
                return self.time(runs, most_seconds)
        raise TypeError(f"{type(command).__name__} is for libraries")

    def run(self, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Run once on copies of ``inputs`` and return the flattened outputs."""
        self._tensors = tuple(map(as_tensor, inputs))
        with torch.inference_mode():
            return tuple(map(as_array, flatten_outputs(self._eager(*self._tensors))))

    def time(self, runs: int, most_seconds: float) -> tuple[float, ...]:
        """See ``timed``."""
        with torch.inference_mode():
            return timed(partial(self._eager, *self._tensors), runs, most_seconds)
