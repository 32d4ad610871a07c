"""Sorting, searching, order statistics and histograms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from tvm import relax, te, topi

from worker.compiler.translation.comparison_keys import keys
from worker.compiler.translation.dtypes import common_dtype, is_number
from worker.compiler.translation.emitter import Emitter, axis_of, shape_of
from worker.compiler.translation.rule import Decomposition, Rules, rules_of


def _sort(emit: Emitter, data: relax.Expr, axis: int = -1, descending: bool = False) -> tuple[Any, Any]:
    """Values and positions. TVM's sort is stable."""
    if not shape_of(data):
        return data, emit(relax.op.zeros((), "int64"))
    if 0 in shape_of(data):
        return data, emit(relax.op.zeros(shape_of(data), "int64"))
    axis = axis_of(axis, len(shape_of(data)))
    places = emit(relax.op.argsort(data, axis, descending, "int64"))
    return emit(relax.op.gather_elements(data, places, axis)), places


def _stable_sort(emit: Emitter, data: relax.Expr, *, dim: int, descending: bool) -> tuple[Any, Any]:
    return _sort(emit, data, dim, descending)


def _leading(emit: Emitter, data: relax.Expr, count: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    """The first elements of a sort and their positions, where their number is known when the library runs."""
    order = emit(relax.op.argsort(data, axis, largest, "int64"))

    def first(rows: te.Tensor, size: Any) -> te.Tensor:
        shape = [size if place == axis else one for place, one in enumerate(rows.shape)]
        return te.compute(shape, lambda *at: rows(*at), "leading")

    places = emit.tensor_expression(first, order, count)
    return emit(relax.op.gather_elements(data, places, axis)), places


def _topk(emit: Emitter, data: relax.Expr, k: Any, axis: int, largest: bool, is_sorted: bool) -> Any:
    if not isinstance(k, int):
        return _leading(emit, data, k, axis_of(axis, len(shape_of(data))), largest)
    if k and not shape_of(data):
        return data, emit(relax.op.zeros((), "int64"))
    if k and 0 not in shape_of(data):
        return emit.stock()
    shape = emit.shape
    return emit(relax.op.zeros(shape, emit.dtype)), emit(relax.op.zeros(shape, "int64"))


def _searchsorted(
    emit: Emitter,
    boundaries: relax.Expr,
    values: Any,
    *,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: relax.Expr | None,
) -> relax.Expr:
    """The insertion position of each value among ascending boundaries, per row if boundaries have rows.

    Keys are compared, so that NaN comes after all numbers.
    """
    if sorter is not None:
        boundaries = emit(relax.op.gather_elements(boundaries, sorter, len(shape_of(boundaries)) - 1))
    dtype = common_dtype(emit.operands())
    shape = emit.shape
    if is_number(values):
        values = relax.const([values], dtype)
    elif not shape_of(values):
        values = emit(relax.op.reshape(values, (1,)))
    operands = [keys(emit, emit.cast(one, dtype), nan_is_highest=True) for one in (boundaries, values)]
    is_right, wanted = right or side == "right", "int32" if out_int32 else "int64"
    found = emit.tensor_expression(
        lambda bounds, given: topi.searchsorted(bounds, given, is_right, wanted), *operands
    )
    return relax.op.reshape(found, shape)


def _bucketize(data: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return torch.searchsorted(boundaries, data, out_int32=out_int32, right=right)


def _kth_value(data: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Among equal elements, torch may return another position."""
    if not data.dim():
        return data.clone(), torch.zeros((), dtype=torch.int64)
    values, places = torch.sort(data, stable=True, dim=dim)
    value, place = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _mode(data: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest of the most frequent elements, and its last position."""
    if not data.dim():
        return data.clone(), torch.zeros((), dtype=torch.int64)
    values, places = torch.sort(data, stable=True, dim=dim)
    rows = values.movedim(dim, -1)
    counts = (rows.unsqueeze(-1) == rows.unsqueeze(-2)).sum(-1)
    first = counts.argmax(-1, keepdim=True)
    last = first + counts.amax(-1, keepdim=True) - 1
    value, place = (one.movedim(dim, -1).gather(-1, last).movedim(-1, dim) for one in (values, places))
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _median(data: Tensor) -> Tensor:
    return _median_along(data.reshape(-1), 0)[0]


def _median_along(data: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower median, or the first NaN, which sorting moves after all numbers."""
    if not data.is_floating_point() or not data.dim():
        return _kth_value(data, (data.shape[dim] + 1) // 2 if data.dim() else 1, dim, keepdim)
    values, places = torch.sort(data, stable=True, dim=dim)
    count, numbers = data.shape[dim], (~data.isnan()).sum(dim, keepdim=True)
    at = torch.where(numbers < count, numbers, (count - 1) // 2)
    value, place = values.gather(dim, at), places.gather(dim, at)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _nan_median(data: Tensor) -> Tensor:
    return _nan_median_along(data.reshape(-1), 0)[0]


def _nan_median_along(data: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median of the numbers. NaN sorts after them as infinity."""
    is_nan = data.isnan()
    values, places = torch.sort(torch.where(is_nan, torch.inf, data), stable=True, dim=dim)
    count = (~is_nan).sum(dim, keepdim=True)
    middle = (count - 1).clamp(min=0) // 2
    value, place = values.gather(dim, middle), places.gather(dim, middle)
    value = torch.where(count == 0, torch.nan, value)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _histogram(data: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts for ``bins`` equal bins from ``min`` to ``max``, or over all data if those are equal."""
    low, high = torch.full((), min, dtype=data.dtype), torch.full((), max, dtype=data.dtype)
    if min == max and data.numel():
        low, high = data.amin(), data.amax()
    is_point = low == high
    low, high = torch.where(is_point, low - 1, low), torch.where(is_point, high + 1, high)
    place = ((data - low) * bins / (high - low)).floor().clamp(max=bins - 1)
    inside = (data >= low) & (data <= high)
    hits = (place.flatten().unsqueeze(0) == torch.arange(bins).unsqueeze(1)) & inside.flatten()
    return hits.sum(1).to(data.dtype)


RULES: Rules = (
    *rules_of(
        {
            "aten.searchsorted.Scalar": _searchsorted,
            "aten.searchsorted.Tensor": _searchsorted,
            "aten.sort.default": _sort,
            "aten.sort.stable": _stable_sort,
            "aten.topk.default": _topk,
        }
    ),
    Decomposition("aten.bucketize.Tensor", _bucketize),
    Decomposition("aten.histc.default", _histogram),
    Decomposition("aten.kthvalue.default", _kth_value),
    Decomposition("aten.mode.default", _mode),
    Decomposition("aten.median.default", _median),
    Decomposition("aten.median.dim", _median_along),
    Decomposition("aten.nanmedian.default", _nan_median),
    Decomposition("aten.nanmedian.dim", _nan_median_along),
)
