"""Optimize: rewrites, legalizes and fuses the module, pass by pass."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import tvm
from tvm import tirx
from tvm.relax import backend, transform

from bessemer.contract.options import Convolutions, Float32Products, Fusion, OptimizeOptions, VerifyOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import KernelChoice, PassTime
from bessemer.contract.stage import Stage
from bessemer.contract.tensor import DType
from worker.compiler.codegen.executable import build_library
from worker.compiler.kernels.choose import check_workloads, choose_kernels
from worker.compiler.kernels.measure import KernelComparison
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.layout.blocked.block_convolutions import block_convolutions
from worker.compiler.layout.choices import AS_EXPECTED, LAYOUT_PHASE, LayoutChoices
from worker.compiler.layout.entry_points import EntryModule, join_entries
from worker.compiler.layout.gpu.channels_last import channels_last
from worker.compiler.layout.gpu.early_slices import early_slices
from worker.compiler.layout.gpu.processor_calls import refuse_processor_calls
from worker.compiler.layout.gpu.weights_along_depth import weights_along_depth
from worker.compiler.layout.memory.share_memory import share_memory
from worker.compiler.layout.pack_linear import PanelWidths, pack_linear_weights
from worker.compiler.layout.separate_parameters import keep_results
from worker.compiler.legalize.distinct_states import separate_states
from worker.compiler.legalize.registry import legalization_map
from worker.compiler.legalize.state_in_place import update_state_in_place
from worker.compiler.pipeline.translate import refuse_dynamic_sizes
from worker.compiler.rewrites.engine import Application, report_rewrite
from worker.compiler.rewrites.equal_expressions import merge_equal_expressions
from worker.compiler.rewrites.fold import evaluate_constants, fold_batch_norm, fold_constants
from worker.compiler.rewrites.fold_parameters import fold_parameter_batch_norm
from worker.compiler.rewrites.grouping import lift_constants
from worker.compiler.rewrites.integer_products import multiply_bytes
from worker.compiler.rewrites.joins import JOIN, has_joined_products, join_calls
from worker.compiler.rewrites.registry import rewrite_book
from worker.compiler.rewrites.sizes_of_groups import join_numbers, order_sizes
from worker.compiler.schedules.annotations import TF32
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.schedules.gpu.chips import Gpu, current_gpu, writing_for
from worker.compiler.schedules.processors import Machine
from worker.compiler.values import Optimized, StageContext, Translated, Upload
from worker.errors import JobError, failure_of, in_entry, short_message
from worker.parameters import PREPARE

GPU_LAYOUT = (early_slices, channels_last, weights_along_depth)
"""The passes of the phase ``layout`` for GPUs."""

REWRITE, KERNELS = "rewrite", "kernels"
"""Phases whose passes depend on the request."""

_FUSE_OPS = transform.FuseOps()

_WINOGRAD_SHARE = 0.1
"""The share of the relative tolerance that Winograd's algorithm may use up in one convolution."""


class Phase(NamedTuple):
    """Passes with one purpose."""

    name: str
    passes: tuple[tvm.transform.Pass, ...]


@tvm.transform.module_pass(opt_level=0, name="RemoveUnreached")
def remove_unreached(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Remove functions that neither ``main`` nor the preparation of its parameters reaches."""
    names = {str(variable.name_hint) for variable in module.get_global_vars()}
    return transform.DeadCodeElimination([name for name in ("main", PREPARE) if name in names])(module)


@tvm.transform.module_pass(opt_level=0, name="LegalizeOps")
def legalize_by_rules(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """``LegalizeOps`` with the rules of installed packages and the built-in rules before TVM's."""
    return transform.LegalizeOps(legalization_map())(module)


@tvm.transform.module_pass(opt_level=0, name="AllowTf32")
def allow_tf32(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Note on every function that tensor cores may round its factors, where the request allows it."""
    gpu = current_gpu()
    if gpu is None or not gpu.tf32:
        return module
    noted = tvm.IRModule(module.functions, attrs=module.attrs)
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            noted.update_func(variable, function.with_attr(TF32, True))
    return noted


def optimization_phases(
    machine: Machine,
    widths: PanelWidths | None = None,
    winograd_error: float = 0.0,
    gpu: Gpu | None = None,
    choices: LayoutChoices = AS_EXPECTED,
) -> tuple[Phase, ...]:
    """The phases in order.

    Args:
        machine: the processor to lay data out for.
        widths: the layout of matrices that several entry points use.
        winograd_error: the relative error that a convolution by Winograd's algorithm may have.
        gpu: the GPU to lay data out for instead, if the target has one.
        choices: what a search wants from the layout phase.
    """
    on_processors = (
        block_convolutions(machine, winograd_error, choices),
        pack_linear_weights(machine, widths),
        merge_equal_expressions,
        transform.CanonicalizeBindings(),
        share_memory(machine),
    )
    return (
        # Multiply the bytes of quantized models before their weights are computed as floats.
        Phase("integers", () if gpu is not None else (multiply_bytes(machine),)),
        # Compute what depends on parameters only.
        Phase(
            "fold",
            (
                evaluate_constants,
                fold_batch_norm,
                fold_parameter_batch_norm,
                transform.DecomposeOpsForInference(),
                evaluate_constants,
                fold_constants,
            ),
        ),
        # Merge equal expressions and remove unused ones.
        Phase(
            "canonicalize",
            (
                transform.CanonicalizeBindings(),
                merge_equal_expressions,
                transform.DeadCodeElimination(["main"]),
            ),
        ),
        # The rewrites that the request enables, each a pass of its own name; ``plan_passes`` adds them.
        Phase(REWRITE, ()),
        # Calls of kernel libraries, where the request names any; ``KernelPass`` adds them.
        Phase(KERNELS, ()),
        # Give regions of the graph the layouts that their kernels read, and pack weights for them.
        # On a GPU each tensor has memory of its own, and matrices keep their rows, which are read in vectors.
        Phase(LAYOUT_PHASE, on_processors if gpu is None else GPU_LAYOUT),
        # Turn every operator into a call of a TensorIR function. Sorts depend on the ambient target.
        Phase(
            "legalize",
            (
                legalize_by_rules,
                backend.DispatchSampling(),
                backend.DispatchSortScan(),
                transform.LegalizeOps(),
                transform.FoldConstant(),
            ),
        ),
        # Move what depends on separate parameters only into a function that runs when they are loaded.
        Phase("lift", (keep_results, transform.LiftTransformParams())),
        # Fuse elementwise functions with their producers, unless the request turns fusion off.
        Phase(
            "fuse",
            (
                transform.AnnotateTIROpPattern(),
                lift_constants,
                _FUSE_OPS,
                order_sizes,
                join_numbers,
                transform.FuseTIR(),
                *(() if gpu is not None else (join_calls(machine),)),
            ),
        ),
        # Turn functions that only reshape into views, which need no schedule. Give each state memory of its
        # own, and write it in place.
        Phase(
            "clean",
            (
                transform.RewriteDataflowReshape(),
                separate_states,
                update_state_in_place(machine),
                remove_unreached,
                *(() if gpu is None else (allow_tf32,)),
            ),
        ),
    )


class Plan(NamedTuple):
    """The phases for one request, and its rewrites, which record where they fired."""

    phases: tuple[Phase, ...]
    rewrites: tuple[Application, ...]


def plan_passes(phases: tuple[Phase, ...], options: OptimizeOptions) -> Plan:
    """The phases with the rewrites and the fusion that a request asks for.

    Raises:
        JobError: ``rewrite-unknown``.
    """
    may_group = options.fusion is not Fusion.NONE
    rewrites = tuple(Application(rewrite, may_group) for rewrite in rewrite_book().chosen(options))
    passes = tuple(rewrite.as_pass() for rewrite in rewrites)
    return Plan(tuple(_fitted(phase, passes, options.fusion) for phase in phases), rewrites)


def default_phases(machine: Machine) -> tuple[Phase, ...]:
    """The phases for a request without optimization options."""
    phases = optimization_phases(machine, winograd_error=_winograd_error(OptimizeOptions(), VerifyOptions()))
    return plan_passes(phases, OptimizeOptions()).phases


def _winograd_error(optimize: OptimizeOptions, verify: VerifyOptions) -> float:
    """The relative error that a convolution by Winograd's algorithm may have; 0 if none may use it."""
    if optimize.convolutions is Convolutions.DIRECT:
        return 0.0
    return _WINOGRAD_SHARE * verify.tolerance(DType.FLOAT32).relative


def _fitted(phase: Phase, rewrites: tuple[tvm.transform.Pass, ...], fusion: Fusion) -> Phase:
    if phase.name == REWRITE:
        return phase._replace(passes=rewrites)
    if fusion is Fusion.AUTOMATIC:
        return phase
    return _without(phase, _FUSE_OPS.info.name, JOIN)


def optimize(translated: Translated, context: StageContext) -> Optimized:
    """Run the ``optimization_phases`` with the rewrites and the fusion that the request asks for.

    Before: ``main`` is in Relax. After: ``main`` calls only primitive TensorIR functions and views. ``main``,
    or the function that prepares its separate parameters, reaches every function. Functions are fused with
    their neighbors and have no schedule.

    Raises:
        JobError: ``rewrite-unknown``; ``kernel-unknown`` for a workload that the model lacks;
            ``optimize-failed`` with the phase and the pass, or ``dynamic-shapes-unsupported`` where sizes are
            dynamic.
    """
    widths = PanelWidths() if translated.others else None
    first, *others = (_named(entry, context, widths) for entry in (translated, *translated.others))
    if not others:
        return first
    parts = (
        EntryModule(entry.captured.function, entry.module, tuple(source.separate))
        for entry, source in zip((first, *others), (translated, *translated.others), strict=True)
    )
    return replace(first, module=join_entries(tuple(parts)))


def _named(translated: Translated, context: StageContext, widths: PanelWidths | None) -> Optimized:
    with in_entry(translated.captured.upload.entry):
        return _optimized(translated, context, widths)


def _optimized(translated: Translated, context: StageContext, widths: PanelWidths | None) -> Optimized:
    module, unlaid = translated.module, translated.module
    upload = translated.captured.upload
    kernels = KernelPass(upload, context)
    planned, rewrites = _planned(upload, context, widths)
    phases = kernels.added_to(planned)
    total = sum(len(phase.passes) for phase in phases)
    times: list[PassTime] = []
    with upload.target.llvm, writing_for(_gpu_of(upload)), tvm.transform.PassContext(opt_level=3):
        for phase, step in _steps(phases):
            context.observer.progress(Stage.OPTIMIZE, len(times), total, f"{phase.name}: {step.info.name}")
            if phase.name == LAYOUT_PHASE and step is phase.passes[0]:
                unlaid = module
            start = time.perf_counter()
            try:
                module = _run(phase, step, module)
            except JobError as error:
                refuse_dynamic_sizes(error, translated.captured)
                raise
            seconds = time.perf_counter() - start
            times.append(_pass_time(phase, step, seconds, module))
            context.observer.snapshot(Stage.OPTIMIZE, phase.name, step.info.name, seconds, module)
    if upload.target.gpu is not None:
        refuse_processor_calls(module, translated.places)
    may_be_laid_out_again = upload.target.gpu is None and widths is None
    return Optimized(
        captured=translated.captured,
        operators=translated.operators,
        module=module,
        passes=tuple(times),
        rewrites=tuple(report_rewrite(rewrite, translated.places) for rewrite in rewrites),
        parameters=translated.parameters,
        kernels=kernels.finish(),
        nodes=translated.nodes,
        unlaid=unlaid if may_be_laid_out_again and _has_choices(module) else None,
    )


def lay_out(optimized: Optimized, choices: LayoutChoices, context: StageContext) -> Optimized:
    """The same model, laid out as a search wants it.

    Args:
        optimized: the model, which has an ``unlaid`` module.
        choices: what the search wants.
        context: folders and limits.

    Raises:
        JobError: ``optimize-failed`` with the phase and the pass.
    """
    upload, module = optimized.captured.upload, optimized.unlaid
    phases, _ = _planned(upload, context, None, choices)
    first = [phase.name for phase in phases].index(LAYOUT_PHASE)
    with upload.target.llvm, tvm.transform.PassContext(opt_level=3):
        for phase, step in _steps(phases[first:]):
            module = _run(phase, step, module)
    return replace(optimized, module=module)


def _planned(
    upload: Upload,
    context: StageContext,
    widths: PanelWidths | None,
    choices: LayoutChoices = AS_EXPECTED,
) -> Plan:
    request, target = upload.request, upload.target
    error = 0.0 if context.direct_convolutions else _winograd_error(request.optimize, request.verify)
    phases = optimization_phases(target.machine, widths, error, target.gpu, choices)
    if not choices.chains:
        phases = tuple(_without(phase, JOIN) for phase in phases)
    return plan_passes(phases, request.optimize)


def _without(phase: Phase, *names: str) -> Phase:
    return phase._replace(passes=tuple(step for step in phase.passes if step.info.name not in names))


def _has_choices(module: tvm.IRModule) -> bool:
    """Whether the layout phase had a choice: the module has a convolution, or products were joined."""
    names = (str(variable.name_hint) for variable in module.get_global_vars())
    return any("conv" in name for name in names) or has_joined_products(module)


def _gpu_of(upload: Upload) -> Gpu | None:
    """The target's GPU, as exact as the request asks for."""
    gpu = upload.target.gpu
    return gpu and replace(gpu, tf32=upload.request.optimize.float32_products is Float32Products.TF32)


def _steps(phases: tuple[Phase, ...]) -> Iterator[tuple[Phase, tvm.transform.Pass]]:
    return ((phase, step) for phase in phases for step in phase.passes)


def _run(phase: Phase, step: tvm.transform.Pass, module: tvm.IRModule) -> tvm.IRModule:
    try:
        return step(module)
    except Exception as error:
        detail = f"pass {step.info.name} of phase '{phase.name}': {short_message(error)}"
        raise failure_of(ErrorCode.OPTIMIZE_FAILED, error, detail) from error


def _pass_time(phase: Phase, step: tvm.transform.Pass, seconds: float, module: tvm.IRModule) -> PassTime:
    return PassTime(phase=phase.name, name=step.info.name, seconds=seconds, functions=len(module.functions))


class KernelPass:
    """The pass of the phase ``kernels``, where the request names any; ``finish`` returns its choices."""

    def __init__(self, upload: Upload, context: StageContext) -> None:
        self._upload, self._context = upload, context
        self._choices: tuple[KernelChoice, ...] = ()
        self._workloads: tuple[str, ...] = ()

    def added_to(self, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        """The phases with this pass in its place."""
        if not self._upload.request.kernels:
            return phases
        comparison = self._comparison(phases)

        @tvm.transform.module_pass(opt_level=0, name="CallKernels")
        def call_kernels(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
            chosen = choose_kernels(module, self._upload.request.kernels, kernel_book(), comparison.measure)
            self._choices, self._workloads = chosen.choices, chosen.workloads
            return chosen.module

        return tuple(
            phase._replace(passes=(call_kernels,)) if phase.name == KERNELS else phase for phase in phases
        )

    def finish(self) -> tuple[KernelChoice, ...]:
        """The choices.

        Raises:
            JobError: ``kernel-unknown`` for a workload that the model lacks. TVM would wrap the error if the
                pass raised it.
        """
        check_workloads(self._upload.request.kernels, self._workloads)
        return self._choices

    def _comparison(self, phases: tuple[Phase, ...]) -> KernelComparison:
        target = self._upload.target.llvm

        def compile_to(module: tvm.IRModule, path: Path) -> None:
            for phase in phases:
                module = tvm.transform.Sequential(phase.passes)(module)
            build_library(schedule_rest(module, target), target, path, path.parent / "objects")

        return KernelComparison(
            candidates=self._context.candidates,
            folder=self._context.scratch / "kernels",
            threads=self._upload.target.threads,
            compile=compile_to,
            numbers=count(),
        )
