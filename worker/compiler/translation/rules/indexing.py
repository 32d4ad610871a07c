"""Reading elements at computed places."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import torch
import tvm_ffi
from torch import Tensor
from tvm import relax, te, tirx

from worker.compiler.translation.compaction import columns_of, places_of
from worker.compiler.translation.dtypes import is_floating
from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Decomposition, Rules, rules_of
from worker.compiler.translation.symbolic_shapes import is_size

MASKS = ("bool", "uint8")


def look_up(emit: Emitter, table: relax.Expr, indices: relax.Expr, axis: int) -> relax.Expr:
    """Take elements without reading outside the table.

    Where torch raises for an index out of range, this gives NaN, or the nearest element if the dtype has no
    NaN.
    """
    mode = "nan" if is_floating(dtype_of(table)) else "clip"
    return emit(relax.op.take(table, indices, axis=axis, mode=mode))


def _index_select(emit: Emitter, table: relax.Expr, axis: int, indices: relax.Expr) -> relax.Expr:
    if shape_of(table):
        return look_up(emit, table, indices, axis)
    return relax.op.reshape(table, emit.shape)


def _take(emit: Emitter, table: relax.Expr, indices: relax.Expr) -> relax.Expr:
    flat = emit(relax.op.reshape(table, (-1,)))
    return look_up(emit, flat, from_front(emit, indices, shape_of(flat)[0]), axis=0)


def _index(emit: Emitter, table: relax.Expr, indices: list[Any]) -> relax.Expr:
    """``table[i, :, j]``: indices broadcast, and negative ones count from the end.

    The indexed axes become one axis, read at ``i * size(j) + j``. The result's axes replace the indexed ones
    if those are adjacent, else they come first.
    """
    given = [index for index in indices if index is not None]
    if len(given) == 1 and dtype_of(given[0]) in MASKS:
        return _by_mask(emit, table, indices.index(given[0]), given[0])
    indices = _without_masks(emit, indices)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if len(axes) == 1:
        index = from_front(emit, indices[axes[0]], shape_of(table)[axes[0]])
        return look_up(emit, table, index, axes[0])
    sizes = shape_of(table)
    place = _joint_place(emit, [indices[axis] for axis in axes], [sizes[axis] for axis in axes])
    rest = [axis for axis in range(len(shape_of(table))) if axis not in axes]
    neighbors = axes == list(range(axes[0], axes[-1] + 1))
    before = rest[: axes[0]] if neighbors else []
    after = rest[len(before) :]
    return look_up(emit, _joined(emit, table, before, axes, after), place, axis=len(before))


def _by_mask(emit: Emitter, table: relax.Expr, first: int, mask: relax.Expr) -> relax.Expr:
    """The elements where a mask of the axes from ``first`` on is true; the result has one axis for these."""
    sizes, last = shape_of(table), first + len(shape_of(mask))
    if first == last:
        raise UntranslatableError("indexing by a mask without axes")
    if last - first > 1:
        table = emit(relax.op.reshape(table, (*sizes[:first], prod(sizes[first:last]), *sizes[last:])))
    return emit(relax.op.take(table, places_of(emit, mask), axis=first, mode="clip"))


def _without_masks(emit: Emitter, indices: list[Any]) -> list[Any]:
    """The indices, with each mask replaced by the index of its true elements along each of its axes."""
    found: list[Any] = []
    for index in indices:
        is_mask = index is not None and dtype_of(index) in MASKS
        found += columns_of(emit, places_of(emit, index), shape_of(index)) if is_mask else [index]
    return found


def _joint_place(emit: Emitter, indices: list[relax.Expr], sizes: list[Any]) -> relax.Expr:
    place: relax.Expr | None = None
    for index, size in zip(indices, sizes, strict=True):
        index = from_front(emit, emit.cast(index, "int64"), size)
        if place is not None:
            place = emit(relax.op.multiply(place, _number(emit, size, "int64")))
            index = emit(relax.op.add(place, index))
        place = index
    assert place is not None
    return place


def _joined(
    emit: Emitter, table: relax.Expr, before: list[int], joined: list[int], after: list[int]
) -> relax.Expr:
    order = [*before, *joined, *after]
    if order != sorted(order):
        table = emit(relax.op.permute_dims(table, order))
    sizes = shape_of(table)
    kept = len(before)
    return emit(relax.op.reshape(table, (*sizes[:kept], -1, *sizes[kept + len(joined) :])))


def from_front(emit: Emitter, index: relax.Expr, size: Any) -> relax.Expr:
    """Replace negative indices, which count from the end."""
    dtype = dtype_of(index)
    from_end = emit(relax.op.add(index, _number(emit, size, dtype)))
    below_zero = emit(relax.op.less(index, relax.const(0, dtype)))
    return emit(relax.op.where(below_zero, from_end, index))


def _number(emit: Emitter, size: Any, dtype: str) -> relax.Expr:
    """A size, which may be dynamic, as a tensor without axes."""
    if isinstance(size, int):
        return relax.const(size, dtype)
    return emit.tensor_expression(lambda number: te.compute((), lambda: number.astype(dtype)), size)


def _select(emit: Emitter, data: relax.Expr, axis: int, index: Any) -> relax.Expr:
    """One element of an axis. TVM's converter reads out of bounds for negative indices."""
    if not is_size(index):
        return emit.stock()
    axis = axis_of(axis, len(shape_of(data)))
    place = _from_zero(index, shape_of(data)[axis])
    is_dynamic = not isinstance(place, int)
    part = emit(relax.op.strided_slice(data, [axis], [place], [place + 1], assume_inbound=is_dynamic))
    return relax.op.squeeze(part, [axis])


def _slice(
    emit: Emitter, data: relax.Expr, axis: int = 0, begin: Any = None, end: Any = None, step: int = 1
) -> relax.Expr:
    """A part of an axis. Dynamic bounds are inside, so that Relax gives the result no shape with branches."""
    axis = axis_of(axis, len(shape_of(data)))
    first, last = 0 if begin is None else begin, sys.maxsize if end is None else end
    reaches_end = last == sys.maxsize or tvm_ffi.structural_equal(last, shape_of(data)[axis])
    if isinstance(first, int) and (first, step) == (0, 1) and reaches_end:
        return data
    is_static = all(isinstance(size, int) for size in (shape_of(data)[axis], first, last))
    sizes = None if is_static else emit.sizes
    if sizes is None:
        return relax.op.strided_slice(data, [axis], [first], [last], [step])

    begin = _from_zero(first, shape_of(data)[axis])
    return relax.op.strided_slice(
        data, [axis], [begin], [begin + sizes[axis] * step], [step], assume_inbound=True
    )


def _from_zero(begin: Any, size: Any) -> Any:
    """Where a slice begins; negative numbers count from the end."""
    if isinstance(begin, int) and isinstance(size, int):
        return begin if begin >= 0 else max(size + begin, 0)
    if isinstance(begin, int):
        return begin if begin >= 0 else tirx.max(size + begin, 0)
    return tirx.Select(begin < 0, tirx.max(begin + size, 0), begin)


def _gather(emit: Emitter, data: relax.Expr, axis: int, index: relax.Expr) -> relax.Expr:
    """Elements along an axis. In the other axes the index may be smaller than the data."""
    if not shape_of(data):
        return emit(relax.op.reshape(data, shape_of(index)))
    axis = axis_of(axis, len(shape_of(data)))
    wanted, sizes = shape_of(index), shape_of(data)
    shorter = [one for one in range(len(sizes)) if one != axis and wanted[one] != sizes[one]]
    if shorter:
        begin, end = [0] * len(shorter), [wanted[one] for one in shorter]
        data = emit(relax.op.strided_slice(data, shorter, begin, end))
    return relax.op.gather_elements(data, emit.cast(index, "int64"), axis)


def _nonzero_static(data: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The indices of the first ``size`` nonzero elements, then ``fill_value``."""
    found = (data != 0).reshape(-1).to(torch.int64).cumsum(0)
    number = torch.arange(size)
    flat = torch.searchsorted(found, number + 1)
    places = []
    for length in reversed(data.shape):
        places.append(flat % length)
        flat = torch.div(flat, length, rounding_mode="floor")
    is_found = (number < found[-1]).unsqueeze(1)
    return torch.where(is_found, torch.stack(places[::-1], 1), fill_value)


RULES: Rules = (
    *rules_of(
        {
            "aten.gather.default": _gather,
            "aten.index.Tensor": _index,
            "aten.index_select.default": _index_select,
            "aten.select.int": _select,
            "aten.slice.Tensor": _slice,
            "aten.take.default": _take,
        }
    ),
    Decomposition("aten.nonzero_static.default", _nonzero_static),
)
