"""Benchmark: how fast the library is, compared with the baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import tvm

from bessemer.contract.code import listed_name
from bessemer.contract.decoder import decoder_tokens
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import Baseline, Peer
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BaselineResult, BenchmarkResult, FunctionTime, ThreadTrial
from bessemer.contract.request import AUTO
from bessemer.contract.stage import Stage
from bessemer.contract.tensor import TensorSpec
from worker.candidates.client import LibraryCrashedError, ModelProcess, ProcessSide, naming_crashes
from worker.candidates.execute import ProgramFailedError
from worker.candidates.library import Command, Executor, Run, Time, UseThreads
from worker.candidates.program import ProgramCall
from worker.compiler.codegen.call_origins import origins_of
from worker.compiler.codegen.flops import Product, find_products
from worker.compiler.frontend.ir_modules.reference import open_reference
from worker.compiler.frontend.load import load_model
from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.pipeline.compare import compare_with, measure_ceiling, open_peers
from worker.compiler.values import (
    Benchmarked,
    Built,
    Captured,
    MethodName,
    RelaxProgram,
    Selection,
    StageContext,
    Verified,
)
from worker.errors import failure_of, in_entry
from worker.measure.rounds import Rounds, Side, alternate
from worker.measure.samples import FEW_RUNS, Sample, drift, take_sample, why_undecided, why_unsteady
from worker.measure.statistics import choose_profile, latency, round_ratios, run_times
from worker.measure.timed import timed
from worker.package.archive import write_arrays
from worker.protocol.observer import JobObserver
from worker.tensors import as_array, as_tensor

if TYPE_CHECKING:
    import numpy as np

OURS = "the compiled library"
LIBRARY = "library"

_ROUNDS_SECONDS = 2.5
"""How long the rounds may take until the library has 20 runs, if the request gives too few seconds."""
_MAX_EARLY_BYTES = 512 * 2**20
"""The largest model that is loaded beside the compilation: it holds its memory until the benchmark ends."""
_PROFILE_SECONDS = 0.03
_MAX_PROFILE_RUNS = 20
_PROFILES_SECONDS = 0.5
_MAX_PROFILES = 5
_PROFILE_CALLS = 3
"""Each run of a profile also has an unobserved run, and its turn a warm-up."""


def benchmark(verified: Verified, context: StageContext) -> Benchmarked:
    """Time the library in alternation with the baselines, each in a process of its own.

    Before: the library computes what the model computes. After: nothing has changed; there are figures, and
    figures that another sample contradicts are marked unsteady. A library that runs under an emulator, or
    with another libc, is not measured. One for a GPU is timed by its program, copies to and from the GPU
    included, without baselines.

    Raises:
        JobError: ``benchmark-failed``: the library crashed or a baseline raised under repetition.
    """
    entries = verified.captured.entries
    upload = verified.captured.upload
    if not upload.request.is_verified:
        return Benchmarked(verified=verified, result=None)
    if upload.target.gpu is not None and upload.target.runs_here:
        measured = [_measured_on_gpu(verified, context, entry) for entry in entries]
        first, *others = with_tokens(entries, measured)
        return Benchmarked(verified=verified, result=first, other_results=tuple(others))
    if not upload.target.is_native:
        return Benchmarked(verified=verified, result=None)
    first, *others = with_tokens(entries, [_measured(verified, context, entry) for entry in entries])
    return Benchmarked(verified=verified, result=first, other_results=tuple(others))


def begin_baselines(captured: Captured, context: StageContext) -> None:
    """Begin to load what the first entry point is compared with: a compilation mostly uses one core."""
    if _may_load_early(captured):
        for name in _baselines(captured):
            _, load = _original(name, captured)
            context.candidates.begin_original(load)


def _may_load_early(captured: Captured) -> bool:
    """Whether the benchmark runs here, nothing is measured before it, and the model is not large."""
    upload = captured.upload
    request, target = upload.request, upload.target
    last = request.stop_after or Stage.PACKAGE
    is_measured = request.is_verified and last.includes(Stage.BENCHMARK)
    runs_here = target.gpu is None and target.is_native
    measures_before = request.searches or AUTO in request.kernels.values()
    is_large = upload.path.stat().st_size > _MAX_EARLY_BYTES
    return is_measured and runs_here and not measures_before and not is_large


def with_tokens(
    entries: Sequence[Captured], results: Sequence[BenchmarkResult]
) -> tuple[BenchmarkResult, ...]:
    """Add tokens per second to the results of the entry points of a decoder."""
    tokens = decoder_tokens(
        (entry.input_specs[: len(entry.original_inputs)], entry.states > 0) for entry in entries
    )
    return tuple(map(_with_rates, results, tokens))


def _with_rates(result: BenchmarkResult, tokens: int | None) -> BenchmarkResult:
    if tokens is None:
        return result
    baselines = tuple(
        peer.model_copy(update={"tokens_per_second": _rate(tokens, peer)}) for peer in result.baselines
    )
    update = {"tokens": tokens, "tokens_per_second": _rate(tokens, result), "baselines": baselines}
    return result.model_copy(update=update)


def _rate(tokens: int, result: BenchmarkResult | BaselineResult) -> float:
    return 1000 * tokens / result.latency.p50_ms


def _measured(verified: Verified, context: StageContext, captured: Captured) -> BenchmarkResult:
    with in_entry(captured.upload.entry):
        try:
            return _measure(verified, context, captured)
        except LibraryCrashedError as error:
            raise failure_of(ErrorCode.BENCHMARK_FAILED, error, str(error)) from error


_GPU_RUNS = 1000


def _measured_on_gpu(verified: Verified, context: StageContext, captured: Captured) -> BenchmarkResult:
    built, options = verified.built, captured.upload.request.benchmark
    program = None if built.program is None else captured.upload.target.program(built.program)
    assert program is not None
    inputs = context.scratch / "gpu-inputs.npz"
    own = captured.own_inputs
    write_arrays(inputs, captured.input_specs[:own], captured.inputs[:own])
    call = ProgramCall(captured.name, inputs, inputs.with_name("unused.npz"))
    try:
        with in_entry(captured.upload.entry), context.candidates.turn():
            seen = program.time(call, context.scratch / "gpu-times.json", _GPU_RUNS, options.seconds)
    except ProgramFailedError as error:
        raise failure_of(ErrorCode.BENCHMARK_FAILED, error, str(error)) from error
    return BenchmarkResult(
        latency=latency([one * 1e-3 for one in seen.times_ms]),
        threads=1,
        library_bytes=built.library.stat().st_size,
        peak_memory_bytes=seen.peak_memory_bytes,
        baselines=(),
        functions=(),
    )


@dataclass(frozen=True)
class BaselineSide:
    """A baseline with its best number of threads, and its first sample with each number."""

    name: str
    side: ProcessSide
    threads: int
    samples: dict[int, Sample]


@dataclass(frozen=True)
class SideSamples:
    """Three samples of one side: before the alternation, and in its first and its last half."""

    name: str
    first: Sample
    early: Sample
    late: Sample

    @property
    def unsteady(self) -> str:
        """Why these figures are unsteady; empty if they are not. Halves of a few runs count as one sample."""
        rounds: tuple[Sample, ...] = (self.early, self.late)
        if min(map(len, rounds)) < FEW_RUNS:
            rounds = (self.early + self.late,)
        return why_unsteady(self.name, (self.first, *rounds))


def _measure(verified: Verified, context: StageContext, captured: Captured) -> BenchmarkResult:
    options, threads = captured.upload.request.benchmark, captured.upload.target.threads
    path = verified.built.library
    with ExitStack() as processes:
        library = processes.enter_context(
            context.candidates.open_library(path, threads, verified.built.parameters)
        )
        library.run(captured.inputs, captured.function)
        compares = options.compare and captured.is_first and context.compares
        peers, absent = open_peers(captured, context, processes) if compares else ({}, ())
        processes.enter_context(context.candidates.turn())
        opened = tuple(_enter(name, captured, context, processes) for name in _baselines(captured))
        opened += tuple(_with_all_threads(peer, each, captured) for peer, each in peers.items())
        sides: tuple[Side, ...] = (
            ProcessSide(library, _turn_seconds(captured)),
            *(baseline.side for baseline in opened),
        )
        first = take_sample(sides[0])
        rounds = alternate(
            sides,
            options.seconds,
            partial(_report_rounds, context.observer),
            _ROUNDS_SECONDS,
            tuple(min(sample) for sample in (first, *(each.samples[each.threads] for each in opened))),
        )
        peak_memory_bytes = library.peak_memory_bytes()
        # last: a library that was profiled once runs slower from then on, and holds more memory
        functions = count_products(_profile(library, rounds), verified.built.module)
        if captured.is_first:
            functions = _with_places(functions, verified.built)
        ours = SideSamples(OURS, first, *rounds.halves(0))
        baselines = tuple(
            describe_baseline(baseline, ours.unsteady, rounds, index)
            for index, baseline in enumerate(opened, 1)
        )
        comparison = None
        if compares:
            ceiling = measure_ceiling(captured.upload.target.machine, threads, context)
            comparison = compare_with(baselines, absent, functions, verified.built.module, ceiling)
        return BenchmarkResult(
            latency=latency(rounds.runs(0)),
            unsteady=ours.unsteady,
            drift=drift(ours.first, rounds.runs(0)),
            threads=threads,
            library_bytes=path.stat().st_size,
            peak_memory_bytes=peak_memory_bytes,
            baselines=baselines,
            functions=functions,
            distributions=tuple(
                run_times(name, rounds.runs(index))
                for index, name in enumerate((LIBRARY, *(each.name for each in opened)))
            ),
            comparison=comparison,
        )


def _baselines(captured: Captured) -> tuple[Baseline, ...]:
    """The requested baselines; an IRModule has no torch model, but may have a reference function."""
    wanted = captured.upload.request.benchmark.baselines
    if not isinstance(captured.program, RelaxProgram):
        if captured.upload.request.benchmark.compare:
            wanted = (*wanted, Baseline.TORCH_EAGER)
        return tuple(name for name in dict.fromkeys(wanted) if name is not Baseline.REFERENCE)
    return (Baseline.REFERENCE,) if wanted and captured.program.function is not None else ()


def _enter(name: Baseline, captured: Captured, context: StageContext, processes: ExitStack) -> BaselineSide:
    """Try the baseline with all threads and with one, in one process, and keep the faster number.

    The mean decides, so that stalled runs count against their number of threads. The model is loaded once:
    for a model of many layers that takes longer than the measurements.
    """
    spoken, load = _original(name, captured)
    every = captured.upload.target.threads
    with naming_crashes(spoken):
        runner = processes.enter_context(context.candidates.open_original(load))
        runner.use_threads(every)
        runner.run(captured.original_inputs)
    side = ProcessSide(runner, _turn_seconds(captured), spoken)
    samples = {every: take_sample(side)}
    if every > 1:
        side.use_threads(1)
        samples[1] = take_sample(side, samples[every])
    best = min(samples, key=lambda threads: fmean(samples[threads]))
    side.use_threads(best)
    return BaselineSide(name.value, side, best, samples)


def _with_all_threads(peer: Peer, runner: ModelProcess, captured: Captured) -> BaselineSide:
    """Another runtime, which gets the library's threads."""
    side = ProcessSide(runner, _turn_seconds(captured), peer.value)
    threads = captured.upload.target.threads
    return BaselineSide(peer.value, side, threads, {threads: take_sample(side)})


def _original(name: Baseline, captured: Captured) -> tuple[str, Callable[[], Executor]]:
    """A baseline's name, and how to load it in its process."""
    path, selection = captured.upload.path, replace(captured.upload.selection, method=captured.method)
    if name is Baseline.REFERENCE:
        assert isinstance(captured.program, RelaxProgram) and captured.program.function is not None
        outputs = captured.output_specs
        return "the reference", partial(
            ReferenceModel, path, captured.method, captured.program.function, outputs
        )
    return "torch eager", partial(OriginalModel, path, selection, captured.format)


def _report_rounds(observer: JobObserver, done: int, total: int) -> None:
    observer.progress(Stage.BENCHMARK, done, total, "")


def _turn_seconds(captured: Captured) -> float:
    """The longest that a turn may take: several times the plan."""
    return max(0.5, captured.upload.request.benchmark.seconds / 10)


def describe_baseline(
    baseline: BaselineSide, ours_unsteady: str, rounds: Rounds, side: int
) -> BaselineResult:
    """Describe a baseline for the report.

    Args:
        baseline: the baseline with its first samples.
        ours_unsteady: why the library's own figures are unsteady, if they are.
        rounds: the rounds of all sides; the library is the first.
        side: the baseline's index.
    """
    spread = round_ratios(rounds.sides[0], rounds.sides[side])
    spoken = baseline.side.name
    theirs = SideSamples(spoken, baseline.samples[baseline.threads], *rounds.halves(side))
    return BaselineResult(
        name=baseline.name,
        threads=baseline.threads,
        latency=latency(rounds.runs(side)),
        ratio=spread.p50,
        ratio_p10=spread.p10,
        ratio_p90=spread.p90,
        trials=tuple(_trial(threads, each) for threads, each in sorted(baseline.samples.items())),
        second_look_ms=latency(theirs.late).p50_ms,
        unsteady=theirs.unsteady
        or why_undecided(spoken, baseline.threads, baseline.samples)
        or ours_unsteady,
    )


def _trial(threads: int, seconds: Sample) -> ThreadTrial:
    found = latency(seconds)
    return ThreadTrial(threads=threads, runs=found.runs, p50_ms=found.p50_ms, min_ms=found.min_ms)


def count_products(functions: tuple[FunctionTime, ...], module: tvm.IRModule) -> tuple[FunctionTime, ...]:
    """Add the work of their products to profiled functions.

    Args:
        functions: the profile.
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


def _with_places(functions: tuple[FunctionTime, ...], built: Built) -> tuple[FunctionTime, ...]:
    """Add the places in the user's model; the parts of a function have its places."""
    optimized = built.tuned.optimized
    places = origins_of(optimized.module, optimized.nodes).places()
    of_parts = {part: split.places for split in built.splits for part in split.parts}
    return tuple(
        each.model_copy(update={"places": of_parts.get(each.name) or places.get(listed_name(each.name), ())})
        for each in functions
    )


def _profile(library: ModelProcess, rounds: Rounds) -> tuple[FunctionTime, ...]:
    """Profile in several turns until one agrees with the timed runs: the machine may be busy in a turn."""
    seconds = rounds.runs(0)
    runs = min(max(int(_PROFILE_SECONDS / min(seconds)), 1), _MAX_PROFILE_RUNS)
    turns = min(max(int(_PROFILES_SECONDS / (_PROFILE_CALLS * min(seconds))), 1), _MAX_PROFILES)
    return choose_profile((library.profile(runs) for _ in range(turns)), latency(seconds).p50_ms)


class OriginalModel:
    """The model as its user runs it, in this process, under ``inference_mode``."""

    def __init__(self, path: Path, selection: Selection, form: ModelFormat) -> None:
        torch.set_num_threads(1)
        self._eager = load_model(path, selection, form).eager
        self._tensors: tuple[torch.Tensor, ...] = ()

    def execute(self, command: Command) -> Any:
        """See ``Executor.execute``.

        Raises:
            TypeError: the command is for libraries only.
        """
        match command:
            case Run(inputs):
                return self.run(inputs)
            case Time(runs, most_seconds, warm_up):
                return self.time(runs, most_seconds, warm_up)
            case UseThreads(threads):
                return torch.set_num_threads(threads)
        raise TypeError(f"{type(command).__name__} is for libraries")

    def run(self, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Run once on copies of ``inputs`` and return the flattened outputs."""
        self._tensors = tuple(map(as_tensor, inputs))
        with torch.inference_mode():
            return tuple(map(as_array, flatten_outputs(self._eager(*self._tensors))))

    def time(self, runs: int, most_seconds: float, warm_up: bool) -> tuple[float, ...]:
        """See ``timed``."""
        with torch.inference_mode():
            return timed(partial(self._eager, *self._tensors), runs, most_seconds, warm_up)


class ReferenceModel:
    """The reference function of an IRModule, in this process."""

    def __init__(
        self,
        path: Path,
        method: MethodName | None,
        name: str,
        outputs: tuple[TensorSpec, ...],
    ) -> None:
        torch.set_num_threads(1)
        self._function = open_reference(path, method, name)
        self._outputs = outputs
        self._call: Callable[[], object] = lambda: None

    def execute(self, command: Command) -> Any:
        """See ``Executor.execute``.

        Raises:
            TypeError: the command is for libraries only.
        """
        match command:
            case Run(inputs):
                self._call, outputs = self._function.bound(inputs, self._outputs)
                return outputs
            case Time(runs, most_seconds, warm_up):
                with torch.no_grad():
                    return timed(self._call, runs, most_seconds, warm_up)
            case UseThreads(threads):
                return torch.set_num_threads(threads)
        raise TypeError(f"{type(command).__name__} is for libraries")
