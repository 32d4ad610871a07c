"""Benchmark: how fast the library is, beside what its user would run otherwise."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import tvm

from bessemer.contract.options import Baseline
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BaselineResult, BenchmarkResult, FunctionTime, ThreadTrial
from bessemer.contract.stage import Stage
from worker.candidates.client import LibraryCrashedError, ModelProcess, ProcessSide, naming_crashes
from worker.compiler.pipeline.original import OriginalModel
from worker.compiler.pipeline.products import Product, find_products
from worker.compiler.values import Benchmarked, Captured, StageContext, Verified
from worker.errors import failure_of
from worker.measure.looks import Look, look, why_undecided, why_unsteady
from worker.measure.profiles import choose_profile
from worker.measure.rounds import Rounds, Side, alternate
from worker.measure.statistics import latency, round_ratios
from worker.protocol.observer import JobObserver

OURS = "the compiled library"

_ROUNDS_SECONDS = 3.0
"""How long the rounds may take until each side has 20 runs, where the request's seconds are too few."""
_PROFILE_SECONDS = 0.03
_MAX_PROFILE_RUNS = 20
_PROFILES_SECONDS = 0.5
_MAX_PROFILES = 5


def benchmark(verified: Verified, context: StageContext) -> Benchmarked:
    """Time the library in alternation with the baselines, each in a process of its own.

    Before: the library computes what the model computes. After: nothing has changed; there are figures, and
    those that do not hold at a second look say so.

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
class Entrant:
    """A baseline with the number of threads that suits it best, and its first look with each number."""

    name: str
    side: ProcessSide
    threads: int
    looks: dict[int, Look]


@dataclass(frozen=True)
class Looks:
    """One side, looked at three times: before the alternation, in it, and at the end."""

    name: str
    first: Look
    rounds: Look
    second: Look

    @property
    def unsteady(self) -> str:
        """Why these figures do not hold; empty where they do."""
        return why_unsteady(self.name, (self.first, self.rounds, self.second))


def _measure(verified: Verified, context: StageContext, captured: Captured) -> BenchmarkResult:
    options, threads = captured.upload.request.benchmark, captured.upload.threads
    path = verified.built.library
    with ExitStack() as processes:
        library = processes.enter_context(
            context.candidates.open_library(path, threads, verified.built.parameters)
        )
        library.run(captured.inputs)
        processes.enter_context(context.candidates.turn())
        finalists = tuple(_enter(name, captured, context, processes) for name in options.baselines)
        sides: tuple[Side, ...] = (
            ProcessSide(library, _turn_seconds(captured)),
            *(entrant.side for entrant in finalists),
        )
        first = look(sides[0])
        rounds = alternate(
            sides,
            options.seconds,
            partial(_report_rounds, context.observer),
            _ROUNDS_SECONDS,
        )
        second = tuple(map(look, sides))
        # last: a library that was profiled once runs slower from then on
        functions = _profile(library, rounds)
        ours = Looks(OURS, first, rounds.runs(0), second[0])
        return BenchmarkResult(
            latency=latency(ours.rounds),
            unsteady=ours.unsteady,
            threads=threads,
            library_bytes=path.stat().st_size,
            peak_memory_bytes=library.peak_memory_bytes(),
            baselines=tuple(
                describe_baseline(entrant, ours.unsteady, rounds, index, second[index])
                for index, entrant in enumerate(finalists, 1)
            ),
            functions=count_products(functions, verified.built.module),
        )


def _enter(name: Baseline, captured: Captured, context: StageContext, processes: ExitStack) -> Entrant:
    """Try the baseline with one thread and with all, one process after the other; the faster one stays.

    The mean decides: runs that stall must count against the number of threads with which they do.
    """
    looks = {}
    for threads in sorted({1, captured.upload.threads}):
        with ExitStack() as trial:
            looks[threads] = look(_open(name, threads, captured, context, trial))
    best = min(looks, key=lambda threads: fmean(looks[threads]))
    return Entrant(name.value, _open(name, best, captured, context, processes), best, looks)


def _open(
    name: Baseline, threads: int, captured: Captured, context: StageContext, processes: ExitStack
) -> ProcessSide:
    match name:
        case Baseline.TORCH_EAGER:
            with naming_crashes("torch eager"):
                runner = context.candidates.open_original(
                    partial(OriginalModel, captured.upload.path, threads)
                )
                processes.enter_context(runner)
                runner.run(captured.inputs)
            return ProcessSide(runner, _turn_seconds(captured), "torch eager")


def _report_rounds(observer: JobObserver, done: int, total: int) -> None:
    observer.progress(Stage.BENCHMARK, done, total, "rounds")


def _turn_seconds(captured: Captured) -> float:
    """How long a turn may take at most: several times what it is planned to."""
    return max(0.5, captured.upload.request.benchmark.seconds / 10)


def describe_baseline(
    entrant: Entrant, ours_unsteady: str, rounds: Rounds, side: int, second: Look
) -> BaselineResult:
    """What the report says of a baseline.

    Args:
        entrant: with its first look.
        ours_unsteady: why the library's own figures do not hold, if they do not.
        rounds: of all sides; the library's is the first.
        side: the baseline's index.
        second: the baseline's last look.
    """
    spread = round_ratios(rounds.sides[0], rounds.sides[side])
    spoken = entrant.side.name
    theirs = Looks(spoken, entrant.looks[entrant.threads], rounds.runs(side), second)
    return BaselineResult(
        name=entrant.name,
        threads=entrant.threads,
        latency=latency(theirs.rounds),
        ratio=spread.p50,
        ratio_p10=spread.p10,
        ratio_p90=spread.p90,
        trials=tuple(_trial(threads, each) for threads, each in entrant.looks.items()),
        second_look_ms=latency(second).p50_ms,
        unsteady=theirs.unsteady or why_undecided(spoken, entrant.threads, entrant.looks) or ours_unsteady,
    )


def _trial(threads: int, seconds: Look) -> ThreadTrial:
    found = latency(seconds)
    return ThreadTrial(threads=threads, runs=found.runs, p50_ms=found.p50_ms, min_ms=found.min_ms)


def count_products(functions: tuple[FunctionTime, ...], module: tvm.IRModule) -> tuple[FunctionTime, ...]:
    """Functions with what they multiply.

    Args:
        functions: as they were profiled.
        module: as it was before its functions were scheduled.
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


def _profile(library: ModelProcess, rounds: Rounds) -> tuple[FunctionTime, ...]:
    """Of one turn after another, until one agrees with the runs that were timed: a turn may be a busy one."""
    seconds = rounds.runs(0)
    runs = min(max(int(_PROFILE_SECONDS / min(seconds)), 1), _MAX_PROFILE_RUNS)
    turns = min(max(int(_PROFILES_SECONDS / min(seconds)), 1), _MAX_PROFILES)
    return choose_profile((library.profile(runs) for _ in range(turns)), latency(seconds).p50_ms)
