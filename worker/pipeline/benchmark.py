"""Benchmark: how fast the library is, beside what its user would run otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import tvm

from bessemer.contract.options import Baseline
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BaselineResult, BenchmarkResult, FunctionTime
from worker.candidates.client import Library, LibraryCrashedError
from worker.candidates.side import LibrarySide
from worker.errors import failure_of, short_message
from worker.measure.profiles import choose_profile
from worker.measure.rounds import Rounds, Side, alternate, rest_of_this_process
from worker.measure.timed import timed
from worker.pipeline.arrays import as_tensor
from worker.pipeline.products import Product, find_products
from worker.pipeline.types import Benchmarked, Captured, Verified, Workshop
from worker.statistics import latency, round_ratios

_PROFILE_SECONDS = 0.03
_MAX_PROFILE_RUNS = 20
_PROFILES_SECONDS = 0.5
_MAX_PROFILES = 5


def benchmark(verified: Verified, workshop: Workshop) -> Benchmarked:
    """Time the library in a process of its own, in alternation with the baselines, on the reference inputs.

    Before: the library computes what the model computes; torch runs with the target's
    threads. After: nothing has changed; there are figures.

    Raises:
        JobError: ``benchmark-failed``: the library crashed or a baseline raised under repetition.
    """
    captured = verified.captured
    try:
        result = _measure(verified, workshop, captured)
    except LibraryCrashedError as error:
        raise failure_of(ErrorCode.BENCHMARK_FAILED, error, str(error)) from error
    return Benchmarked(verified=verified, result=result)


@dataclass(frozen=True)
class EagerSide:
    """The model as its user runs it, in this process, under ``inference_mode``."""

    model: Callable[..., object]
    tensors: tuple[torch.Tensor, ...]
    rest_seconds: float = 0.003

    def time(self, runs: int) -> tuple[float, ...]:
        """See ``Side.time``.

        Raises:
            JobError: ``benchmark-failed``: the model raised.
        """
        try:
            with torch.inference_mode():
                return timed(partial(self.model, *self.tensors), runs)
        except Exception as error:
            detail = f"torch eager: {short_message(error)}"
            raise failure_of(ErrorCode.BENCHMARK_FAILED, error, detail) from error

    def rest(self) -> None:
        """See ``Side.rest``."""
        rest_of_this_process()


def _measure(verified: Verified, workshop: Workshop, captured: Captured) -> BenchmarkResult:
    options, threads = captured.upload.request.benchmark, captured.upload.threads
    path = verified.built.library
    with workshop.candidates.open_library(path, threads, verified.built.parameters) as library:
        library.run(captured.inputs)
        sides = (LibrarySide(library), *(_side(name, captured) for name in options.baselines))
        with workshop.candidates.turn():
            rounds = alternate(sides, options.seconds, lambda done, of: workshop.advance(done, of, "rounds"))
            functions = _profile(library, rounds)
        return BenchmarkResult(
            latency=latency(rounds.runs(0)),
            threads=threads,
            library_bytes=path.stat().st_size,
            peak_memory_bytes=library.peak_memory_bytes(),
            baselines=tuple(_baseline(name, rounds, side) for side, name in enumerate(options.baselines, 1)),
            functions=count_products(functions, verified.built.module),
        )


def _side(name: Baseline, captured: Captured) -> Side:
    match name:
        case Baseline.TORCH_EAGER:
            return EagerSide(captured.eager, tuple(map(as_tensor, captured.inputs)))


def _baseline(name: Baseline, rounds: Rounds, side: int) -> BaselineResult:
    spread = round_ratios(rounds.sides[0], rounds.sides[side])
    return BaselineResult(
        name=name.value,
        threads=torch.get_num_threads(),
        latency=latency(rounds.runs(side)),
        ratio=spread.p50,
        ratio_p10=spread.p10,
        ratio_p90=spread.p90,
    )


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


def _profile(library: Library, rounds: Rounds) -> tuple[FunctionTime, ...]:
    """Of one turn after another, until one agrees with the runs that were timed: a turn may be a busy one."""
    seconds = rounds.runs(0)
    runs = min(max(int(_PROFILE_SECONDS / min(seconds)), 1), _MAX_PROFILE_RUNS)
    turns = min(max(int(_PROFILES_SECONDS / min(seconds)), 1), _MAX_PROFILES)
    return choose_profile((library.profile(runs) for _ in range(turns)), latency(seconds).p50_ms)
