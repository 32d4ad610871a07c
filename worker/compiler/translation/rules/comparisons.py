"""Comparisons, logic, and selection of one of two elements."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from worker.compiler.translation.dtypes import common_dtype
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Decomposition, Rules, Translate, rules_of
from worker.compiler.translation.rules.arithmetic import Binary, promoted


def _comparison(operation: Binary) -> Translate:
    def translate(emit: Emitter, left: Any, right: Any) -> Any:
        if not any(isinstance(getattr(one, "ty", None), relax.TensorType) for one in (left, right)):
            return emit.stock()
        dtype = common_dtype(emit.operands())
        dtype = "int8" if dtype == "bool" else dtype
        return operation(emit.cast(left, dtype), emit.cast(right, dtype))

    return translate


def _logical(operation: Binary) -> Translate:
    def translate(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
        return operation(truth(emit, left), truth(emit, right))

    return translate


def _logical_not(emit: Emitter, data: relax.Expr) -> relax.Expr:
    return relax.op.logical_not(truth(emit, data))


def truth(emit: Emitter, data: relax.Expr) -> relax.Expr:
    """A boolean tensor: true where an element is not zero."""
    if dtype_of(data) == "bool":
        return data
    return emit(relax.op.not_equal(data, relax.const(0, dtype_of(data))))


def _where(emit: Emitter, condition: relax.Expr, left: Any, right: Any) -> relax.Expr:
    return relax.op.where(truth(emit, condition), emit.cast(left, emit.dtype), emit.cast(right, emit.dtype))


def _clamp(emit: Emitter, data: relax.Expr, low: Any, high: Any) -> relax.Expr:
    """Each bound is a number, a tensor that broadcasts, or None."""
    result = emit.cast(data, emit.dtype)
    if low is not None:
        result = emit(relax.op.maximum(result, emit.cast(low, emit.dtype)))
    if high is not None:
        result = emit(relax.op.minimum(result, emit.cast(high, emit.dtype)))
    return result


def _larger(on_numbers: Binary, on_booleans: Binary) -> Translate:
    def translate(emit: Emitter, left: Any, right: Any) -> Any:
        return promoted(on_booleans if emit.dtype == "bool" else on_numbers)(emit, left, right)

    return translate


def _fmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.maximum(x, y)))


def _fmin(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.minimum(x, y)))


_COMPARISONS = {
    "eq": relax.op.equal,
    "ne": relax.op.not_equal,
    "lt": relax.op.less,
    "le": relax.op.less_equal,
    "gt": relax.op.greater,
    "ge": relax.op.greater_equal,
}

RULES: Rules = (
    *rules_of(
        {
            **{
                f"aten.{name}.{overload}": _comparison(operation)
                for name, operation in _COMPARISONS.items()
                for overload in ("Tensor", "Scalar")
            },
            "aten.logical_and.default": _logical(relax.op.logical_and),
            "aten.logical_or.default": _logical(relax.op.logical_or),
            "aten.logical_xor.default": _logical(relax.op.logical_xor),
            "aten.logical_not.default": _logical_not,
            **{
                name: _larger(on_numbers, on_booleans)
                for names, on_numbers, on_booleans in (
                    (("aten.maximum.default", "aten.max.other"), relax.op.maximum, relax.op.logical_or),
                    (("aten.minimum.default", "aten.min.other"), relax.op.minimum, relax.op.logical_and),
                )
                for name in names
            },
            "aten.where.self": _where,
            "aten.clamp.default": _clamp,
            "aten.clamp.Tensor": _clamp,
            "aten.clamp_min.default": lambda emit, data, low: _clamp(emit, data, low, None),
            "aten.clamp_min.Tensor": lambda emit, data, low: _clamp(emit, data, low, None),
            "aten.clamp_max.default": lambda emit, data, high: _clamp(emit, data, None, high),
            "aten.clamp_max.Tensor": lambda emit, data, high: _clamp(emit, data, None, high),
        }
    ),
    Decomposition("aten.fmax.default", _fmax),
    Decomposition("aten.fmin.default", _fmin),
)
