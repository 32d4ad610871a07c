"""Compares the whole model with the search's schedules and with the default ones, as its user runs it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import tvm

from bessemer.contract.report import Schedules
from worker.candidates.client import LibraryCrashedError, ProcessSide, naming_crashes
from worker.compiler.codegen.compile_functions import Compiler
from worker.compiler.codegen.cuda.library import build_gpu_library
from worker.compiler.codegen.executable import Exposed, Linked, build_in_shares
from worker.compiler.codegen.exposed import exposed_by
from worker.compiler.codegen.standalone.runner import write_runner
from worker.compiler.tuning.on_device import DeviceBench, NoDeviceError, Timing, write_inputs
from worker.compiler.tuning.session import tuning_logger
from worker.measure.rounds import Rounds, alternate
from worker.measure.samples import take_sample
from worker.measure.statistics import latency, round_ratios

if TYPE_CHECKING:
    import numpy as np

    from worker.compiler.values import Captured, StageContext
    from worker.parameters import ParameterFile


@dataclass(frozen=True)
class ModelComparison:
    """The faster schedules and both medians; medians are None if one side ``crashed``."""

    kept: Schedules
    search_ms: float | None = None
    default_ms: float | None = None
    crashed: Schedules | None = None


@dataclass(frozen=True)
class Finalists:
    """One model with the search's schedules, with the default ones, and with none (``plain``).

    ``default_library`` is the second, if it is built already. ``plain_search`` is the first without
    schedules, if the search has laid it out otherwise.
    """

    search: tvm.IRModule
    default: tvm.IRModule
    plain: tvm.IRModule
    target: tvm.target.Target
    captured: Captured
    parameters: ParameterFile | None = None
    default_library: Path | None = None
    plain_search: tvm.IRModule | None = None

    def plain_of(self, schedules: Schedules) -> tvm.IRModule:
        """The model without schedules."""
        searched = self.plain_search if schedules is Schedules.SEARCH else None
        return self.plain if searched is None else searched


@dataclass(frozen=True)
class UntunedModel:
    """The model with the default schedules: its library, and the median seconds of a run.

    ``open_seconds`` is how long it took to load the library and to run it once.
    """

    library: Path
    seconds: float
    open_seconds: float


def time_untuned(finalists: Finalists, context: StageContext) -> UntunedModel | None:
    """Build the model with the default schedules and time it; None if it crashes.

    Raises:
        JobError: as ``compare_finalists``.
    """
    library = _build(finalists.default, finalists, context, Schedules.DEFAULT)
    with ExitStack() as stack:
        try:
            began = time.monotonic()
            side = _enter(stack, Schedules.DEFAULT, library, finalists, context)
            open_seconds = time.monotonic() - began
            stack.enter_context(context.candidates.turn())
            return UntunedModel(library, median(take_sample(side)), open_seconds)
        except LibraryCrashedError as crash:
            tuning_logger().warning("the untuned model crashed: %s", crash)
            return None


def compare_finalists(
    finalists: Finalists,
    context: StageContext,
    seconds: float,
    left_seconds: Callable[[], float] = lambda: 0.0,
) -> ModelComparison:
    """Build both models, time them in alternation, and keep the faster one.

    A candidate that wins in a loop of its own may lose among other functions, which share its threads and
    caches. A model that crashes loses.

    Args:
        finalists: the two models.
        context: folders and the candidate server.
        seconds: the least time for measuring, without building and opening.
        left_seconds: the time that is left for it when both are open.

    Raises:
        JobError: ``build-failed``: a model cannot be built. ``function-too-slow``: a function takes too long
            to compile.
    """
    search = _build(finalists.search, finalists, context, Schedules.SEARCH)
    default = finalists.default_library
    if default is None:
        default = _build(finalists.default, finalists, context, Schedules.DEFAULT)
    try:
        rounds = _alternate(search, default, finalists, context, seconds, left_seconds)
    except LibraryCrashedError as crash:
        tuning_logger().warning("the model crashed with the schedules of the %s", crash)
        crashed = Schedules(crash.side)
        survivor = Schedules.DEFAULT if crashed is Schedules.SEARCH else Schedules.SEARCH
        return ModelComparison(kept=survivor, crashed=crashed)
    return ModelComparison(
        kept=Schedules.SEARCH if round_ratios(*rounds.sides).p50 < 1.0 else Schedules.DEFAULT,
        search_ms=latency(rounds.runs(0)).p50_ms,
        default_ms=latency(rounds.runs(1)).p50_ms,
    )


DEVICE_ROUNDS = 8
DEVICE_RUNS = 50
DEVICE_TIMEOUT_SECONDS = 300.0


def compare_on_device(
    finalists: Finalists, context: StageContext, bench: DeviceBench, seconds: float
) -> ModelComparison:
    """Compare the finalists on a device, by the C interface.

    If there is no C interface, or no device is left, the search's schedules win without a measurement.

    Raises:
        JobError: as ``compare_finalists``.
    """
    files: dict[str, Path] = {}
    for module, name in ((finalists.search, Schedules.SEARCH), (finalists.default, Schedules.DEFAULT)):
        program = _device_program(module, finalists, context, name)
        if program is None:
            return ModelComparison(kept=Schedules.SEARCH)
        files |= {f"{name.value}/{path.name}": path for path in (program.with_name("model.so"), program)}
    files["inputs.npz"] = context.scratch / "final" / "inputs.npz"
    write_inputs(files["inputs.npz"], _named_inputs(finalists.captured))
    commands = [
        [f"{name.value}/run", "--inputs", "inputs.npz"] for name in (Schedules.SEARCH, Schedules.DEFAULT)
    ]
    timing = Timing(DEVICE_ROUNDS, DEVICE_RUNS, seconds / (2 * DEVICE_ROUNDS), DEVICE_TIMEOUT_SECONDS)
    try:
        search, default = bench.time(commands, files, timing)
    except NoDeviceError:
        return ModelComparison(kept=Schedules.SEARCH)
    if search.error is not None:
        return ModelComparison(kept=Schedules.DEFAULT, crashed=Schedules.SEARCH)
    if default.error is not None:
        return ModelComparison(kept=Schedules.SEARCH, crashed=Schedules.DEFAULT)
    pairs = zip(search.seconds, default.seconds, strict=True)
    return ModelComparison(
        kept=Schedules.SEARCH if median(ours / theirs for ours, theirs in pairs) < 1.0 else Schedules.DEFAULT,
        search_ms=median(search.seconds) * 1e3,
        default_ms=median(default.seconds) * 1e3,
    )


def _device_program(
    module: tvm.IRModule, finalists: Finalists, context: StageContext, name: Schedules
) -> Path | None:
    """The program that runs a model on a device, its library beside it; None if it has no C interface."""
    if finalists.captured.upload.target.gpu is not None:
        return None if finalists.parameters is not None else _gpu_program(module, finalists, context, name)
    library, linked, compiler = _link(module, finalists, context, name)
    if linked.no_c_interface is not None:
        return None
    program = library.with_name("run")
    write_runner(library, str(finalists.target.attrs["mtriple"]), compiler.objects, program)
    return program


GPU_ROUNDS = 3
_MEDIAN = re.compile(r"median (?P<ms>[0-9.]+) ms")


def compare_on_gpu(finalists: Finalists, context: StageContext, seconds: float) -> ModelComparison:
    """Compare the finalists on this machine's GPU, by the programs of both libraries.

    If parameters are in a file of their own, the search's schedules win without a measurement.

    Raises:
        JobError: as ``compare_finalists``.
    """
    if finalists.parameters is not None:
        return ModelComparison(kept=Schedules.SEARCH)
    inputs = context.scratch / "final" / "inputs.npz"
    inputs.parent.mkdir(exist_ok=True)
    write_inputs(inputs, _named_inputs(finalists.captured))
    programs = {
        Schedules.SEARCH: _gpu_program(finalists.search, finalists, context, Schedules.SEARCH),
        Schedules.DEFAULT: _gpu_program(finalists.default, finalists, context, Schedules.DEFAULT),
    }
    share = max(seconds / (2 * GPU_ROUNDS), 0.05)
    times: dict[Schedules, list[float]] = {name: [] for name in programs}
    with context.candidates.turn():
        for _ in range(GPU_ROUNDS):
            for name, program in programs.items():
                found = _program_ms(program, inputs, share)
                if found is None:
                    survivor = Schedules.DEFAULT if name is Schedules.SEARCH else Schedules.SEARCH
                    return ModelComparison(kept=survivor, crashed=name)
                times[name].append(found)
    search, default = (median(times[name]) for name in (Schedules.SEARCH, Schedules.DEFAULT))
    return ModelComparison(
        kept=Schedules.SEARCH if search < default else Schedules.DEFAULT,
        search_ms=search,
        default_ms=default,
    )


def _named_inputs(captured: Captured) -> dict[str, np.ndarray]:
    count = len(captured.input_specs) - captured.kept
    names = [spec.name for spec in captured.input_specs[:count]]
    return dict(zip(names, captured.inputs[:count], strict=True))


def _gpu_program(module: tvm.IRModule, finalists: Finalists, context: StageContext, name: Schedules) -> Path:
    folder, target = context.scratch / "final" / name.value, finalists.captured.upload.target
    library = folder / "model.so"
    exposed = exposed_by(finalists.captured)
    build_gpu_library(module, finalists.plain_of(name), target, library, folder, exposed)
    program = library.with_name("run")
    write_runner(library, target.resolved.triple, folder, program)
    return program


def _program_ms(program: Path, inputs: Path, seconds: float) -> float | None:
    """The median latency that a program prints; None if it fails or hangs."""
    limits = ("--repeat", str(DEVICE_RUNS), "--seconds", f"{seconds:g}")
    command = [str(program), "--inputs", str(inputs), *limits]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEVICE_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    found = _MEDIAN.search(done.stdout)
    if done.returncode or found is None:
        tuning_logger().warning("%s failed: %s", program, (done.stderr or done.stdout)[-500:])
        return None
    return float(found["ms"])


def _build(module: tvm.IRModule, finalists: Finalists, context: StageContext, name: Schedules) -> Path:
    return _link(module, finalists, context, name, exposed=False)[0]


def _link(
    module: tvm.IRModule,
    finalists: Finalists,
    context: StageContext,
    name: Schedules,
    exposed: bool = True,
) -> tuple[Path, Linked, Compiler]:
    folder = context.scratch / "final" / name.value
    library = folder / "model.so"
    compiler = Compiler(
        target=finalists.target,
        objects=folder,
        compile_many=context.candidates.compile_many,
        left_seconds=context.left_seconds,
    )
    called = exposed_by(finalists.captured) if exposed else Exposed()
    return library, build_in_shares(module, finalists.plain_of(name), library, compiler, called), compiler


def _alternate(
    search: Path,
    default: Path,
    model: Finalists,
    context: StageContext,
    seconds: float,
    left_seconds: Callable[[], float],
) -> Rounds:
    with ExitStack() as stack:
        sides = (
            _enter(stack, Schedules.SEARCH, search, model, context),
            _enter(stack, Schedules.DEFAULT, default, model, context),
        )
        with context.candidates.turn():
            return alternate(sides, max(seconds, left_seconds()), lambda _done, _of: None)


def _enter(
    stack: ExitStack, schedules: Schedules, path: Path, model: Finalists, context: StageContext
) -> ProcessSide:
    threads = model.captured.upload.target.threads
    with naming_crashes(schedules.value):
        library = context.candidates.open_library(path, threads, model.parameters)
        stack.enter_context(library).run(model.captured.inputs)
    return ProcessSide(library, name=schedules.value)
