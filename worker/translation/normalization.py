"""Softmax, of narrow floats in float32 as torch does."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from worker.translation.dtypes import wide
from worker.translation.emitter import Emitter, axis_of, dtype_of, shape_of
from worker.translation.rule import Rules, Translate, rules_of


def _exponentials(operation: Callable[[relax.Expr, int], relax.Expr]) -> Translate:
    def translate(emit: Emitter, data: relax.Expr, axis: int, to_float: bool) -> relax.Expr:
        axis = axis_of(axis, len(shape_of(data)))
        return emit.cast(emit(operation(emit.cast(data, wide(dtype_of(data))), axis)), emit.dtype)

    return translate


RULES: Rules = rules_of(
    {
        "aten._softmax.default": _exponentials(relax.op.nn.softmax),
        "aten._log_softmax.default": _exponentials(relax.op.nn.log_softmax),
    }
)
