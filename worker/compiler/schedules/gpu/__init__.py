"""Schedules for GPUs: every loop nest becomes kernels, its loops bound to blocks and threads.

A family claims one kind of function and writes its loops; the first that claims a function wins. TVM's dlight
rules take what no family claims, and the last of them binds any loops. So no function stays without threads.

::

    for block in blocks of the grid:         # blockIdx
        for thread in threads of the block:  # threadIdx
            the thread's part
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from worker.compiler.schedules.annotations import SCHEDULED
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.schedules.gpu.attention import write_attention
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.elementwise import write_elementwise
from worker.compiler.schedules.gpu.products import write_chosen_product
from worker.compiler.schedules.gpu.rows import write_rows
from worker.compiler.schedules.gpu.windows import write_windows
from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.schedules.plans import (
    NoSuchPlanError,
    PlanChooser,
    Scheduled,
    forget_plan,
    noted_plan,
)

_NAME = "main"

Write = Callable[[s_tir.Schedule, Gpu, PlanChooser], tirx.PrimFunc | None]
"""Returns a claimed function with its loops bound to threads, or None. The function is ``main``."""


class GpuFamily(NamedTuple):
    """A family's name, and the function that claims and schedules."""

    name: str
    write: Write


def _in_one_way(write: Callable[[s_tir.Schedule, Gpu], tirx.PrimFunc | None]) -> Write:
    return lambda schedule, gpu, _choose: write(schedule, gpu)


GPU_FAMILIES: tuple[GpuFamily, ...] = (
    GpuFamily("attention", write_attention),
    GpuFamily("products", write_chosen_product),
    GpuFamily("rows", _in_one_way(write_rows)),
    GpuFamily("windows", _in_one_way(write_windows)),
    GpuFamily("elementwise", _in_one_way(write_elementwise)),
)

_RULES = (
    dlight.gpu.Matmul(),
    dlight.gpu.GEMV(),
    dlight.gpu.Reduction(),
    dlight.gpu.GeneralReduction(),
    dlight.gpu.Fallback(),
)
_RULE_FAILURES = (*REFUSALS, AssertionError)
"""The exceptions of a rule that claimed a function but cannot schedule it (TVM 0.27)."""


def schedule_for_gpu(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
    """Schedule a function of TensorIR for a GPU, by the plan that it carries or by its family's first.

    Args:
        function: a function as legalization and fusion leave it.
        gpu: the GPU.

    Returns:
        The function with every loop nest bound to threads, marked as scheduled.

    Raises:
        NoSuchPlanError: no family has the plan that the function carries.
    """
    symbol = function.attrs.get("global_symbol") if function.attrs else None
    wanted = noted_plan(function)
    claimed = _by_family(function, gpu)
    if wanted is not None and (claimed is None or not claimed.plans):
        raise NoSuchPlanError(f"no family has the plan {wanted}")
    scheduled = _by_rules(function, gpu) if claimed is None else claimed.function
    scheduled = (
        scheduled.with_attr("global_symbol", symbol) if symbol else scheduled.without_attr("global_symbol")
    )
    return scheduled.with_attr(SCHEDULED, True)


def gpu_plans_of(function: tirx.PrimFunc, gpu: Gpu) -> tuple[Any, ...] | None:
    """The plans of the family that claims a function, best first; None if no family claims it."""
    claimed = _by_family(function, gpu)
    return None if claimed is None else claimed.plans


def _by_family(function: tirx.PrimFunc, gpu: Gpu) -> Scheduled | None:
    start = s_tir.Schedule(tvm.IRModule({_NAME: function.with_attr("global_symbol", _NAME)}))
    wanted = noted_plan(function)
    if wanted is not None:
        forget_plan(start, wanted)
    for family in GPU_FAMILIES:
        choose = PlanChooser(wanted)
        try:
            written = family.write(inline_blocks(start.copy()), gpu, choose)
        except REFUSALS:
            continue
        if written is not None:
            return Scheduled(written, choose.plans)
    return None


def _by_rules(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
    module = tvm.IRModule({_NAME: function.with_attr("global_symbol", _NAME)})
    with gpu.target:
        for rules in (_RULES, _RULES[-1:]):
            with suppress(*_RULE_FAILURES):
                return dlight.ApplyDefaultSchedule(*rules)(module)[_NAME]
    raise AssertionError("the last rule binds any loops")
