"""Matrix products and convolutions on NVIDIA GPUs.

``contraction`` recognizes them, ``plan`` ranks ways to compute them, ``blocked`` and ``skinny`` write the loops.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.products.blocked import BlockedProduct
from worker.compiler.schedules.gpu.products.contraction import Contraction, find_contraction
from worker.compiler.schedules.gpu.products.noted import noted
from worker.compiler.schedules.gpu.products.plan import Plan, ProductShape, SkinnyPlan, plans_for
from worker.compiler.schedules.gpu.products.skinny import SkinnyProduct, stream_of
from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.schedules.plans import PlanChooser

_NAME = "main"


@dataclass(frozen=True)
class Precision:
    """How exact products are.

    Attributes:
        tf32: whether tensor cores may round factors of float32 to 10 bits of mantissa, as cuDNN does for
            convolutions by default.
    """

    tf32: bool = False


EXACT = Precision()


def product_plans(function: tirx.PrimFunc, gpu: Gpu, precision: Precision = EXACT) -> tuple[Plan, ...]:
    """The plans for a product that are worth measuring, the best guess first; none for other functions."""
    contraction = find_contraction(_schedule(function))
    return () if contraction is None else _plans(contraction, gpu, precision)


def write_product(
    schedule: s_tir.Schedule, gpu: Gpu, plan: Plan | None = None, precision: Precision = EXACT
) -> tirx.PrimFunc | None:
    """The function ``main`` with its loops written for a plan, the best guess by default; None if it is no product.

    Args:
        schedule: the function, its elementwise blocks inlined.
        gpu: the GPU.
        plan: one of ``product_plans``.
        precision: how exact products are.
    """
    contraction = find_contraction(schedule)
    if contraction is None:
        return None
    plan = plan or next(iter(_plans(contraction, gpu, precision)), None)
    if plan is None:
        return None
    product = (
        SkinnyProduct(contraction, plan)
        if isinstance(plan, SkinnyPlan)
        else BlockedProduct(contraction, plan, gpu.has_async_copies)
    )
    return nest.with_loops(schedule.mod[_NAME], product.statement())


def write_chosen_product(
    schedule: s_tir.Schedule, gpu: Gpu, choose: PlanChooser, precision: Precision = EXACT
) -> tirx.PrimFunc | None:
    """The same for the plan that is chosen among all of the product's, as a search notes them.

    Raises:
        NoSuchPlanError: the wanted plan is not among them.
    """
    contraction = find_contraction(schedule)
    plans = () if contraction is None else _plans(contraction, gpu, precision)
    if not plans:
        return None
    notes = {noted(plan): plan for plan in plans}
    return write_product(schedule, gpu, notes[choose(tuple(notes))], precision)


def _schedule(function: tirx.PrimFunc) -> s_tir.Schedule:
    return inline_blocks(s_tir.Schedule(tvm.IRModule({_NAME: function.with_attr("global_symbol", _NAME)})))


def _plans(contraction: Contraction, gpu: Gpu, precision: Precision) -> tuple[Plan, ...]:
    dtype = contraction.left.dtype
    if dtype != contraction.right.dtype or dtype not in ("float16", "bfloat16", "float32"):
        return ()
    streams_depth, width = stream_of(contraction)
    is_tensor = {
        "float16": True,
        "bfloat16": gpu.has_bfloat16,
        "float32": precision.tf32 and gpu.has_bfloat16,
    }[dtype]
    if dtype == "bfloat16" and not is_tensor:
        return ()
    shape = ProductShape(
        rows=contraction.rows.size,
        columns=contraction.columns.size,
        depth=contraction.depth.size,
        batches=contraction.batch.size,
        bits=int(tvm.DataType(dtype).bits),
        is_tensor=is_tensor,
        streams_depth=streams_depth,
        width=width,
    )
    return plans_for(shape, gpu)
