"""Opens other runtimes and measures the machine's ceiling, each in a confined process of its own."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import tirx

from bessemer.contract.options import Peer
from bessemer.contract.report import (
    BaselineResult,
    FunctionTime,
    MachineCeiling,
    PeerAbsence,
    PeerComparison,
)
from bessemer.contract.stage import Stage
from worker.candidates.client import LibraryCrashedError, ModelProcess, ProcessSide, naming_crashes
from worker.compiler.peers.ceiling import CeilingProbe
from worker.compiler.peers.executors import EAGER, PeerExecutor, PeerModel, Runtime, missing_package
from worker.compiler.peers.verdict import SHOWN_GAPS, could_save_ms, find_gaps, judge
from worker.compiler.schedules.blocks import has_dynamic_sizes
from worker.compiler.values import Captured, RelaxProgram, StageContext
from worker.measure.samples import take_sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.compiler.schedules.processors import Machine

_TOLERANCES = 10
"""A runtime's outputs may differ by this multiple of the library's tolerance: it is timed, not verified."""
_MAX_REASON = 300
_FLOPS_PER_MULTIPLY_ADD = 2
_FLOAT_BITS = 32

_log = logging.getLogger(__name__)


def open_peers(
    captured: Captured, context: StageContext, processes: ExitStack
) -> tuple[dict[Peer, ModelProcess], tuple[PeerAbsence, ...]]:
    """Open each runtime that the worker has and that computes the model's outputs.

    Args:
        captured: the model with its inputs and references.
        context: folders and the candidate server.
        processes: closes the runtimes.

    Returns:
        Their processes, which have run the reference inputs, and why the others are missing.
    """
    opened: dict[Peer, ModelProcess] = {}
    absent: list[PeerAbsence] = []
    for peer in Peer:
        reason = _unsuited(captured) or _not_installed(peer)
        if not reason:
            try:
                opened[peer] = _open(peer, captured, context, processes)
                continue
            except LibraryCrashedError as error:
                reason = str(error)
                _log.warning("no comparison with %s: %s", peer.value, reason)
        absent.append(PeerAbsence(name=peer.value, reason=reason[:_MAX_REASON]))
    return opened, tuple(absent)


def time_peers(captured: Captured, context: StageContext) -> dict[str, float]:
    """The median milliseconds of torch eager and of each runtime that can run the model: the lines to beat.

    One after the other, so that a search does not have to share its memory with them.
    """
    found: dict[str, float] = {}
    if _unsuited(captured):
        return found
    for runtime in (EAGER, *Peer):
        if isinstance(runtime, Peer) and _not_installed(runtime):
            continue
        detail = f"timing {runtime.value}, which the search has to beat"
        context.observer.progress(Stage.TUNE, 0, 0, detail)
        with ExitStack() as processes:
            try:
                runner = _open(runtime, captured, context, processes)
                processes.enter_context(context.candidates.turn())
                found[runtime.value] = 1e3 * median(take_sample(ProcessSide(runner)))
            except LibraryCrashedError as error:
                _log.warning("%s could not be measured before the search: %s", runtime.value, error)
    return found


def compare_with(
    baselines: Sequence[BaselineResult],
    absent: Sequence[PeerAbsence],
    functions: Sequence[FunctionTime],
    module: tvm.IRModule,
    ceiling: MachineCeiling | None,
) -> PeerComparison:
    """The verdict on measured runtimes.

    Args:
        baselines: the runtimes that were timed in alternation with the library.
        absent: the runtimes that were not timed.
        functions: the library's profile, with the operations of its products.
        module: the module before its functions were scheduled.
        ceiling: what the machine reaches, if known.
    """
    gaps = () if ceiling is None else find_gaps(functions, moved_bytes(module), ceiling)
    return PeerComparison(
        **dict(judge(baselines, absent)),
        ceiling=ceiling,
        holding_back=tuple(gap for gap in gaps if gap.could_save_ms > 0)[:SHOWN_GAPS],
        could_save_ms=could_save_ms(gaps),
    )


def measure_ceiling(machine: Machine, threads: int, context: StageContext) -> MachineCeiling | None:
    """What this machine reaches; None if it cannot be measured. Takes a turn of the caller's.

    Args:
        machine: the model of the processor, for its caches.
        threads: the library's threads.
        context: the candidate server.
    """
    try:
        with context.candidates.open_original(partial(CeilingProbe, threads)) as probe:
            ((flops, memory),) = probe.run(())
    except LibraryCrashedError as error:
        _log.warning("the machine's ceiling is not known: %s", error)
        return None
    cycles = flops / (_FLOPS_PER_MULTIPLY_ADD * machine.fma_ports * machine.lanes(_FLOAT_BITS))
    return MachineCeiling(
        flops_per_second=float(flops),
        memory_bytes_per_second=float(memory),
        cache_bytes_per_second=float(max(memory, cycles * machine.near_bytes_per_cycle)),
        cache_bytes=threads * machine.l2_bytes,
    )


def moved_bytes(module: tvm.IRModule) -> dict[str, int]:
    """The bytes of the tensors of each function, each once; functions of dynamic sizes are left out."""
    return {
        variable.name_hint: sum(map(_bytes, function.params))
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and not has_dynamic_sizes(function)
    }


def _bytes(tensor: Any) -> int:
    bits = int(tvm.runtime.DataType(str(tensor.ty.dtype)).bits)
    return prod(int(size) for size in tensor.shape) * -(-bits // 8)


def _unsuited(captured: Captured) -> str:
    """Why no other runtime can run this entry point as it is; empty if they can."""
    if isinstance(captured.program, RelaxProgram):
        return "an IRModule has no torch model"
    if captured.states:
        return "the model keeps state between runs"
    return "the model draws random numbers" if captured.seed is not None else ""


def _not_installed(peer: Peer) -> str:
    package = missing_package(peer)
    return "" if package is None else f"the worker has no package '{package}': install its extra `peers`"


def _open(runtime: Runtime, captured: Captured, context: StageContext, processes: ExitStack) -> ModelProcess:
    upload, folder = captured.upload, context.scratch / "peers" / captured.name
    folder.mkdir(parents=True, exist_ok=True)
    selection = replace(upload.selection, method=captured.method)
    model = PeerModel(upload.path, selection, captured.format, upload.target.threads, folder)
    with naming_crashes(runtime.value), ExitStack() as opening:
        runner = opening.enter_context(
            context.candidates.open_original(partial(PeerExecutor, runtime, model))
        )
        difference = _difference(runner.run(captured.original_inputs), captured)
        if difference:
            raise LibraryCrashedError(0, difference)
        processes.enter_context(opening.pop_all())
        return runner


def _difference(outputs: tuple[np.ndarray, ...], captured: Captured) -> str:
    """How outputs differ from the model's; empty if they do not."""
    whole = captured.with_complex
    specs = whole.output_specs[: whole.own_outputs]
    if len(outputs) != len(specs):
        return f"it has {len(outputs)} outputs, the model {len(specs)}"
    for spec, ours, theirs in zip(specs, whole.references, outputs, strict=False):
        tolerance = captured.upload.request.verify.tolerance(spec.dtype)
        is_close = ours.shape == theirs.shape and np.allclose(
            theirs,
            ours,
            rtol=_TOLERANCES * tolerance.relative,
            atol=_TOLERANCES * tolerance.absolute,
            equal_nan=True,
        )
        if not is_close:
            return f"its output '{spec.name}' is not the model's"
    return ""
