"""Attention on GPUs, in one kernel: by tensor cores or, for exact float32, by multiply-adds."""

from __future__ import annotations

from dataclasses import replace

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import TF32
from worker.compiler.schedules.families.attention.blocks import find_attention
from worker.compiler.schedules.gpu.attention.multiply_adds import write_by_multiply_adds
from worker.compiler.schedules.gpu.attention.plan import attention_plans
from worker.compiler.schedules.gpu.attention.tensor_cores import TensorCoreAttention
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.plans import PlanChooser


def write_attention(schedule: s_tir.Schedule, gpu: Gpu, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the kernel of a function that ``layout.attention`` made; None for others, or if no tile fits."""
    blocks = find_attention(schedule)
    if blocks is None or blocks.is_dynamic or not blocks.dtype.endswith(("float16", "float32")):
        return None
    attributes = schedule.mod["main"].attrs or {}
    plans = attention_plans(blocks, replace(gpu, tf32=bool(attributes.get(TF32, False))))
    if plans:
        loops = TensorCoreAttention(blocks, choose(plans), gpu).statement()
        return nest.with_loops(schedule.mod["main"], loops)
    return write_by_multiply_adds(schedule.mod["main"], blocks, gpu)
