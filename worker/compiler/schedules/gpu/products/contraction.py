"""Recognize sums of products: matrix products and convolutions are one kind of function.

Every axis of the sum is of one of four groups, by the factors that use it::

    sums[batch, row, column] = sum over depth of left[batch, row, depth] * right[batch, depth, column]
    result = epilogue(sums)

A convolution's rows are its images' pixels, its columns the output channels, its depth the window's taps
and the input channels. A group has several axes where its index is one number: a kernel divides it again
(``Group.places``). That is all there is to im2col: the left factor's indices are those of the image.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad
from tvm.sym import Analyzer
from tvm.tirx.analysis import undefined_vars

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import (
    REFUSALS,
    Axis,
    Block,
    Places,
    are_axes,
    block_names,
    conditions_of,
    is_branch,
    is_epilogue,
    read_block,
    read_blocks,
    step_along,
    store_result,
    uses,
)

_VECTOR_BYTES = 16
"""The most that a thread loads at once."""


@dataclass(frozen=True)
class Group:
    """Axes that count as one, the last one innermost."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """The number of its indices."""
        return prod(axis.extent for axis in self.axes)

    def places(self, index: Any) -> Places:
        """The values of the axes' variables at an index."""
        places: Places = {}
        for position in reversed(range(len(self.axes))):
            axis = self.axes[position]
            if axis.extent == 1:
                places[axis.var] = tirx.IntImm(nest.dtype_of(axis.var), 0)
                continue
            is_outermost = all(outer.extent == 1 for outer in self.axes[:position])
            places[axis.var] = index if is_outermost else tirx.floormod(index, axis.extent)
            index = tirx.floordiv(index, axis.extent)
        return places

    def places_along(self, index: Any, lane: Any) -> Places:
        """The values at ``index + lane``, where the lanes do not leave the innermost axis."""
        places = self.places(index)
        inner = self.inner
        if inner is not None:
            places[inner.var] = places[inner.var] + lane
        return places

    @property
    def inner(self) -> Axis | None:
        """The innermost axis of more than one index."""
        return next((axis for axis in reversed(self.axes) if axis.extent > 1), None)


@dataclass(frozen=True)
class Factor:
    """A factor of the products.

    Attributes:
        value: an expression of the block's variables.
        outer: the rows or the columns.
        dtype: the dtype of the elements that kernels multiply.
    """

    value: Any
    outer: Group
    depth: Group
    batch: Group
    dtype: str

    @cached_property
    def loads(self) -> tuple[Any, ...]:
        """The loads in it."""
        return nest.loads_of(self.value)

    @cached_property
    def source(self) -> tuple[Any, Any] | None:
        """The load and its condition (or None), if the factor is an element of a buffer or zero."""
        value, condition = self.value, None
        if isinstance(value, Call) and is_branch(value):
            condition, value, otherwise = value.args
            if not _is_zero(otherwise):
                return None
        return (value, condition) if isinstance(value, TensorLoad) else None

    @cached_property
    def is_along_depth(self) -> bool:
        """Whether neighbors in memory are neighbors along the depth."""
        return self.run_along(self.depth) >= self.run_along(self.outer)

    @cached_property
    def can_copy_async(self) -> bool:
        """Whether ``cp.async`` can copy it: elements as they are, 4 bytes or more at once."""
        group = self.depth if self.is_along_depth else self.outer
        if self.source is None:
            return False
        return self.width_along(group, in_inner=False) * vector_bits(self.dtype) >= 32

    def run_along(self, group: Group) -> int:
        """The elements along a group that are contiguous in every buffer that changes along it."""
        runs = [_run(load, group.axes) for load in self._changing(group)]
        return min(runs, default=1)

    def width_along(self, group: Group, in_inner: bool) -> int:
        """The elements that can be loaded at once along a group: contiguous, aligned, of one condition.

        Args:
            group: the direction.
            in_inner: whether they must share the indices of all axes but the innermost one.
        """
        inner = group.inner
        if inner is None:
            return 1
        dtypes = (self.dtype, *(str(load.source.dtype) for load in self.loads))
        width = _VECTOR_BYTES * 8 // max(map(vector_bits, dtypes))
        width = gcd(width, inner.extent if in_inner else group.size)
        every = (*self.outer.axes, *self.depth.axes, *self.batch.axes)
        for load in self._changing(group):
            width = gcd(width, aligned_run(load, group.axes, every))
        stops = [
            axis
            for axis in group.axes
            if any(uses(condition, axis) for condition in conditions_of(self.value))
        ]
        if stops:
            width = gcd(width, _trailing(group.axes, stops))
        return _power_of_two(width)

    def _changing(self, group: Group) -> tuple[Any, ...]:
        return tuple(
            load for load in self.loads if any(_uses_any(index, group.axes) for index in load.indices)
        )


@dataclass(frozen=True)
class Sum:
    """A sum of products, and what is computed from it.

    Attributes:
        block: the block that sums.
        epilogue: the elementwise block that reads the sums, if any.
        factors: both factors, expressions of the block's variables.
    """

    block: Block
    epilogue: Block | None
    factors: tuple[Any, Any]

    @property
    def sums(self) -> Any:
        """The buffer of the sums."""
        return self.block.body.writes[0].source

    @property
    def dtype(self) -> str:
        """The dtype of the sums, as the function states them."""
        return str(self.sums.dtype)

    @property
    def output(self) -> Any:
        """The buffer of the results."""
        return self._final.buffer

    @property
    def loads(self) -> tuple[Any, ...]:
        """The loads of both factors."""
        return tuple(load for factor in self.factors for load in nest.loads_of(factor))

    @property
    def conditions(self) -> list[Any]:
        """The conditions in both factors."""
        return [condition for factor in self.factors for condition in conditions_of(factor)]

    def stored_run(self, inner: Axis) -> int:
        """The neighbors along an axis that one thread can store at once, and load for the epilogue."""
        stored = self._final
        store = stored.buffer[tuple(stored.indices)]
        loads = [store, *(load for load in nest.loads_of(stored.value) if not load.source.same_as(self.sums))]
        every, own = self._own(self.block.spatial), self._own((inner,))
        width = gcd(_VECTOR_BYTES * 8 // vector_bits(str(stored.buffer.dtype)), inner.extent)
        for load in loads:
            if any(_uses_any(index, own) for index in load.indices):
                width = 1 if str(load.source.dtype) == "bool" else gcd(width, aligned_run(load, own, every))
        if any(_uses_any(condition, own) for condition in conditions_of(stored.value)):
            return 1
        return _power_of_two(width)

    def result(self, value: Any, places: Places) -> tirx.Stmt:
        """Store an element of the output, given the element of the sums."""
        value = value if nest.dtype_of(value) == self.dtype else tirx.Cast(self.dtype, value)
        return store_result(self.block, self.epilogue, places, value)

    @property
    def _final(self) -> Any:
        return (self.epilogue or self.block).body.body

    def _own(self, axes: Iterable[Axis]) -> tuple[Axis, ...]:
        """The epilogue's axes for axes of the block."""
        if self.epilogue is None:
            return tuple(axes)
        pairs = list(zip(self.block.spatial, self.epilogue.axes, strict=True))
        return tuple(own for axis in axes for of_block, own in pairs if of_block.var.same_as(axis.var))


@dataclass(frozen=True)
class Contraction:
    """A sum of products whose factors many results share."""

    sum: Sum
    batch: Group
    rows: Group
    columns: Group
    depth: Group
    left: Factor
    right: Factor

    @cached_property
    def vector(self) -> int:
        """The results along the columns that one thread can store at once."""
        inner = self.columns.inner
        return 1 if inner is None else self.sum.stored_run(inner)

    def result(self, value: Any, places: Places) -> tirx.Stmt:
        """Store an element of the output, given the element of the sums."""
        return self.sum.result(value, places)


def find_sum(schedule: s_tir.Schedule) -> Sum | None:
    """The sum of products in a function of one and at most an epilogue; None for other functions."""
    blocks = read_blocks(_with_inputs_inlined(schedule))
    if len(blocks) not in (1, 2) or not blocks[0].reduced:
        return None
    block, epilogue = blocks[0], blocks[1] if len(blocks) == 2 else None
    if epilogue is not None and not is_epilogue(epilogue, block):
        return None
    factors = _factors(block)
    if factors is None or not block.spatial or not are_axes(block.body.body.indices, block.spatial):
        return None
    return Sum(block, epilogue, factors)


def _with_inputs_inlined(schedule: s_tir.Schedule) -> s_tir.Schedule:
    """The schedule with all elementwise blocks before the sum inlined, such as an image's border."""
    schedule = schedule.copy()
    for name in block_names(schedule):
        handle = schedule.get_sblock(name)
        block = read_block(schedule, handle)
        if block is not None and block.reduced:
            break
        try:
            schedule.compute_inline(handle)
        except REFUSALS:
            break
    return schedule


def as_contraction(found: Sum) -> Contraction | None:
    """A sum as rows times columns; None if its last axis belongs to both factors."""
    block = found.block
    one, other = found.factors
    last = next((axis for axis in reversed(block.spatial) if axis.extent > 1), block.spatial[-1])
    left, right = (one, other) if uses(other, last) or not uses(one, last) else (other, one)
    if uses(left, last) and uses(right, last):
        return None
    batch: list[Axis] = []
    rows: list[Axis] = []
    columns: list[Axis] = []
    for axis in block.spatial:
        by_left, by_right = uses(left, axis), uses(right, axis)
        group = batch if by_left == by_right else rows if by_left else columns
        group.append(axis)
    if any(not (uses(left, axis) and uses(right, axis)) for axis in block.reduced if axis.extent > 1):
        return None
    groups = Group(tuple(batch)), Group(tuple(rows)), Group(tuple(columns)), Group(block.reduced)
    own_batch, own_rows, own_columns, depth = groups
    narrow_left, narrow_right = narrow_factor(left, found.dtype), narrow_factor(right, found.dtype)
    return Contraction(
        found,
        *groups,
        left=Factor(narrow_left, own_rows, depth, own_batch, nest.dtype_of(narrow_left)),
        right=Factor(narrow_right, own_columns, depth, own_batch, nest.dtype_of(narrow_right)),
    )


def narrow_factor(value: Any, dtype: str) -> Any:
    """A factor as the elements that the sum converts to its ``dtype``, if it only converts them."""
    if isinstance(value, tirx.Cast) and _widens(nest.dtype_of(value.value), dtype):
        return value.value
    if isinstance(value, Call) and is_branch(value) and isinstance(value.args[1], tirx.Cast):
        inner = value.args[1].value
        if _is_zero(value.args[2]) and _widens(nest.dtype_of(inner), dtype):
            return tirx.if_then_else(value.args[0], inner, tirx.const(0, nest.dtype_of(inner)))
    return value


def _widens(narrow: str, wide: str) -> bool:
    return (narrow, wide) in {
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("int8", "int32"),
    }


def _factors(block: Block) -> tuple[Any, Any] | None:
    """The factors of a block that sums products."""
    body = block.body.body
    if not isinstance(body, tirx.BufferStore) or block.body.init is None:
        return None
    total = body.value
    if not isinstance(total, tirx.Add) or not isinstance(total.b, tirx.Mul):
        return None
    previous = total.a
    if not isinstance(previous, TensorLoad) or not previous.source.same_as(body.buffer):
        return None
    if not _is_zero(block.body.init.value):
        return None
    return total.b.a, total.b.b


def _run(load: Any, axes: tuple[Axis, ...]) -> int:
    """The contiguous elements along axes, the last one innermost."""
    run = 1
    for axis in reversed(axes):
        if axis.extent == 1:
            continue
        if step_along(load, axis) != run:
            break
        run *= axis.extent
    return run


def aligned_run(load: Any, axes: tuple[Axis, ...], every: tuple[Axis, ...]) -> int:
    """The largest number of elements that divides a run's length and the place where any run begins."""
    divisor, run, inside = 0, 1, list[Any]()
    for axis in reversed(axes):
        if axis.extent == 1:
            continue
        if step_along(load, axis) != run:
            break
        run *= axis.extent
        inside.append(axis.var)
    divisor = run
    for axis in every:
        if axis.extent == 1 or any(axis.var.same_as(variable) for variable in inside):
            continue
        step = step_along(load, axis)
        if step is None:
            return 1
        divisor = gcd(divisor, step)
    start = _start(load, every)
    return 1 if start is None else gcd(divisor, start)


def _start(load: Any, axes: tuple[Axis, ...]) -> int | None:
    """The element that is loaded where all axes are zero."""
    zeros = {axis.var: tirx.IntImm(nest.dtype_of(axis.var), 0) for axis in axes}
    place, stride = 0, 1
    for index, size in reversed(list(zip(load.indices, load.source.shape, strict=True))):
        known = Analyzer().simplify(nest.substitute(index, zeros))
        if not isinstance(known, tirx.IntImm) or not isinstance(size, tirx.IntImm):
            return None
        place += int(known) * stride
        stride *= int(size)
    return place


def _trailing(axes: tuple[Axis, ...], stops: list[Axis]) -> int:
    """The indices of the innermost axes before one that a condition depends on."""
    free = 1
    for axis in reversed(axes):
        if any(axis.var.same_as(stop.var) for stop in stops):
            break
        free *= axis.extent
    return free


def _uses_any(expression: Any, axes: Iterable[Axis]) -> bool:
    used = undefined_vars(expression, [])
    return any(variable.same_as(axis.var) for variable in used for axis in axes)


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.IntImm | tirx.FloatImm) and float(value.value) == 0


def _power_of_two(number: int) -> int:
    return number & -number


def vector_bits(dtype: str) -> int:
    """Bits of an element; a boolean is never part of a vector, see ``threads.bits_of``."""
    return _VECTOR_BYTES * 8 if dtype == "bool" else nest.bits_of(dtype)
