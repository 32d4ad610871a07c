"""Running sums, products and extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.batch_loops import (
    Local,
    Result,
    View,
    map_batch,
    partial_named,
    when,
)
from worker.compiler.translation.comparison_keys import from_keys, keys
from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, fixed, shape_of
from worker.compiler.translation.rule import Rules, Translate, rules_of


def _running(operation: Callable[..., relax.Expr]) -> Translate:
    """Computed in the dtype of the result, so running sums of booleans count; narrow floats in float32."""

    def translate(emit: Emitter, data: relax.Expr, axis: int) -> relax.Expr:
        if not shape_of(data):
            return emit.cast(data, emit.dtype)
        dtype = wide(emit.dtype)
        found = operation(emit.cast(data, dtype), axis_of(axis, len(shape_of(data))), dtype)
        return found if dtype == emit.dtype else emit.cast(emit(found), emit.dtype)

    return translate


def _running_extreme(is_maximum: bool) -> Translate:
    """The extreme so far and its last position. From a NaN on, NaN is the extreme."""

    def translate(emit: Emitter, data: relax.Expr, axis: int) -> tuple[Any, Any]:
        compared = keys(emit, data, nan_is_highest=is_maximum)
        body = partial_named(_extremes, is_maximum=is_maximum)
        found = _along(emit, body, compared, axis, (dtype_of(compared), "int64"))
        if found is None:
            return data, emit(relax.op.zeros((), "int64"))
        return from_keys(emit, found[0], dtype_of(data)), found[1]

    return translate


def _log_sum(emit: Emitter, data: relax.Expr, axis: int) -> relax.Expr:
    """The logarithm of the sum of the exponentials so far."""
    widened = emit.cast(data, wide(dtype_of(data)))
    found = _along(emit, _log_sums, widened, axis, (dtype_of(widened),))
    return data if found is None else emit.cast(found[0], dtype_of(data))


def _along(
    emit: Emitter, body: Callable[..., None], data: relax.Expr, axis: int, dtypes: tuple[str, ...]
) -> list[relax.Expr] | None:
    """Apply a loop body to the rows along an axis; None for a tensor of rank 0."""
    shape = fixed(shape_of(data), "a running extreme or sum")
    if not shape:
        return None
    order = [*(place for place in range(len(shape)) if place != axis_of(axis, len(shape)))]
    order.append(axis_of(axis, len(shape)))
    back = sorted(range(len(shape)), key=order.__getitem__)
    moved = emit(relax.op.permute_dims(data, order))
    results = [Result((shape[order[-1]],), dtype) for dtype in dtypes]
    return [
        emit(relax.op.permute_dims(part, back)) for part in map_batch(emit, body, [moved], results, rank=1)
    ]


def _extremes(row: View, values: View, places: View, is_maximum: bool) -> None:
    best, place = Local(row[0], row.dtype), Local(0, "int64")
    with T.serial(0, row.sizes[0]) as i:
        is_better = row[i] >= best.value if is_maximum else row[i] <= best.value
        with when(is_better):
            best.set(row[i])
            place.set(i)
        values[i] = best.value
        places[i] = place.value


def _log_sums(row: View, sums: View) -> None:
    """The larger of total and element plus ``log(1 + exp(-distance))``; an infinity stays."""
    total = Local(row[0], row.dtype)
    sums[0] = row[0]
    with T.serial(1, row.sizes[0]) as i:
        higher, lower = tirx.max(total.value, row[i]), tirx.min(total.value, row[i])
        joined = higher + tirx.log(tirx.const(1, row.dtype) + tirx.exp(lower - higher))
        is_finite = tirx.abs(higher) < tirx.const(float("inf"), row.dtype)
        number = tirx.if_then_else(is_finite, joined, higher)
        is_nan = tirx.Or(tirx.isnan(total.value), tirx.isnan(row[i]))
        total.set(tirx.if_then_else(is_nan, total.value + row[i], number))
        sums[i] = total.value


RULES: Rules = rules_of(
    {
        "aten.cumsum.default": _running(relax.op.cumsum),
        "aten.cumprod.default": _running(relax.op.cumprod),
        "aten.cummax.default": _running_extreme(is_maximum=True),
        "aten.cummin.default": _running_extreme(is_maximum=False),
        "aten.logcumsumexp.default": _log_sum,
    }
)
