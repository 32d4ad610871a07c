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
from typing import NamedTuple

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from worker.compiler.schedules.annotations import SCHEDULED
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.schedules.gpu.attention import write_attention
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.elementwise import write_elementwise
from worker.compiler.schedules.gpu.processor_loops import from_processor_loops
from worker.compiler.schedules.gpu.products import write_product
from worker.compiler.schedules.gpu.rows import write_rows
from worker.compiler.schedules.gpu.windows import write_windows
from worker.compiler.schedules.inline import inline_blocks

_NAME = "main"

Write = Callable[[s_tir.Schedule, Gpu], tirx.PrimFunc | None]
"""Returns a claimed function with its loops bound to threads, or None. The function is ``main``."""


class GpuFamily(NamedTuple):
    """A family's name, and the function that claims and schedules."""

    name: str
    write: Write


GPU_FAMILIES: tuple[GpuFamily, ...] = (
    GpuFamily("attention", write_attention),
    GpuFamily("products", write_product),
    GpuFamily("rows", write_rows),
    GpuFamily("windows", write_windows),
    GpuFamily("elementwise", write_elementwise),
)

_RULES = (
    dlight.gpu.Matmul(),
    dlight.gpu.GEMV(),
    dlight.gpu.Reduction(),
    dlight.gpu.GeneralReduction(),
    dlight.gpu.Fallback(),
)


def schedule_for_gpu(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
    """Schedule a function of TensorIR for a GPU.

    Args:
        function: a function as legalization and fusion leave it.
        gpu: the GPU.

    Returns:
        The function with every loop nest bound to threads, marked as scheduled.
    """
    symbol = function.attrs.get("global_symbol") if function.attrs else None
    scheduled = _by_family(function, gpu) or _by_rules(function, gpu)
    scheduled = (
        scheduled.with_attr("global_symbol", symbol) if symbol else scheduled.without_attr("global_symbol")
    )
    return scheduled.with_attr(SCHEDULED, True)


def schedule_all_for_gpu(module: tvm.IRModule, gpu: Gpu) -> tvm.IRModule:
    """Schedule every TensorIR function of a module that is not bound to threads yet."""
    changed = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            is_written = function.attrs and function.attrs.get(SCHEDULED)
            bound = from_processor_loops(function, gpu) if is_written else schedule_for_gpu(function, gpu)
            changed.update_func(variable, bound or function)
    return changed


def _by_family(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | None:
    module = tvm.IRModule({_NAME: function.with_attr("global_symbol", _NAME)})
    for family in GPU_FAMILIES:
        try:
            written = family.write(inline_blocks(s_tir.Schedule(module)), gpu)
        except REFUSALS:
            continue
        if written is not None:
            return written
    return None


def _by_rules(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
    module = tvm.IRModule({_NAME: function.with_attr("global_symbol", _NAME)})
    with gpu.target:
        return dlight.ApplyDefaultSchedule(*_RULES)(module)[_NAME]
