"""Matrix products, and products with one matrix per group of rows.

TVM's converters return float32 for any operands. torch returns the dtype of the operands, and sums narrow
floats in float32.

Mixture-of-experts models call grouped products by an operator of transformers. This module defines it where
that package is not installed, so that exported programs that call it load.
"""

from __future__ import annotations

import torch
from torch import Tensor
from tvm import relax

from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Decomposition, Rules, rules_of


def biased(emit: Emitter, product: relax.Expr, bias: relax.Expr | None, dtype: str) -> relax.Expr:
    """Add a bias that broadcasts, in the product's dtype; cast the sum to the dtype of the operands."""
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
    """``y[o] = left · W[o] · right``, as one product with all matrices side by side."""
    count, rows, columns = weight.shape
    halfway = (left @ weight.permute(1, 0, 2).reshape(rows, count * columns)).unflatten(-1, (count, columns))
    product = (halfway * right.unsqueeze(-2)).sum(-1)
    return product if bias is None else product + bias


def _grouped_mm(
    rows: torch.Tensor,
    matrices: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``[t, k]`` by ``[g, k, n]``: the rows up to ``offs[0]`` by the first matrix, and so on.

    If there are at most as many rows as matrices, each row is multiplied by a copy of its matrix. Otherwise
    all rows are multiplied by all matrices, and each row keeps the product with its own.
    """
    if offs is None or rows.dim() != 2 or matrices.dim() != 3 or bias is not None:
        raise UntranslatableError("groups other than rows of a matrix")
    group = (torch.arange(rows.shape[0]).unsqueeze(1) >= offs.unsqueeze(0)).sum(1)
    if rows.shape[0] <= matrices.shape[0]:
        chosen = (rows.unsqueeze(1) @ matrices.index_select(0, group)).squeeze(1)
    else:
        products = rows.unsqueeze(0) @ matrices
        own = group.unsqueeze(0) == torch.arange(matrices.shape[0]).unsqueeze(1)
        chosen = torch.where(own.unsqueeze(2), products, 0.0).sum(0)
    return chosen.to(rows.dtype if out_dtype is None else out_dtype)


def _product_of_groups(rows: torch.Tensor, matrices: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return rows.new_empty(rows.shape[0], matrices.shape[2])


def _define_for_experts() -> torch.library.Library:
    """Define the operator of transformers unless that package did."""
    library = torch.library.Library("transformers", "FRAGMENT")
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        library.impl("grouped_mm_fallback", _grouped_mm, "CPU")
        torch.library.register_fake("transformers::grouped_mm_fallback", _product_of_groups, lib=library)
    return library


_LIBRARY = _define_for_experts()
"""Keeps the operator defined: torch removes it with its library."""

RULES: Rules = (
    *rules_of(
        {
            "aten._int_mm.default": _int_matmul,
            "aten.addmm.default": _addmm,
            "aten.baddbmm.default": _addmm,
            "aten.bmm.default": _matmul,
            "aten.dot.default": _matmul,
            "aten.linear.default": _linear,
            "aten.matmul.default": _matmul,
            "aten.mm.default": _matmul,
            "aten.mv.default": _matmul,
        }
    ),
    Decomposition("aten._grouped_mm.default", _grouped_mm),
    Decomposition("aten.addbmm.default", _addbmm),
    Decomposition("aten.addmv.default", _addmv),
    Decomposition("aten.bilinear.default", _bilinear),
    Decomposition("transformers.grouped_mm_fallback.default", _grouped_mm),
)
