"""Writing elements at known or computed places: copies of a tensor with some elements replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false
from tvm import relax

from worker.compiler.translation.dtypes import is_floating, is_number, largest, smallest, wide
from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Decomposition, Rules, rules_of

_OLD_REDUCTIONS = {"add": "add", "multiply": "mul"}
_SUMS = ("add", "mul")
_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter_reduce(
    emit: Emitter,
    data: relax.Expr,
    axis: int,
    index: relax.Expr,
    source: relax.Expr,
    reduction: str,
    *,
    include_self: bool,
) -> relax.Expr:
    """Without ``include_self``, the written elements start at the neutral value of the reduction."""
    source = _as_large_as(emit, source, index)
    if reduction == "mean":
        return _scatter_mean(emit, data, axis, index, source, include_self)
    if not include_self:
        start = _start(reduction, dtype_of(data))
        blank = emit.full(shape_of(index), start, dtype_of(data))
        data = _scattered(emit, data, axis, index, blank, "update")
    return _scattered(emit, data, axis, index, source, _REDUCTIONS[reduction])


def _scatter_mean(
    emit: Emitter, data: relax.Expr, axis: int, index: relax.Expr, source: relax.Expr, include_self: bool
) -> relax.Expr:
    """The sum divided by the number of summands; other elements stay."""
    dtype = dtype_of(data)
    counts = emit.full(shape_of(data), 1 if include_self else 0, "int64")
    ones = emit.full(shape_of(index), 1, "int64")
    counts = _scattered(emit, counts, axis, index, ones, "add")
    if not include_self:
        blank = emit.full(shape_of(index), 0, dtype)
        data = _scattered(emit, data, axis, index, blank, "update")
        counts = emit(relax.op.maximum(counts, relax.const(1, "int64")))
    total = _scattered(emit, data, axis, index, source, "add")
    divide = relax.op.divide if is_floating(dtype) else relax.op.floor_divide
    return emit(divide(total, emit.cast(counts, dtype)))


def _scatter_joined(
    emit: Emitter, data: relax.Expr, axis: int, index: relax.Expr, source: Any, *, reduce: str
) -> relax.Expr:
    """An older form of ``scatter_reduce``."""
    if is_number(source):
        source = emit.full(shape_of(index), source, dtype_of(data))
    return _scattered(emit, data, axis, index, _as_large_as(emit, source, index), _OLD_REDUCTIONS[reduce])


def _start(reduction: str, dtype: str) -> Any:
    return {"sum": 0, "prod": 1, "amax": smallest(dtype), "amin": largest(dtype)}[reduction]


def _scatter_add(
    emit: Emitter, data: relax.Expr, axis: int, index: relax.Expr, source: relax.Expr
) -> relax.Expr:
    return _scattered(emit, data, axis, index, _as_large_as(emit, source, index), "add")


def _scatter(emit: Emitter, data: relax.Expr, axis: int, index: relax.Expr, source: relax.Expr) -> relax.Expr:
    return _scattered(emit, data, axis, index, _as_large_as(emit, source, index), "update")


def _scatter_value(emit: Emitter, data: relax.Expr, axis: int, index: relax.Expr, value: Any) -> relax.Expr:
    dtype = dtype_of(data)
    source = emit.full(shape_of(index), value, dtype)
    return _scattered(emit, data, axis, index, source, "update")


def _scattered(
    emit: Emitter, data: relax.Expr, axis: int, index: relax.Expr, source: relax.Expr, reduction: str
) -> relax.Expr:
    dtype, shape, axis = dtype_of(data), shape_of(data), axis_of(axis, len(shape_of(data)))
    if not shape:
        data, index, source = (emit(relax.op.reshape(one, (1,))) for one in (data, index, source))
        return emit(relax.op.reshape(_scattered(emit, data, 0, index, source, reduction), ()))
    beside = _shorter_axis(shape_of(index), shape, axis)
    if beside is not None:
        count = shape_of(index)[beside]
        part, rest = (
            emit(relax.op.strided_slice(data, [beside], [start], [end]))
            for start, end in ((0, count), (count, shape[beside]))
        )
        written = _scattered(emit, part, axis, index, source, reduction)
        return emit(relax.op.concat([written, rest], beside))
    joined = "int8" if dtype == "bool" else wide(dtype) if reduction in _SUMS else dtype
    data, source = emit.cast(data, joined), emit.cast(source, joined)
    return emit.cast(emit(relax.op.scatter_elements(data, index, source, axis, reduction)), dtype)


def _shorter_axis(index: Sequence[Any], data: Sequence[Any], axis: int) -> int | None:
    """The first axis beside ``axis`` along which the index is known to cover only a part of the data."""
    for at, (count, size) in enumerate(zip(index, data, strict=True)):
        if at != axis and isinstance(count, int) and isinstance(size, int) and count < size:
            return at
    return None


def _as_large_as(emit: Emitter, source: relax.Expr, index: relax.Expr) -> relax.Expr:
    """The leading part of the source that has the shape of the index."""
    given, wanted = shape_of(source), shape_of(index)
    longer = [axis for axis in range(len(given)) if given[axis] != wanted[axis]]
    if not longer:
        return source
    end = [wanted[axis] for axis in longer]
    return emit(relax.op.strided_slice(source, longer, [0] * len(longer), end))


def _select_scatter(data: torch.Tensor, source: torch.Tensor, axis: int, index: int) -> torch.Tensor:
    index = index % data.shape[axis]
    return torch.ops.aten.slice_scatter(data, source.unsqueeze(axis), axis, index, index + 1)


def _slice_scatter(
    data: torch.Tensor,
    source: torch.Tensor,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> torch.Tensor:
    """Gives a slice without bounds, as ``x[:, ::2] = y`` of a script writes it, its bounds.

    TVM needs fixed bounds. In a dynamic axis, each element is chosen by its position.
    """
    size = data.shape[axis]
    if isinstance(size, torch.SymInt) or any(isinstance(bound, torch.SymInt) for bound in (start, end)):
        return _in_slice(data, source, axis, _bound(start, 0, size), _bound(end, size, size), step)
    if start is not None and end is not None:
        return NotImplemented
    last = torch.iinfo(torch.int64).max if end is None else end
    return torch.ops.aten.slice_scatter(data, source, axis, start or 0, last, step)


def _bound(bound: int | None, default: int, size: int) -> int:
    """A bound of a slice, counted from the front."""
    if bound is None or bound == torch.iinfo(torch.int64).max:
        return default
    return torch.sym_max(bound + size, 0) if bound < 0 else bound


def _in_slice(data: Tensor, source: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    places = torch.arange(data.shape[axis])
    inside = (places >= start) & (places < end) & ((places - start) % step == 0)
    taken = source.index_select(
        axis, ((places - start) // step).clamp(0, torch.sym_max(source.shape[axis] - 1, 0))
    )
    along = [1] * data.dim()
    along[axis] = -1
    return torch.where(inside.reshape(along), taken, data)


def _masked_scatter(data: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The n-th true element of the mask takes the source's n-th element."""
    data, mask = torch.broadcast_tensors(data, mask)
    place = mask.flatten().to(torch.int64).cumsum(0).sub(1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.flatten().index_select(0, place).view(mask.shape), data)


def _index_put(
    data: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """``data[i, :, j] = values``: joins the indexed axes into a leading axis and scatters rows along it."""
    given = [index for index in indices if index is not None]
    if any(index.dtype == torch.bool for index in given):
        return _masked_put(data, indices, values, accumulate)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if len(axes) == 1 and given[0].dim() == 1 and not accumulate:
        return _put_along(data, axes[0], given[0], values)
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


def _put_along(data: Tensor, axis: int, index: Tensor, values: Tensor) -> Tensor:
    """``data[:, i] = values`` without moving the axis, as a cache is written."""
    shape, along = list(data.shape), [1] * data.dim()
    shape[axis] = along[axis] = index.shape[0]
    places = index.to(torch.int64).reshape(along).expand(shape)
    return data.scatter(axis, places, values.to(data.dtype).expand(shape))


def _masked_put(
    data: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool
) -> torch.Tensor:
    """``data[:, mask] = values``: one value, values for the axes after the mask, or for each true element."""
    axis = next(place for place, index in enumerate(indices) if index is not None)
    mask = indices[axis]
    assert mask is not None
    behind = data.dim() - axis - mask.dim()
    is_alone = all(index is None for index in indices[axis + 1 :])
    if accumulate or not is_alone or mask.dtype != torch.bool:
        raise UntranslatableError("index_put by a mask and other indices, or one that accumulates")
    shaped, values = mask.reshape(*mask.shape, *[1] * behind), values.to(data.dtype)
    if guard_or_false(values.numel() == 1):
        return torch.where(shaped, values.reshape(()), data)
    return torch.where(shaped, values if values.dim() <= behind else _spread(values, mask, behind), data)


def _spread(values: Tensor, mask: Tensor, behind: int) -> Tensor:
    """The values of a mask's true elements at their places in it; the other places hold any value."""
    axis = values.dim() - behind - 1
    before, after = values.shape[:axis], values.shape[axis + 1 :]
    if isinstance(values.shape[axis], int) and values.shape[axis] == 1:
        return values.reshape(*before, *[1] * mask.dim(), *after)
    place = mask.reshape(-1).to(torch.int64).cumsum(0).sub(1).clamp(min=0)
    return values.index_select(axis, place).reshape(*before, *mask.shape, *after)


def _put(data: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = data.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(data.shape)


def _index_reduce(
    data: Tensor, axis: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if not data.dim():
        rows, sources = data.reshape(1), source.reshape(-1)
        return _index_reduce(rows, 0, index, sources, reduce, include_self=include_self).reshape(())
    shape = [1] * source.dim()
    shape[axis] = index.numel()
    places = index.reshape(shape).expand(source.shape)
    return data.scatter_reduce(axis, places, source, reduce, include_self=include_self)


def _diagonal_scatter(data: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    moved = data.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    steps = torch.arange(source.shape[-1])
    places = (steps + max(-offset, 0)) * columns + steps + max(offset, 0)
    flat = moved.reshape(*moved.shape[:-2], rows * columns)
    written = flat.scatter(-1, places.expand(source.shape), source)
    return written.reshape(moved.shape).movedim((-2, -1), (dim1, dim2))


def _as_strided_scatter(
    data: Tensor, source: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Tensor:
    if not data.is_contiguous():
        raise UntranslatableError("as_strided_scatter of a tensor that is not contiguous")
    places = torch.full((), storage_offset or 0, dtype=torch.int64)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        along = [1] * len(size)
        along[axis] = length
        places = places + (torch.arange(length) * step).reshape(along)
    flat = data.reshape(-1).scatter(0, places.reshape(-1), source.reshape(-1))
    return flat.reshape(data.shape)


_DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "as_strided_scatter.default": _as_strided_scatter,
    "diagonal_scatter.default": _diagonal_scatter,
    "index_put.default": _index_put,
    "index_reduce.default": _index_reduce,
    "masked_scatter.default": _masked_scatter,
    "put.default": _put,
    "select_scatter.default": _select_scatter,
    "slice_scatter.default": _slice_scatter,
}

RULES: Rules = (
    *rules_of(
        {
            "aten.scatter.reduce": _scatter_joined,
            "aten.scatter.src": _scatter,
            "aten.scatter.value": _scatter_value,
            "aten.scatter.value_reduce": _scatter_joined,
            "aten.scatter_add.default": _scatter_add,
            "aten.scatter_reduce.two": _scatter_reduce,
        }
    ),
    *(Decomposition(f"aten.{name}", compute) for name, compute in _DECOMPOSITIONS.items()),
)
