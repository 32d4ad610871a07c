"""Padding, and writing a part of a tensor; windows of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tvm import relax

from worker.compiler.translation.dtypes import is_floating, is_number, largest, smallest
from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, fixed, shape_of
from worker.compiler.translation.rule import Decomposition, Rules, rules_of

_OLD_REDUCTIONS = {"add": "add", "multiply": "mul"}
_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def padded(emit: Emitter, data: relax.Expr, widths: list[int], value: Any) -> relax.Expr:
    """Widths come in pairs from the last axis; those below zero cut off."""
    rank = len(shape_of(data))
    before, after = [0] * rank, [0] * rank
    for number in range(len(widths) // 2):
        before[rank - 1 - number], after[rank - 1 - number] = widths[2 * number : 2 * number + 2]
    cut = [axis for axis in range(rank) if min(before[axis], after[axis]) < 0]
    if cut:
        sizes = fixed(shape_of(data), "cutting a tensor")
        begin = [max(-before[axis], 0) for axis in cut]
        end = [sizes[axis] - max(-after[axis], 0) for axis in cut]
        data = emit(relax.op.strided_slice(data, cut, begin, end))
    pairs = [max(width, 0) for pair in zip(before, after, strict=True) for width in pair]
    if not any(pairs):
        return data
    if dtype_of(data) == "bool":
        padded = relax.op.nn.pad(emit.cast(data, "int8"), pairs, pad_value=int(value or 0))
        return emit.cast(emit(padded), "bool")
    return relax.op.nn.pad(data, pairs, pad_value=value or 0)


def _cat(emit: Emitter, tensors: list[relax.Expr], axis: int = 0) -> relax.Expr:
    """In one dtype, without the empty tensors of one axis, which torch ignores: caches start as such."""
    kept = [emit.cast(tensor, emit.dtype) for tensor in tensors if shape_of(tensor) != (0,)]
    if not kept:
        return tensors[0]
    return kept[0] if len(kept) == 1 else relax.op.concat(kept, axis_of(axis, len(shape_of(kept[0]))))


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
    """``include_self`` false: what is written to starts at what changes nothing."""
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
    """The sum over how many were added; what nothing is written to stays."""
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
    if dtype == "bool":
        data, source = emit.cast(data, "int8"), emit.cast(source, "int8")
    return emit.cast(emit(relax.op.scatter_elements(data, index, source, axis, reduction)), dtype)


def _as_large_as(emit: Emitter, source: relax.Expr, index: relax.Expr) -> relax.Expr:
    """The part of the source that the index covers."""
    ours, wanted = shape_of(source), shape_of(index)
    longer = [axis for axis in range(len(ours)) if ours[axis] != wanted[axis]]
    if not longer:
        return source
    end = [wanted[axis] for axis in longer]
    return emit(relax.op.strided_slice(source, longer, [0] * len(longer), end))


def _select_scatter(data: torch.Tensor, source: torch.Tensor, axis: int, index: int) -> torch.Tensor:
    index = index % data.shape[axis]
    return torch.ops.aten.slice_scatter(data, source.unsqueeze(axis), axis, index, index + 1)


def _masked_scatter(data: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The n-th place that the mask names takes the source's n-th element."""
    data, mask = torch.broadcast_tensors(data, mask)
    place = mask.flatten().to(torch.int64).cumsum(0).sub(1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.flatten().index_select(0, place).view(mask.shape), data)


def _unfold(data: torch.Tensor, axis: int, size: int, step: int) -> torch.Tensor:
    """Windows along an axis, as a new last axis."""
    if not data.dim():
        return data.reshape(1)[:size]
    axis = axis % data.dim()
    count = (data.shape[axis] - size) // step + 1
    places = (torch.arange(count).unsqueeze(1) * step + torch.arange(size)).flatten()
    windows = data.index_select(axis, places)
    return windows.unflatten(axis, (count, size)).movedim(axis + 1, -1)


_COPIES: dict[str, Callable[..., Any]] = {
    "narrow_copy.default": torch.Tensor.narrow,
    "permute_copy.default": torch.Tensor.permute,
    "unbind_copy.int": torch.Tensor.unbind,
    "view_copy.default": torch.Tensor.reshape,
    "view_copy.dtype": torch.Tensor.view,
}
"""By the view whose elements they copy; torch decomposes the others."""

RULES: Rules = (
    *rules_of(
        {
            "aten.cat.default": _cat,
            "aten.constant_pad_nd.default": padded,
            "aten.scatter.reduce": _scatter_joined,
            "aten.scatter.src": _scatter,
            "aten.scatter.value": _scatter_value,
            "aten.scatter.value_reduce": _scatter_joined,
            "aten.scatter_add.default": _scatter_add,
            "aten.scatter_reduce.two": _scatter_reduce,
        }
    ),
    Decomposition("aten.select_scatter.default", _select_scatter),
    Decomposition("aten.masked_scatter.default", _masked_scatter),
    Decomposition("aten.unfold.default", _unfold),
    *(Decomposition(f"aten.{name}", view) for name, view in _COPIES.items()),
)
