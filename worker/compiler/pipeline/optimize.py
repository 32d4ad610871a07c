"""Optimize: the module rewritten, legalized and fused, pass by pass."""

from __future__ import annotations

import time
from collections.abc import Iterator

import tvm

from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import PassTime
from bessemer.contract.stage import Stage
from worker.compiler.pipeline.call_kernels import KernelStep
from worker.compiler.pipeline.passes import OPTIMIZATION, Phase, plan_passes
from worker.compiler.pipeline.translate import blame_open_sizes
from worker.compiler.rewrites.report import report_rewrite
from worker.compiler.target import tvm_target
from worker.compiler.values import Optimized, StageContext, Translated
from worker.errors import JobError, failure_of, short_message


def optimize(translated: Translated, context: StageContext) -> Optimized:
    """Run the phases of ``OPTIMIZATION``, with the rewrites and the fusion that the request wants.

    Before: ``main`` is in Relax. After: it calls primitive TensorIR functions and views only; every function
    is reached from ``main``, or from the function that prepares separate parameters for it, fused with its
    neighbors, and not yet scheduled.

    Raises:
        JobError: ``rewrite-unknown``; ``kernel-unknown`` for a workload that the model lacks;
            ``optimize-failed`` with the phase and the pass, or ``dynamic-shapes-unsupported`` where sizes are
            open; ``build-failed`` for a target that LLVM does not know.
    """
    module = translated.module
    upload = translated.captured.upload
    kernels = KernelStep(upload, context)
    planned, rewrites = plan_passes(OPTIMIZATION, upload.request.optimize)
    phases = kernels.added_to(planned)
    total = sum(len(phase.passes) for phase in phases)
    times: list[PassTime] = []
    with tvm_target(translated.captured.upload.target), tvm.transform.PassContext(opt_level=3):
        for phase, step in _steps(phases):
            context.observer.progress(Stage.OPTIMIZE, len(times), total, f"{phase.name}: {step.info.name}")
            start = time.perf_counter()
            try:
                module = _run(phase, step, module)
            except JobError as error:
                raise blame_open_sizes(error, translated.captured) from error
            seconds = time.perf_counter() - start
            times.append(_pass_time(phase, step, seconds, module))
            context.observer.snapshot(Stage.OPTIMIZE, phase.name, step.info.name, seconds, module)
    return Optimized(
        captured=translated.captured,
        operators=translated.operators,
        module=module,
        passes=tuple(times),
        rewrites=tuple(report_rewrite(rewrite, translated.places) for rewrite in rewrites),
        parameters=translated.parameters,
        kernels=kernels.finish(),
        nodes=translated.nodes,
    )


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
