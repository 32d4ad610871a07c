"""Matrix products.

TVM's converters give float32 whatever the operands are; torch gives their dtype, and sums narrow floats in
float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from tvm import relax

from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Decomposition, Rules, Translate, rules_of


def biased(emit: Emitter, product: relax.Expr, bias: relax.Expr | None, dtype: str) -> relax.Expr:
    """Add a bias that broadcasts, in the product's dtype, and give the sum the dtype of the operands."""
    result = emit(product)
    if bias is not None:
        result = emit(relax.op.add(result, emit.cast(bias, dtype_of(result))))
    return emit.cast(result, dtype)


def _matmul(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    dtype = dtype_of(left)
    return biased(emit, relax.op.matmul(left, right, out_dtype=wide(dtype)), None, dtype)


def _int_matmul(_emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return relax.op.matmul(left, right, out_dtype="int32")


def _linear(emit: Emitter, data: relax.Expr, weight: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    dtype = dtype_of(data)
    if len(weight.ty.shape) == 1:
        return biased(emit, relax.op.matmul(data, weight, out_dtype=wide(dtype)), bias, dtype)
    product = relax.op.matmul(data, emit(relax.op.permute_dims(weight)), out_dtype=wide(dtype))
    return biased(emit, product, bias, dtype)


def _addmm(
    emit: Emitter, bias: relax.Expr, left: relax.Expr, right: relax.Expr, *, beta: float, alpha: float
) -> relax.Expr:
    dtype = dtype_of(left)
    product = emit(relax.op.matmul(left, right, out_dtype=wide(dtype)))
    product = times(emit, product, alpha)
    if beta == 0:
        return emit.cast(product, dtype)
    return biased(emit, product, times(emit, bias, beta), dtype)


def times(emit: Emitter, expression: relax.Expr, factor: float) -> relax.Expr:
    """A multiple of an expression."""
    if factor == 1:
        return expression
    return emit(relax.op.multiply(expression, relax.const(factor, dtype_of(expression))))


def _addmv(bias: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = alpha * (matrix @ vector)
    return product if beta == 0 else beta * bias + product


def _addbmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = alpha * (left @ right).sum(0)
    return product if beta == 0 else beta * bias + product


def _bilinear(left: Tensor, right: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``y[o] = left · W[o] · right``: one product with all matrices side by side."""
    count, rows, columns = weight.shape
    halfway = (left @ weight.permute(1, 0, 2).reshape(rows, count * columns)).unflatten(-1, (count, columns))
    product = (halfway * right.unsqueeze(-2)).sum(-1)
    return product if bias is None else product + bias


def _distance(left: Tensor, right: Tensor, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(left - right, p)


_DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "addbmm.default": _addbmm,
    "addmv.default": _addmv,
    "bilinear.default": _bilinear,
    "dist.default": _distance,
}

_TRANSLATIONS: dict[str, Translate] = {
    "aten._int_mm.default": _int_matmul,
    "aten.addmm.default": _addmm,
    "aten.baddbmm.default": _addmm,
    "aten.bmm.default": _matmul,
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.mv.default": _matmul,
    "aten.dot.default": _matmul,
}

RULES: Rules = (
    *rules_of(_TRANSLATIONS),
    *(Decomposition(f"aten.{name}", compute) for name, compute in _DECOMPOSITIONS.items()),
)
