"""Matrix products and convolutions on NVIDIA GPUs.

``contraction`` recognizes them, ``plan`` ranks ways to compute them; ``blocked``, ``skinny`` and ``direct``
write the loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import tvm
from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import TF32
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.products.blocked import BlockedProduct
from worker.compiler.schedules.gpu.products.contraction import Contraction, Sum, as_contraction, find_sum
from worker.compiler.schedules.gpu.products.direct import DirectProduct, direct_shape
from worker.compiler.schedules.gpu.products.noted import noted
from worker.compiler.schedules.gpu.products.plan import (
    DirectPlan,
    Plan,
    ProductShape,
    SkinnyPlan,
    direct_plans,
    plans_for,
)
from worker.compiler.schedules.gpu.products.skinny import SkinnyProduct, stream_of
from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.schedules.plans import PlanChooser

_NAME = "main"

_FEW_PRODUCTS = 64
"""One thread computes a sum of at most this many products, if results share no factors."""


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
    found = find_sum(_schedule(function))
    return () if found is None else _plans(found, gpu, precision)


def write_product(
    schedule: s_tir.Schedule, gpu: Gpu, plan: Plan | None = None, precision: Precision = EXACT
) -> tirx.PrimFunc | None:
    """The function ``main`` with its loops written for a plan; None if it is not a product.

    Args:
        schedule: the function, its elementwise blocks inlined.
        gpu: the GPU.
        plan: one of ``product_plans``; by default, the best guess.
        precision: how exact products are.
    """
    found = find_sum(schedule)
    if found is None:
        return None
    plan = plan or next(iter(_plans(found, gpu, precision)), None)
    loops = None if plan is None else _loops(found, plan, gpu)
    return None if loops is None else nest.with_loops(schedule.mod[_NAME], loops)


def _loops(found: Sum, plan: Plan, gpu: Gpu) -> tirx.Stmt | None:
    if isinstance(plan, DirectPlan):
        return DirectProduct(found, plan).statement()
    contraction = as_contraction(found)
    if contraction is None:
        return None
    if isinstance(plan, SkinnyPlan):
        return SkinnyProduct(contraction, plan).statement()
    return BlockedProduct(contraction, plan, gpu).statement()


def write_chosen_product(schedule: s_tir.Schedule, gpu: Gpu, choose: PlanChooser) -> tirx.PrimFunc | None:
    """``write_product`` with the plan that is chosen among all of the product's, in the form of ``noted``.

    The function's attribute ``TF32`` says how exact it is.

    Raises:
        NoSuchPlanError: the wanted plan is not among them.
    """
    precision = Precision(tf32=bool((schedule.mod[_NAME].attrs or {}).get(TF32, False)))
    found = find_sum(schedule)
    plans = () if found is None else _plans(found, gpu, precision)
    if not plans:
        return None
    notes = {noted(plan): plan for plan in plans}
    return write_product(schedule, gpu, notes[choose(tuple(notes))], precision)


def _schedule(function: tirx.PrimFunc) -> s_tir.Schedule:
    return inline_blocks(s_tir.Schedule(tvm.IRModule({_NAME: function.with_attr("global_symbol", _NAME)})))


def _plans(found: Sum, gpu: Gpu, precision: Precision) -> tuple[Plan, ...]:
    contraction = as_contraction(found)
    depth = prod(axis.extent for axis in found.block.reduced)
    shares = contraction is not None and contraction.rows.size > 1 and contraction.columns.size > 1
    if not shares and depth <= _FEW_PRODUCTS:
        shape = direct_shape(found)
        return direct_plans(shape.vector, shape.pixels, shape.results, gpu)
    return () if contraction is None else _contraction_plans(contraction, gpu, precision)


def _contraction_plans(contraction: Contraction, gpu: Gpu, precision: Precision) -> tuple[Plan, ...]:
    dtype = contraction.left.dtype
    if dtype != contraction.right.dtype:
        return ()
    is_tensor = {
        "float16": True,
        "bfloat16": gpu.has_bfloat16,
        "float32": precision.tf32 and gpu.has_bfloat16,
    }.get(dtype)
    if is_tensor is None or (dtype == "bfloat16" and not is_tensor):
        return ()
    streams_depth, width = stream_of(contraction)
    shape = ProductShape(
        rows=contraction.rows.size,
        columns=contraction.columns.size,
        depth=contraction.depth.size,
        batches=contraction.batch.size,
        bits=nest.bits_of(dtype),
        is_tensor=is_tensor,
        streams_depth=streams_depth,
        width=width,
        has_warpgroups=gpu.has_warpgroups and (dtype != "float32" or _are_along_depth(contraction)),
        copies_async=gpu.has_async_copies
        and contraction.left.can_copy_async
        and contraction.right.can_copy_async,
    )
    return plans_for(shape, gpu)


def _are_along_depth(contraction: Contraction) -> bool:
    return contraction.left.is_along_depth and contraction.right.is_along_depth
