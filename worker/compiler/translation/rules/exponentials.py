"""Exponentials of matrices: halved until they are small, the series, and squared as often.

Source: N. Higham, "The Scaling and Squaring Method for the Matrix Exponential Revisited", where a quotient
stands for the series.
"""

from __future__ import annotations

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.matrix_loops import Cell, Part, Result, copy, each_matrix, set_identity, when
from worker.compiler.translation.rule import Rules, rules_of
from worker.compiler.translation.rules.factorizations import sizes_of

_LARGEST_TERM = 18
"""Of the series, for norms below a half: 0.5¹⁹/19! is below 2⁻⁵³."""
_MOST_HALVINGS = 64


def _matrix_exp(emit: Emitter, matrix: relax.Expr) -> relax.Expr:
    """In float64: squaring doubles what rounding did to elements that are small beside others."""
    whole = Result(sizes_of(matrix), "float64")
    wide = emit.cast(matrix, "float64")
    return emit.cast(each_matrix(emit, _exponential, [wide], [whole, whole, whole])[0], dtype_of(matrix))


def _exponential(matrix: Part, total: Part, scaled: Part, product: Part) -> None:
    size, _ = matrix.sizes
    share, halvings = Cell(1.0, matrix.dtype), Cell(0, "int32")
    with T.serial(0, size) as j:
        column = Cell(0.0, matrix.dtype)
        with T.serial(0, size) as i:
            column.set(column.value + tirx.abs(matrix[i, j]))
        with T.serial(0, _MOST_HALVINGS), when(column.value * share.value > 0.5):
            share.set(share.value * 0.5)
            halvings.set(halvings.value + 1)
    with T.serial(0, size) as i, T.serial(0, size) as j:
        scaled[i, j] = matrix[i, j] * share.value
    set_identity(total)
    with T.serial(0, _LARGEST_TERM) as step:
        _multiply(scaled, total, product)
        set_identity(total)
        term = (_LARGEST_TERM - step).astype(matrix.dtype)
        with T.serial(0, size) as i, T.serial(0, size) as j:
            total[i, j] = total[i, j] + product[i, j] / term
    with T.serial(0, halvings.value):
        _multiply(total, total, product)
        copy(product, total)


def _multiply(left: Part, right: Part, product: Part) -> None:
    size, _ = left.sizes
    with T.serial(0, size) as i:
        with T.serial(0, size) as j:
            product[i, j] = 0.0
        with T.serial(0, size) as k, T.serial(0, size) as j:
            product[i, j] = product[i, j] + left[i, k] * right[k, j]


RULES: Rules = rules_of({"aten.linalg_matrix_exp.default": _matrix_exp})
