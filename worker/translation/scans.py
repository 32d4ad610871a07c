"""Running sums, products and extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te, tirx

from worker.translation.emitter import Emitter, axis_of, dtype_of, fixed, shape_of
from worker.translation.rule import Rules, Translate, rules_of


def _running(operation: Callable[..., relax.Expr]) -> Translate:
    """In the dtype of the result: running sums of booleans count."""

    def translate(emit: Emitter, data: relax.Expr, axis: int) -> relax.Expr:
        if not shape_of(data):
            return emit.cast(data, emit.dtype)
        return operation(emit.cast(data, emit.dtype), axis_of(axis, len(shape_of(data))), emit.dtype)

    return translate


def _running_extreme(is_better: Callable[[Any, Any], Any]) -> Translate:
    """The extreme so far, and where it was last found."""

    def translate(emit: Emitter, data: relax.Expr, axis: int) -> tuple[Any, Any]:
        shape = fixed(shape_of(data), "a running extreme")
        if not shape:
            return data, emit(relax.op.zeros((), "int64"))
        compared = emit.cast(data, "int8") if dtype_of(data) == "bool" else data
        axis = axis_of(axis, len(shape))
        pair = emit.tensor_expression(lambda tensor: _scan(tensor, axis, is_better), compared)
        values, places = emit(relax.TupleGetItem(pair, 0)), emit(relax.TupleGetItem(pair, 1))
        return emit.cast(values, dtype_of(data)), places

    return translate


def _scan(data: te.Tensor, axis: int, is_better: Callable[[Any, Any], Any]) -> list[te.Tensor]:
    """For each element, a reduction over what precedes it along the axis, itself included."""
    size = data.shape[axis]

    def combine(left: Any, right: Any) -> tuple[Any, Any]:
        better = tirx.Or(is_better(right[0], left[0]), tirx.EQ(right[0], left[0]))
        later = tirx.And(better, right[1] >= 0)
        keep = tirx.Or(left[1] < 0, later)
        return tirx.Select(keep, right[0], left[0]), tirx.Select(keep, right[1], left[1])

    def identity(value: str, place: str) -> tuple[Any, Any]:
        return tirx.const(0, value), tirx.const(-1, place)

    reducer = te.comm_reducer(combine, identity, name="running_extreme")
    step = te.reduce_axis((0, size), name="step")

    def element(*index: Any) -> Any:
        at = [*index[:axis], step, *index[axis + 1 :]]
        seen = step <= index[axis]
        place = tvm.tirx.Select(seen, step.var.astype("int64"), tirx.const(-1, "int64"))
        return reducer((data(*at), place), axis=step)

    values, places = te.compute(data.shape, element, name="running_extreme")
    return [values, places]


RULES: Rules = rules_of(
    {
        "aten.cumsum.default": _running(relax.op.cumsum),
        "aten.cumprod.default": _running(relax.op.cumprod),
        "aten.cummax.default": _running_extreme(lambda left, right: left > right),
        "aten.cummin.default": _running_extreme(lambda left, right: left < right),
    }
)
