"""Computes calls of operators on constants with numpy.

TVM would compile a function for each call, which takes a tenth of a second. An evaluator returns None for
arguments on which numpy and TVM may differ, or that are out of bounds; TVM then computes the call itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Evaluator = Callable[..., Array | None]

MAX_FILLED = 1 << 16
"""The most elements of a tensor of one value: a larger one is cheaper to fill than to store."""


def _take(attrs: Any, values: Array, indices: Array) -> Array | None:
    axis = None if attrs.axis is None else int(attrs.axis)
    size = values.size if axis is None else values.shape[axis]
    return np.take(values, indices, axis) if _are_within(indices, size) else None


def _gather_elements(attrs: Any, values: Array, indices: Array) -> Array | None:
    axis = int(attrs.axis) % values.ndim
    other = [size for dimension, size in enumerate(values.shape) if dimension != axis]
    same = [size for dimension, size in enumerate(indices.shape) if dimension != axis] == other
    is_known = same and _are_within(indices, values.shape[axis])
    return np.take_along_axis(values, indices, axis) if is_known else None


def _are_within(indices: Array, size: int) -> bool:
    return indices.dtype.kind == "i" and (indices.size == 0 or (indices.min() >= 0 and indices.max() < size))


def _strided_slice(
    _attrs: Any,
    values: Array,
    axes: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> Array | None:
    steps = strides or (1,) * len(axes)
    if min(steps, default=1) < 1:
        return None
    place = [slice(None)] * values.ndim
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        place[axis] = slice(first, last, step)
    return values[tuple(place)]


def _slice_scatter(attrs: Any, values: Array, part: Array, start: int, end: int, step: int) -> Array | None:
    if step < 1:
        return None
    place = [slice(None)] * values.ndim
    place[int(attrs.axis)] = slice(start, end, step)
    if values[tuple(place)].shape != part.shape:
        return None
    result = values.copy()
    result[tuple(place)] = part
    return result


def _astype(attrs: Any, values: Array) -> Array | None:
    dtype = np.dtype(str(attrs.dtype))
    is_rounded = values.dtype.kind in "iu" and dtype.kind == "f"  # to the nearest, as in compiled code
    return values.astype(dtype) if is_rounded or np.can_cast(values.dtype, dtype) else None


def _full(_attrs: Any, shape: tuple[int, ...], value: Array) -> Array | None:
    count = int(np.prod(shape, dtype=np.int64))
    return np.full(shape, value) if value.ndim == 0 and count <= MAX_FILLED else None


def _divide(_attrs: Any, values: Array, divisors: Array) -> Array | None:
    if values.dtype.kind == "f":
        return None if np.any(divisors == 0) else values / divisors
    return _floor_divide(_attrs, values, divisors)


def _floor_divide(_attrs: Any, values: Array, divisors: Array) -> Array | None:
    return values // divisors if _are_natural(values, divisors) else None


def _modulo(_attrs: Any, values: Array, divisors: Array) -> Array | None:
    return values % divisors if _are_natural(values, divisors) else None


def _are_natural(values: Array, divisors: Array) -> bool:
    """Whether division rounds the same way in every language."""
    return values.dtype.kind == "i" and bool(np.all(values >= 0) and np.all(divisors > 0))


def _where(_attrs: Any, condition: Array, values: Array, others: Array) -> Array:
    chosen: Array = np.where(condition, values, others)
    return chosen


def integers(values: Any) -> tuple[int, ...] | None:
    """The integers of an attribute that may be missing."""
    return None if values is None else tuple(int(value) for value in values)


EVALUATORS: Mapping[str, Evaluator] = {
    "permute_dims": lambda attrs, x: np.transpose(x, integers(attrs.axes)),
    "reshape": lambda _attrs, x, shape: np.reshape(x, shape),
    "broadcast_to": lambda _attrs, x, shape: np.broadcast_to(x, shape),
    "expand_dims": lambda attrs, x: np.expand_dims(x, integers(attrs.axis) or ()),
    "squeeze": lambda attrs, x: np.squeeze(x, integers(attrs.axis)),
    "take": _take,
    "gather_elements": _gather_elements,
    "strided_slice": _strided_slice,
    "slice_scatter": _slice_scatter,
    "astype": _astype,
    "full": _full,
    "where": _where,
    "add": lambda _attrs, x, y: x + y,
    "subtract": lambda _attrs, x, y: x - y,
    "multiply": lambda _attrs, x, y: x * y,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "mod": _modulo,
    "floor_mod": _modulo,
    "equal": lambda _attrs, x, y: x == y,
    "not_equal": lambda _attrs, x, y: x != y,
    "less": lambda _attrs, x, y: x < y,
    "less_equal": lambda _attrs, x, y: x <= y,
    "greater": lambda _attrs, x, y: x > y,
    "greater_equal": lambda _attrs, x, y: x >= y,
    "logical_and": lambda _attrs, x, y: np.logical_and(x, y),
    "logical_or": lambda _attrs, x, y: np.logical_or(x, y),
    "logical_not": lambda _attrs, x: np.logical_not(x),
}
"""Evaluators of operators that parameters, masks and indices often pass through. They round as TVM does."""
