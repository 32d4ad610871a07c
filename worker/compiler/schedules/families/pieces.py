"""Functions whose branches depend on the position only: joins along an axis, pads, shifted copies.

The output is cut into boxes in which every condition is constant::

    for parallel task = part of the first axis that is long enough:
        for box in boxes:                                                 # one loop nest for each
            for outer axes of the box:
                for vector of the last axis: output[...] = value, without a branch
                one more vector for the rest of the row

Nothing is reused, so registers and caches hold nothing between elements.

Edges: the last vector of a row moves back over its neighbor. A box narrower than a vector is scalar. A
function with more than 128 boxes is left to other families.

The transformation is known as index set splitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import ceil, prod
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.sym import detect_linear_equation

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import (
    Axis,
    Block,
    conditions_of,
    element_bits,
    has_branch,
    is_branch,
    read_blocks,
    writes_axis,
)
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, threads_pay

_MAX_BOXES = 128
_TASKS_PER_THREAD = 4
_ORDER = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)

Box = tuple[tuple[int, int], ...]
"""The first index and the one after the last, along each axis."""


class Threshold(NamedTuple):
    """A condition on one axis: true from ``first`` on, or before it."""

    axis: int
    first: int
    true_behind: bool


@dataclass(frozen=True)
class Tasks:
    """The parts of an axis that threads compute."""

    axis: int
    count: int
    size: int


def write_pieces(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if it has a reduction or branches on anything but positions."""
    blocks = read_blocks(schedule)
    block = blocks[0] if len(blocks) == 1 else None
    if block is None or block.reduced or not block.axes or not has_branch(block.body):
        return None
    if writes_axis(block) is not block.axes[-1] or not isinstance(block.body.body, tirx.BufferStore):
        return None
    conditions = _conditions(block)
    boxes = None if conditions is None else _boxes(block.axes, conditions)
    if boxes is None:
        return None
    lanes = machine.lanes(element_bits(block))
    tasks = _tasks(block, machine.threads)

    def task(number: Any) -> tirx.Stmt:
        return nest.sequence(*(_box(block, box, lanes, tasks, number) for box in boxes))

    loops = nest.tasks(tasks.count, task, _index_dtype(block), parallel=tasks.count > 1)
    return nest.with_loops(schedule.mod["main"], loops)


def _conditions(block: Block) -> list[Threshold] | None:
    """The conditions on positions; None if a condition reads anything else."""
    variables = [axis.var for axis in block.axes]
    found = [thresholds(condition, variables) for condition in conditions_of(block.body.body.value)]
    known = [condition for condition in found if condition is not None]
    return [one for condition in known for one in condition] if len(known) == len(found) else None


def thresholds(condition: Any, variables: Sequence[tirx.Var]) -> list[Threshold] | None:
    """The terms of a conjunction that compares single variables with numbers; None for other conditions."""
    if isinstance(condition, tirx.And):
        both = [thresholds(part, variables) for part in (condition.a, condition.b)]
        return None if None in both else [one for part in both for one in part or ()]
    if not isinstance(condition, _ORDER):
        return None
    less, more = condition.a, condition.b
    if isinstance(condition, tirx.GT | tirx.GE):
        less, more = more, less
    slack = more - less - (1 if isinstance(condition, tirx.LT | tirx.GT) else 0)
    *factors, rest = detect_linear_equation(slack, list(variables)) or [None]
    if rest is None or not all(isinstance(one, tirx.IntImm) for one in (*factors, rest)):
        return None
    moving = [axis for axis, factor in enumerate(factors) if int(factor)]
    if len(moving) != 1:
        return None
    factor, constant = int(factors[moving[0]]), int(rest)
    first = -(constant // factor) if factor > 0 else constant // -factor + 1
    return [Threshold(moving[0], first, factor > 0)]


def _boxes(axes: Sequence[Axis], conditions: Sequence[Threshold]) -> list[Box] | None:
    """The boxes of the output, cut at every threshold; None if there are too many."""
    segments = []
    for number, axis in enumerate(axes):
        cuts = {one.first for one in conditions if one.axis == number and 0 < one.first < axis.extent}
        segments.append(list(pairwise([0, *sorted(cuts), axis.extent])))
    return list(product(*segments)) if prod(map(len, segments)) <= _MAX_BOXES else None


def _tasks(block: Block, threads: int) -> Tasks:
    """Parts of the first axis, except the last one, that is long enough for all threads.

    The boxes have no conditions left, so the work is the number of elements.
    """
    elements = prod(axis.extent for axis in block.axes)
    wide = [axis for axis in range(len(block.axes) - 1) if block.axes[axis].extent >= threads]
    if not wide or not threads_pay(threads, elements, WORK_PER_THREAD):
        return Tasks(0, 1, block.axes[0].extent)
    extent = block.axes[wide[0]].extent
    size = ceil(extent / (_TASKS_PER_THREAD * threads))
    return Tasks(wide[0], ceil(extent / size), size)


def _box(block: Block, box: Box, lanes: int, tasks: Tasks, task: Any) -> tirx.Stmt:
    value = _decided(block, box)
    last = len(box) - 1

    def loops(place: tuple[Any, ...]) -> tirx.Stmt:
        axis = len(place)
        if axis == last:
            return _row(block, value, place, box[last], lanes)
        first, end = box[axis]
        if axis == tasks.axis and tasks.count > 1:
            first = nest.larger(task * tasks.size, _constant(block, first))
            end = nest.smaller(task * tasks.size + tasks.size, _constant(block, end))
        return nest.serial(end - first, lambda step: loops((*place, step + first)), _index_dtype(block))

    return loops(())


def _row(block: Block, value: Any, outer: tuple[Any, ...], ends: tuple[int, int], lanes: int) -> tirx.Stmt:
    """One row of a box, in vectors if it is wide enough."""
    first, width, dtype = ends[0], ends[1] - ends[0], _index_dtype(block)

    def vector(start: Any) -> tirx.Stmt:
        return nest.vectorized(lanes, lambda lane: _store(block, value, (*outer, start + lane)), dtype)

    if width < lanes:
        return nest.serial(width, lambda step: _store(block, value, (*outer, step + first)), dtype)
    whole = nest.serial(width // lanes, lambda number: vector(number * lanes + first), dtype)
    if width % lanes == 0:
        return whole
    return nest.sequence(whole, vector(_constant(block, ends[1] - lanes)))


def _store(block: Block, value: Any, place: Sequence[Any]) -> tirx.Stmt:
    places = dict(zip((axis.var for axis in block.axes), place, strict=True))
    target = block.body.body
    indices = [nest.substitute(index, places) for index in target.indices]
    return nest.store(target.buffer, nest.substitute(value, places), *indices)


def _decided(block: Block, box: Box) -> Any:
    """The value in a box, without branches."""
    variables = [axis.var for axis in block.axes]

    def decide(call: Any) -> Any:
        if not is_branch(call):
            return call
        conditions = thresholds(call.args[0], variables) or ()
        is_true = all((box[one.axis][0] >= one.first) is one.true_behind for one in conditions)
        return call.args[1] if is_true else call.args[2]

    return tvm_ffi.structural_map(block.body.body.value, (tvm.ir.Call, decide))


def _constant(block: Block, value: int) -> Any:
    return nest.constant(value, _index_dtype(block))


def _index_dtype(block: Block) -> str:
    return nest.dtype_of(block.axes[0].var)
