"""The schedule of a function without a search.

``default_schedule`` does, in this order::

    inline elementwise blocks                                             # inline
    take one image if the number of images is dynamic                     # each_image
    let the first family that claims the function write its loops         # families
    otherwise schedule each block: spatial, or reduction with epilogue    # spatial, reduction
    use signed integers where they cannot wrap                            # signed_integers
    replace calls of mathematical functions by vector arithmetic          # vector_math

A step that TVM refuses is left out, so every function gets a correct schedule. A function may carry a plan of
a search, which its family then follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tvm
from tvm import s_tir, tirx

from worker.compiler.schedules.annotations import AUTHORED, SCHEDULED, UNCLAIMED
from worker.compiler.schedules.blocks import REFUSALS, attempt, block_names, read_block
from worker.compiler.schedules.each_image import for_each_image, of_one_image
from worker.compiler.schedules.families import schedule_by_family
from worker.compiler.schedules.gpu import gpu_plans_of, schedule_for_gpu
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.schedules.gpu.processor_loops import from_processor_loops
from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.schedules.plans import NoSuchPlanError, Numbers, Scheduled, forget_plan, noted_plan
from worker.compiler.schedules.processors import Machine, machine_of
from worker.compiler.schedules.reduction import find_epilogue, schedule_reduction
from worker.compiler.schedules.signed_integers import with_signed_integers
from worker.compiler.schedules.spatial import schedule_spatial
from worker.compiler.schedules.type_checks import remembered_annotations
from worker.compiler.schedules.vector_math import with_vector_math

_NAME = "main"


def default_schedule(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Schedule a function by the plan that it carries, or by its family's first.

    Args:
        function: a function as legalization and fusion leave it.
        target: the target, whose cores and vectors, or whose GPU, determine the tiles.

    Returns:
        The function, marked as scheduled; it has its old loops if TVM refuses to schedule it.

    Raises:
        NoSuchPlanError: no family has the plan that the function carries.
    """
    gpu = gpu_in(target)
    if gpu is not None:
        return schedule_for_gpu(function, gpu)
    scheduled = _schedule(function, target).function
    symbol = function.attrs.get("global_symbol") if function.attrs else None
    scheduled = (
        scheduled.with_attr("global_symbol", symbol) if symbol else scheduled.without_attr("global_symbol")
    )
    return _with_arithmetic(scheduled).with_attr(SCHEDULED, True)


def plans_of(function: tirx.PrimFunc, target: tvm.target.Target) -> tuple[Any, ...] | None:
    """The plans of the family that claims a function, best first; None if no family claims it."""
    gpu = gpu_in(target)
    if gpu is not None:
        return gpu_plans_of(function, gpu)
    scheduled = _schedule(function, target)
    return None if _is_unclaimed(scheduled.function) else scheduled.plans


class RankedPlans(NamedTuple):
    """The plans of the family that claims a function, best first, and the sizes that they follow from."""

    plans: tuple[Any, ...] = ()
    shapes: tuple[Any, ...] = ()


def ranked_plans(function: tirx.PrimFunc, target: tvm.target.Target) -> RankedPlans:
    """The plans of a function for a processor; none for a GPU, or if no family claims it."""
    if gpu_in(target) is not None:
        return RankedPlans()
    scheduled = _schedule(function, target)
    return RankedPlans(scheduled.plans, scheduled.shapes)


def schedule_rest(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Schedule every TensorIR function of a module that has no schedule yet or carries a plan.

    Scheduled functions only get vector arithmetic for mathematical functions; those of the model's author
    stay as they are.
    """

    def schedule(function: tirx.PrimFunc) -> tirx.PrimFunc:
        return _finish(function, target) if is_scheduled(function) else default_schedule(function, target)

    return _each_function(module, schedule)


def follow_plans(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Finish a candidate of a search: follow the plan that it carries, or keep its loops.

    Args:
        module: the candidate.
        target: the target.

    Raises:
        NoSuchPlanError: no family has the plan that a function carries.
    """
    return _each_function(module, lambda function: _finish(function, target))


def is_scheduled(function: tirx.PrimFunc) -> bool:
    """Whether a function is marked as scheduled."""
    return bool(function.attrs and function.attrs.get(SCHEDULED, False))


def unclaimed_functions(module: tvm.IRModule) -> tuple[str, ...]:
    """The sorted names of the functions of a scheduled module that no family claimed."""
    names = (
        str(variable.name_hint)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and _is_unclaimed(function)
    )
    return tuple(sorted(names))


def _is_unclaimed(function: tirx.PrimFunc) -> bool:
    return bool(function.attrs and function.attrs.get(UNCLAIMED, False))


def _each_function(module: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tvm.IRModule:
    changed = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            changed.update_func(variable, change(function))
    return changed


def _finish(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    if noted_plan(function) is not None:
        return default_schedule(function, target)
    gpu = gpu_in(target)
    if gpu is not None:
        return from_processor_loops(function, gpu) or function
    is_authored = bool(function.attrs and function.attrs.get(AUTHORED, False))
    return function if is_authored else _with_arithmetic(function)


def _with_arithmetic(function: tirx.PrimFunc) -> tirx.PrimFunc:
    return with_vector_math(with_signed_integers(function))


@remembered_annotations()
def _schedule(function: tirx.PrimFunc, target: tvm.target.Target) -> Scheduled:
    schedule = s_tir.Schedule(tvm.IRModule({_NAME: function.with_attr("global_symbol", _NAME)}))
    wanted = noted_plan(function)
    if wanted is not None:
        forget_plan(schedule, wanted)
    try:
        scheduled = _schedule_function(schedule, machine_of(target), wanted)
    except REFUSALS:
        scheduled = Scheduled(function.with_attr(UNCLAIMED, True), ())
    if wanted is not None and not scheduled.plans:
        raise NoSuchPlanError(f"no family has the plan {wanted}")
    return scheduled


def _schedule_function(schedule: s_tir.Schedule, machine: Machine, wanted: Numbers | None) -> Scheduled:
    schedule = inline_blocks(schedule)
    one = of_one_image(schedule, machine)
    if one is None:
        return _schedule_inlined(schedule, machine, wanted)
    scheduled = _schedule_inlined(one, machine, wanted)
    return scheduled._replace(function=for_each_image(schedule, scheduled.function, machine))


def _schedule_inlined(schedule: s_tir.Schedule, machine: Machine, wanted: Numbers | None) -> Scheduled:
    claimed = schedule_by_family(schedule, machine, wanted)
    if claimed is not None:
        return claimed
    return Scheduled(_schedule_by_rules(schedule, machine).mod[_NAME].with_attr(UNCLAIMED, True), ())


def _schedule_by_rules(schedule: s_tir.Schedule, machine: Machine) -> s_tir.Schedule:
    done: set[str] = set()
    for name in block_names(schedule):
        if name in done:
            continue
        block = read_block(schedule, schedule.get_sblock(name), may_be_dynamic=True)
        if block is None or not block.axes:
            continue
        if not block.reduced:
            schedule = _spatial(schedule, name, machine)
            continue
        epilogue = find_epilogue(schedule, block)
        done |= {epilogue} if epilogue else set()
        schedule = schedule_reduction(schedule, name, epilogue, machine)
    return schedule


def _spatial(schedule: s_tir.Schedule, name: str, machine: Machine) -> s_tir.Schedule:
    return attempt(schedule, lambda trial: schedule_spatial(trial, name, machine)) or schedule
