"""Reading elements at places that are computed: tables, and tensors indexed by tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
from tvm import relax, topi

from worker.compiler.translation.dtypes import is_floating
from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, fixed, shape_of
from worker.compiler.translation.rule import Decomposition, Rules, Translate, rules_of
from worker.compiler.translation.untranslatable import UntranslatableError

_BY_MASK = (
    "indexing by a mask has a result whose size depends on data: keep the full size (torch.where, "
    "masked_fill, a sum over torch.where), or take the places of a fixed number (nonzero_static, topk)"
)


def look_up(emit: Emitter, table: relax.Expr, indices: relax.Expr, axis: int) -> relax.Expr:
    """Take elements; an index beyond the table, at which torch raises, must not read other memory.

    It gives NaN, or the nearest element where the table's dtype has no NaN.
    """
    mode = "nan" if is_floating(dtype_of(table)) else "clip"
    return emit(relax.op.take(table, indices, axis=axis, mode=mode))


def _embedding(
    emit: Emitter, table: relax.Expr, indices: relax.Expr, padding_idx: int, by_frequency: bool, sparse: bool
) -> relax.Expr:
    """What follows the indices concerns gradients only."""
    return look_up(emit, table, indices, axis=0)


def _index_select(emit: Emitter, table: relax.Expr, axis: int, indices: relax.Expr) -> relax.Expr:
    if shape_of(table):
        return look_up(emit, table, indices, axis)
    return relax.op.reshape(table, emit.shape)


def _take(emit: Emitter, table: relax.Expr, indices: relax.Expr) -> relax.Expr:
    flat = emit(relax.op.reshape(table, (-1,)))
    return look_up(emit, flat, from_front(emit, indices, shape_of(flat)[0]), axis=0)


def _index(emit: Emitter, table: relax.Expr, indices: list[Any]) -> relax.Expr:
    """``table[i, :, j]``: the indices broadcast, those below zero count from the end.

    The indexed axes become one, which is read at ``i * size(j) + j``. Its result stands where the indexed
    axes
    stood if they are neighbors, else in front.
    """
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if any(dtype_of(indices[axis]) == "bool" for axis in axes):
        raise UntranslatableError(_BY_MASK)
    if len(axes) == 1:
        index = from_front(emit, indices[axes[0]], shape_of(table)[axes[0]])
        return look_up(emit, table, index, axes[0])
    sizes = fixed(tuple(shape_of(table)[axis] for axis in axes), "indexing along several axes")
    place = _joint_place(emit, [indices[axis] for axis in axes], sizes)
    rest = [axis for axis in range(len(shape_of(table))) if axis not in axes]
    neighbors = axes == list(range(axes[0], axes[-1] + 1))
    before = rest[: axes[0]] if neighbors else []
    after = rest[len(before) :]
    return look_up(emit, _joined(emit, table, before, axes, after), place, axis=len(before))


def _joint_place(emit: Emitter, indices: list[relax.Expr], sizes: tuple[int, ...]) -> relax.Expr:
    place: relax.Expr | None = None
    for index, size in zip(indices, sizes, strict=True):
        index = from_front(emit, emit.cast(index, "int64"), size)
        if place is not None:
            place = emit(relax.op.multiply(place, relax.const(size, "int64")))
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
    """Indices below zero count from the end."""
    dtype = dtype_of(index)
    if isinstance(size, int):
        from_end = emit(relax.op.add(index, relax.const(size, dtype)))
    else:
        from_end = emit.tensor_expression(lambda places, end: topi.add(places, end), index, size)
    below_zero = emit(relax.op.less(index, relax.const(0, dtype)))
    return emit(relax.op.where(below_zero, from_end, index))


def _select(emit: Emitter, data: relax.Expr, axis: int, index: Any) -> relax.Expr:
    """One element of an axis. TVM's converter reads before the tensor for those counted from the end."""
    if not isinstance(index, int):
        return emit.stock()
    axis = axis_of(axis, len(shape_of(data)))
    place = index if index >= 0 else shape_of(data)[axis] + index
    part = emit(relax.op.strided_slice(data, [axis], [place], [place + 1]))
    return relax.op.squeeze(part, [axis])


def _gather(emit: Emitter, data: relax.Expr, axis: int, index: relax.Expr) -> relax.Expr:
    """Elements along an axis; the index may be smaller than the data in the other axes."""
    if not shape_of(data):
        return emit(relax.op.reshape(data, shape_of(index)))
    axis = axis_of(axis, len(shape_of(data)))
    wanted, sizes = shape_of(index), shape_of(data)
    shorter = [one for one in range(len(sizes)) if one != axis and wanted[one] != sizes[one]]
    if shorter:
        begin, end = [0] * len(shorter), [wanted[one] for one in shorter]
        data = emit(relax.op.strided_slice(data, shorter, begin, end))
    return relax.op.gather_elements(data, emit.cast(index, "int64"), axis)


def _index_put(
    data: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """``data[i, :, j] = values``: the indexed axes become one in front, its rows are written or added to."""
    given = [index for index in indices if index is not None]
    if given[0].dtype == torch.bool:
        return _masked_put(data, indices, values, accumulate)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    rest = [axis for axis in range(data.dim()) if axis not in axes]
    place = torch.zeros((), dtype=torch.int64)
    for axis, index in zip(axes, given, strict=True):
        size = data.shape[axis]
        place = place * size + torch.where(index < 0, index + size, index)
    neighbors = axes == list(range(axes[0], axes[-1] + 1))
    before = [data.shape[axis] for axis in rest[: axes[0]]] if neighbors else []
    after = [data.shape[axis] for axis in rest[len(before) :]]
    written = values.to(data.dtype).expand(*before, *place.shape, *after)
    for _ in place.shape:
        written = written.movedim(len(before) + place.dim() - 1, 0)
    front = data.permute(*axes, *rest)
    rows = front.flatten(0, len(axes) - 1).reshape(-1, math.prod(data.shape[axis] for axis in rest))
    written = written.reshape(-1, rows.shape[1])
    at = place.reshape(-1, 1).expand_as(written)
    result = rows.scatter_add(0, at, written) if accumulate else rows.scatter(0, at, written)
    order = [*axes, *rest]
    return result.reshape(front.shape).permute([order.index(axis) for axis in range(data.dim())])


def _masked_put(
    data: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool
) -> torch.Tensor:
    """``data[:, mask] = value``, of one value or of one for each place of the axes behind the mask's."""
    axis = next(place for place, index in enumerate(indices) if index is not None)
    mask = indices[axis]
    assert mask is not None
    behind = data.dim() - axis - mask.dim()
    is_alone = all(index is None for index in indices[axis + 1 :])
    if accumulate or not is_alone or (values.numel() != 1 and values.dim() > behind):
        raise UntranslatableError("index_put by a mask, of a value for each place that it names")
    shaped = mask.reshape(*mask.shape, *[1] * behind)
    written = values.reshape(()) if values.numel() == 1 else values
    return torch.where(shaped, written.to(data.dtype), data)


_TRANSLATIONS: dict[str, Translate] = {
    "aten.embedding.default": _embedding,
    "aten.gather.default": _gather,
    "aten.index.Tensor": _index,
    "aten.index_select.default": _index_select,
    "aten.select.int": _select,
    "aten.take.default": _take,
}

RULES: Rules = (
    *rules_of(_TRANSLATIONS),
    Decomposition("aten.index_put.default", _index_put),
)
