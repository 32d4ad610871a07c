"""Sums, extremes and moments along axes.

No axes, or an empty list, means all axes. Sums of booleans and small integers are int64.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

from tvm import relax, te, tirx

from worker.compiler.translation.comparison_keys import from_keys, keys
from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, shape_of
from worker.compiler.translation.rule import Rules, Translate, rules_of
from worker.compiler.translation.rules.comparisons import truth

Reduce = Callable[..., relax.Expr]
Axes = list[int] | int | None


def _axes(axes: Axes, data: relax.Expr) -> list[int]:
    """The axes counted from the front; all axes if none is given."""
    rank = len(shape_of(data))
    named = [axes] if isinstance(axes, int) else list(axes or ())
    return [axis_of(axis, rank) for axis in named] if named and rank else list(range(rank))


def reduce(emit: Emitter, operation: Reduce, data: relax.Expr, axes: Axes, keep: bool) -> relax.Expr:
    """Reduce along axes. A tensor of rank 0 is returned as it is."""
    chosen = _axes(axes, data)
    return emit(operation(data, chosen, keepdims=keep)) if chosen else data


def _of_sums(operation: Reduce) -> Translate:
    """Computed in the dtype of the result; narrow floats in float32."""

    def translate(emit: Emitter, data: relax.Expr, axes: Axes = None, keep: bool = False) -> relax.Expr:
        widened = emit.cast(data, wide(emit.dtype))
        return emit.cast(reduce(emit, operation, widened, axes, keep), emit.dtype)

    return translate


def _extreme(operation: Reduce) -> Translate:
    """Compares integer keys, so that a NaN is always the extreme."""

    def translate(emit: Emitter, data: relax.Expr, axes: Axes = None, keep: bool = False) -> relax.Expr:
        found = reduce(emit, operation, _keys(emit, operation, data), axes, keep)
        return from_keys(emit, found, dtype_of(data))

    return translate


def _keys(emit: Emitter, operation: Reduce, data: relax.Expr) -> relax.Expr:
    return keys(emit, data, nan_is_highest=operation in (relax.op.max, relax.op.argmax))


def _of_truths(operation: Reduce) -> Translate:
    """``any`` is a maximum, ``all`` a minimum.

    Those of no elements are the smallest and the largest number.
    """

    def translate(emit: Emitter, data: relax.Expr, axes: Axes = None, keep: bool = False) -> relax.Expr:
        ones = emit.cast(truth(emit, data), "int8")
        found = reduce(emit, operation, ones, axes, keep)
        return emit.cast(emit(relax.op.greater(found, relax.const(0, "int8"))), emit.dtype)

    return translate


def _with_index(argument: Reduce) -> Translate:
    """The extreme along one axis, and its first position."""

    def translate(emit: Emitter, data: relax.Expr, axis: int, keep: bool = False) -> tuple[Any, Any]:
        if not shape_of(data):
            return data, emit(relax.op.zeros((), "int64"))
        axis = axis_of(axis, len(shape_of(data)))
        place = emit.cast(emit(argument(_keys(emit, argument, data), axis, True)), "int64")
        found = emit(relax.op.gather_elements(data, place, axis))
        if keep:
            return found, place
        return emit(relax.op.squeeze(found, [axis])), emit(relax.op.squeeze(place, [axis]))

    return translate


def _argument(operation: Reduce) -> Translate:
    def translate(emit: Emitter, data: relax.Expr, axis: int | None, keep: bool) -> relax.Expr:
        rank = len(shape_of(data))
        if not rank:
            return relax.op.zeros((), "int64")
        data = _keys(emit, operation, data)
        if axis is None:
            place = emit(operation(emit(relax.op.reshape(data, (-1,))), 0, False))
            place = emit(relax.op.reshape(place, (1,) * rank)) if keep else place
        else:
            place = emit(operation(data, axis_of(axis, rank), keep))
        return emit.cast(place, "int64")

    return translate


def _variance(
    emit: Emitter, data: relax.Expr, axes: Axes, *, correction: float | None, keepdim: bool
) -> relax.Expr:
    """Sum of squared distances from the mean, divided by their number minus ``correction`` (default 1)."""
    dtype = dtype_of(data)
    data = emit.cast(data, wide(dtype))
    chosen = _axes(axes, data)
    mean = reduce(emit, relax.op.mean, data, chosen, keep=True)
    distance = emit(relax.op.subtract(data, mean))
    squared = emit(relax.op.multiply(distance, distance))
    if correction == 0:
        return emit.cast(reduce(emit, relax.op.mean, squared, chosen, keepdim), dtype)
    count = prod(shape_of(data)[axis] for axis in chosen)
    total = reduce(emit, relax.op.sum, squared, chosen, keepdim)
    if not isinstance(count, int):
        apart = _numbers_left(emit, count, 1 if correction is None else correction, dtype_of(total))
        return emit.cast(emit(relax.op.divide(total, apart)), dtype)
    left = max(count - (1 if correction is None else correction), 0)
    if not left:  # TVM refuses to divide by 0
        return emit.cast(emit(relax.op.multiply(total, relax.const(inf, dtype_of(total)))), dtype)
    return emit.cast(emit(relax.op.divide(total, relax.const(float(left), dtype_of(total)))), dtype)


def _numbers_left(emit: Emitter, count: Any, correction: float, dtype: str) -> relax.Expr:
    """A dynamic count minus the correction; 0 if that is negative."""

    def left(number: Any) -> te.Tensor:
        difference = number.astype(dtype) - tirx.const(correction, dtype)
        return te.compute((), lambda: tirx.max(difference, tirx.const(0, dtype)), "left")

    return emit.tensor_expression(left, count)


def _deviation(
    emit: Emitter, data: relax.Expr, axes: Axes, *, correction: float | None, keepdim: bool
) -> relax.Expr:
    return relax.op.sqrt(emit(_variance(emit, data, axes, correction=correction, keepdim=keepdim)))


def _with_mean(moment: Translate) -> Translate:
    def translate(
        emit: Emitter, data: relax.Expr, axes: Axes, *, correction: float | None, keepdim: bool
    ) -> tuple[relax.Expr, relax.Expr]:
        mean = _of_sums(relax.op.mean)(emit, data, axes, keepdim)
        return emit(moment(emit, data, axes, correction=correction, keepdim=keepdim)), mean

    return translate


def _norm(emit: Emitter, data: relax.Expr, order: float, axes: Axes, keep: bool) -> relax.Expr:
    """``(Σ |x|^p)^(1/p)``, with the limits for p = 0 and ±∞."""
    dtype = dtype_of(data)
    size = emit(relax.op.abs(emit.cast(data, wide(dtype))))
    if order in (float("inf"), float("-inf")):
        operation = relax.op.max if order > 0 else relax.op.min
        return emit.cast(_extreme(operation)(emit, size, axes, keep), dtype)
    if order == 0:
        ones = emit.cast(truth(emit, size), wide(dtype))
        return emit.cast(reduce(emit, relax.op.sum, ones, axes, keep), dtype)
    return emit.cast(_root(emit, size, order, axes, keep), dtype)


def _root(emit: Emitter, size: relax.Expr, order: float, axes: Axes, keep: bool) -> relax.Expr:
    if order == 1:
        return reduce(emit, relax.op.sum, size, axes, keep)
    if order == 2:
        total = reduce(emit, relax.op.sum, emit(relax.op.multiply(size, size)), axes, keep)
        return emit(relax.op.sqrt(total))
    powers = emit(relax.op.power(size, relax.const(order, dtype_of(size))))
    total = reduce(emit, relax.op.sum, powers, axes, keep)
    return emit(relax.op.power(total, relax.const(1 / order, dtype_of(size))))


def _product(emit: Emitter, data: relax.Expr, axes: Axes = None, keep: bool = False) -> relax.Expr:
    return reduce(emit, relax.op.prod, emit.cast(data, emit.dtype), axes, keep)


RULES: Rules = rules_of(
    {
        "aten.sum.default": _of_sums(relax.op.sum),
        "aten.sum.dim_IntList": _of_sums(relax.op.sum),
        "aten.mean.default": _of_sums(relax.op.mean),
        "aten.mean.dim": _of_sums(relax.op.mean),
        "aten.prod.default": _product,
        "aten.prod.dim_int": _product,
        "aten.amax.default": _extreme(relax.op.max),
        "aten.amin.default": _extreme(relax.op.min),
        "aten.max.default": _extreme(relax.op.max),
        "aten.min.default": _extreme(relax.op.min),
        "aten.max.dim": _with_index(relax.op.argmax),
        "aten.min.dim": _with_index(relax.op.argmin),
        "aten.argmax.default": _argument(relax.op.argmax),
        "aten.argmin.default": _argument(relax.op.argmin),
        "aten.any.default": _of_truths(relax.op.max),
        "aten.any.dim": _of_truths(relax.op.max),
        "aten.any.dims": _of_truths(relax.op.max),
        "aten.all.default": _of_truths(relax.op.min),
        "aten.all.dim": _of_truths(relax.op.min),
        "aten.all.dims": _of_truths(relax.op.min),
        "aten.std_mean.correction": _with_mean(_deviation),
        "aten.var.correction": _variance,
        "aten.var_mean.correction": _with_mean(_variance),
        "aten.std.correction": _deviation,
        "aten.linalg_vector_norm.default": _norm,
    }
)
