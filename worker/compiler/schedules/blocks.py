"""Read blocks of a TensorIR schedule: their axes, and how they access buffers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import structural_equal, structural_map

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import FAMILY

COST = 8
"""The cost of a call of a mathematical function, in plain operations."""

GUESSED_SIZE = 32
"""The size to plan for if a size is dynamic."""

_CALLS = re.compile(r"T\.(exp|erf|tanh|log|sqrt|rsqrt|pow|sigmoid|sin|cos|if_then_else|call_\w+)\w*\(")
_IF = tvm.ir.Op.get("prim.if_then_else")
_KINDS = (tirx.IterVar.DataPar, tirx.IterVar.CommReduce)


Places = dict[Any, Any]
"""Values of a block's variables, by variable."""


@dataclass(frozen=True)
class Axis:
    """A loop around a block, and the block's variable that it is bound to.

    ``size`` is the number of iterations, an expression if it is known only at run time; ``extent`` is the
    number to plan for.
    """

    loop: LoopRV
    var: tirx.Var
    extent: int
    reduces: bool
    size: Any

    @property
    def is_dynamic(self) -> bool:
        """Whether the size is known only at run time; ``extent`` is a guess then."""
        return not isinstance(self.size, int)


@dataclass(frozen=True)
class Block:
    """A block with one loop per variable, in the same order."""

    handle: SBlockRV
    body: s_tir.SBlock
    axes: tuple[Axis, ...]

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """The axes that index the output."""
        return tuple(axis for axis in self.axes if not axis.reduces)

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The reduced axes."""
        return tuple(axis for axis in self.axes if axis.reduces)

    @property
    def is_dynamic(self) -> bool:
        """Whether any axis is dynamic."""
        return any(axis.is_dynamic for axis in self.axes)

    @property
    def iterations(self) -> int:
        """The number of executions of the body."""
        return prod(axis.extent for axis in self.axes)

    @property
    def work(self) -> int:
        """Iterations; one that calls a mathematical function counts ``COST`` times."""
        return self.iterations * (COST if is_expensive(self.body) else 1)


def read_block(schedule: s_tir.Schedule, handle: SBlockRV, may_be_dynamic: bool = False) -> Block | None:
    """The block; None if loops and variables do not correspond, or if a size is dynamic and may not be."""
    body = schedule.get(handle)
    loops = schedule.get_loops(handle)
    if len(loops) != len(body.iter_vars):
        return None
    axes = []
    for loop, variable in zip(loops, body.iter_vars, strict=True):
        extent = schedule.get(loop).extent
        is_known = isinstance(extent, tirx.IntImm)
        if not (is_known or may_be_dynamic) or variable.iter_type not in _KINDS:
            return None
        reduces = variable.iter_type == tirx.IterVar.CommReduce
        size = int(extent) if is_known else extent
        axes.append(Axis(loop, variable.var, guess(size), reduces, size))
    return Block(handle=handle, body=body, axes=tuple(axes))


def read_blocks(schedule: s_tir.Schedule, may_be_dynamic: bool = False) -> tuple[Block, ...]:
    """All blocks of the function, in order; none if ``read_block`` refuses any."""
    blocks = [
        read_block(schedule, schedule.get_sblock(name), may_be_dynamic) for name in block_names(schedule)
    ]
    return () if None in blocks else tuple(block for block in blocks if block is not None)


def block_names(schedule: s_tir.Schedule) -> tuple[str, ...]:
    """The blocks of the function, in order."""
    children = schedule.get_child_blocks(schedule.get_sblock("root"))
    return tuple(str(schedule.get(handle).name_hint) for handle in children)


def name_of_family(schedule: s_tir.Schedule, family: str) -> str | None:
    """The first block that the layout phase gave to a family; None if there is none."""
    return next((name for name in block_names(schedule) if _family(schedule, name) == family), None)


def _family(schedule: s_tir.Schedule, name: str) -> str | None:
    annotations = schedule.get(schedule.get_sblock(name)).annotations
    return str(annotations[FAMILY]) if FAMILY in annotations else None


def guess(size: Any, guessed: int = GUESSED_SIZE) -> int:
    """The size to plan for: the size itself, or its value with a number for each variable."""
    if isinstance(size, int | tirx.IntImm):
        return int(size)
    dimensions = {
        variable: tirx.IntImm(str(variable.ty.dtype), guessed) for variable in undefined_vars(size, [])
    }
    known = Analyzer().simplify(structural_map(size, (tirx.Var, lambda var: dimensions.get(var, var))))
    return max(2, int(known)) if isinstance(known, tirx.IntImm) else guessed


def long_axes(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of more than one iteration."""
    return tuple(axis for axis in axes if axis.extent > 1)


def same_sizes(some: Sequence[Axis], others: Sequence[Axis]) -> bool:
    """Whether axes have the same sizes, one by one."""
    return len(some) == len(others) and all(
        structural_equal(one.size, other.size) for one, other in zip(some, others, strict=True)
    )


def is_epilogue(epilogue: Block, block: Block) -> bool:
    """Whether a block reads the result elementwise."""
    output = block.body.writes[0].source
    body = epilogue.body.body
    if epilogue.reduced or not isinstance(body, tirx.BufferStore):
        return False
    reads = [load for load in nest.loads_of(body.value) if load.source.same_as(output)]
    same = same_sizes(epilogue.axes, block.spatial)
    return bool(reads) and same and all(are_axes(load.indices, epilogue.axes) for load in reads)


def are_axes(indices: Any, axes: tuple[Axis, ...]) -> bool:
    """Whether indices are the axes themselves, in order; an axis of extent 1 may be written as 0."""
    return len(indices) == len(axes) and all(
        axis.var.same_as(index) or (axis.extent == 1 and isinstance(index, tirx.IntImm))
        for index, axis in zip(indices, axes, strict=True)
    )


def has_dynamic_sizes(function: tirx.PrimFunc) -> bool:
    """Whether any argument of a function has a dynamic size."""
    shapes = (getattr(parameter, "shape", None) for parameter in function.params)
    return any(shape is None or not all(isinstance(size, tirx.IntImm) for size in shape) for shape in shapes)


def element_bits(block: Block) -> int:
    """Bits of an element of the first output."""
    return nest.bits_of(block.body.writes[0].source.dtype)


def writes_axis(block: Block) -> Axis | None:
    """The axis that indexes the output's last dimension, if the index is that axis alone."""
    if len(block.body.writes) != 1:
        return None
    region = block.body.writes[0].region
    if len(region) == 0:
        return None
    last = region[-1].min
    return next((axis for axis in block.spatial if last.same_as(axis.var)), None)


def depends_on(region: Any, axis: Axis) -> bool:
    """Whether the indices of a region depend on an axis."""
    return any(uses(dimension.min, axis) for dimension in region.region)


def moves_along(region: Any, axis: Axis) -> bool:
    """Whether an axis indexes a buffer's last, contiguous dimension and no other one."""
    dimensions = [dimension.min for dimension in region.region]
    return (
        bool(dimensions)
        and uses(dimensions[-1], axis)
        and not any(uses(dimension, axis) for dimension in dimensions[:-1])
    )


def is_expensive(body: s_tir.SBlock) -> bool:
    """Whether the body calls a mathematical function or branches."""
    return _CALLS.search(str(body.body)) is not None


def has_branch(body: s_tir.SBlock) -> bool:
    """Whether the body branches, as padding does."""
    return "if_then_else" in str(body.body)


def branches_along(block: Block, axis: Axis) -> bool:
    """Whether a condition of the body depends on an axis."""
    return any(uses(condition, axis) for condition in conditions_of(block.body.body))


def conditions_of(body: Any) -> list[Any]:
    """The conditions of all branches in a statement or an expression."""
    conditions: list[Any] = []

    def read(call: Any) -> None:
        if is_branch(call):
            conditions.append(call.args[0])

    tvm_ffi.structural_walk(body, (tvm.ir.Call, read))
    return conditions


def is_branch(call: Any) -> bool:
    """Whether a call is an ``if_then_else``: condition, then, else."""
    return bool(call.op.same_as(_IF))


def uses(expression: Any, axis: Axis) -> bool:
    """Whether an expression depends on an axis."""
    return any(used.same_as(axis.var) for used in undefined_vars(expression, []))


def step_along(load: Any, axis: Axis) -> int | None:
    """The distance in elements between reads at neighboring indices of an axis; None if it varies."""
    step = 0
    stride: int | None = 1
    for index, size in reversed(list(zip(load.indices, load.source.shape, strict=True))):
        if uses(index, axis):
            ahead = nest.substitute(index, {axis.var: axis.var + 1})
            apart = _difference(ahead, index)
            if apart is None or stride is None:
                return None
            step += apart * stride
        if stride is not None:
            stride = stride * int(size) if isinstance(size, tirx.IntImm) else None
    return step


def stride_bytes(load: Any, axis: Axis) -> int:
    """The distance in bytes between neighboring indices of an axis, assuming a row-major buffer."""
    stride = 1
    for index, size in reversed(list(zip(load.indices, load.source.shape, strict=True))):
        if uses(index, axis):
            break
        stride *= guess(size)
    return stride * nest.bits_of(load.source.dtype) // 8


def _difference(one: Any, other: Any) -> int | None:
    apart = Analyzer().simplify(one - other)
    return int(apart) if isinstance(apart, tirx.IntImm) else None


Step = Callable[[s_tir.Schedule], object]

REFUSALS = (s_tir.ScheduleError, tvm.error.InternalError, IndexError, RuntimeError, TypeError, ValueError)
"""The exceptions of TVM's primitives when they do not apply."""


def attempt(schedule: s_tir.Schedule, step: Step) -> s_tir.Schedule | None:
    """A copy of the schedule after a step; None if TVM refuses the step."""
    trial = schedule.copy()
    try:
        step(trial)
    except REFUSALS:
        return None
    return trial


def split_place(place: Any, axes: tuple[Axis, ...]) -> Places:
    """The values of the axes' variables, from the index of the loop that they are fused to."""
    places: Places = {}
    for position in reversed(range(len(axes))):
        axis = axes[position]
        if axis.extent == 1:
            places[axis.var] = tirx.IntImm(nest.dtype_of(axis.var), 0)
            continue
        is_outermost = all(outer.extent == 1 for outer in axes[:position])
        places[axis.var] = place if is_outermost else place % axis.size
        place = place // axis.size
    return places


def store_result(block: Block, epilogue: Block | None, places: Places, value: Any) -> tirx.Stmt:
    """Store an element of a function's result, given an element of the block that the epilogue reads.

    Args:
        block: the block.
        epilogue: the elementwise block that reads its result, if any.
        places: the values of the block's variables.
        value: the block's element there.
    """
    stored = block.body.body
    if epilogue is not None:
        pairs = zip(epilogue.axes, block.spatial, strict=True)
        places = {axis.var: places[of_block.var] for axis, of_block in pairs}
        stored, read = epilogue.body.body, block.body.writes[0].source
        value = nest.replace_loads(nest.substitute(stored.value, places), read, nest.always(value))
    return nest.store(stored.buffer, value, *(nest.substitute(index, places) for index in stored.indices))


def result_at(block: Block, epilogue: Block | None, place: Sequence[Any], value: Any) -> tirx.Stmt:
    """``store_result`` with an index for each of the block's spatial axes."""
    places = {axis.var: index for axis, index in zip(block.spatial, place, strict=True)}
    return store_result(block, epilogue, places, value)
