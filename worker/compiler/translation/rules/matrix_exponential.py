"""The matrix exponential, by scaling and squaring.

The matrix is halved until its 1-norm is at most a half. A truncated Taylor series gives the exponential of
the result, and squaring that as many times undoes the halvings.

Source: N. Higham, "The Scaling and Squaring Method for the Matrix Exponential Revisited" (2005), which uses a
Padé approximant in place of the series.
"""

from __future__ import annotations

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.batch_loops import (
    Local,
    Result,
    View,
    copy,
    map_batch,
    matrix_sizes,
    set_identity,
    when,
)
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Rules, rules_of

_LARGEST_TERM = 18
"""Degree of the series for norms up to a half: the next term, 0.5¹⁹/19!, is below 2⁻⁵³."""
_MOST_HALVINGS = 64


def _matrix_exp(emit: Emitter, matrix: relax.Expr) -> relax.Expr:
    """Computed in float64, because each squaring doubles the rounding errors of small elements."""
    whole = Result(matrix_sizes(matrix), "float64")
    wide = emit.cast(matrix, "float64")
    return emit.cast(map_batch(emit, _exponential, [wide], [whole, whole, whole])[0], dtype_of(matrix))


def _exponential(matrix: View, total: View, scaled: View, product: View) -> None:
    """Halve until every column's 1-norm is at most 0.5, sum the series by Horner's scheme, square back."""
    size, _ = matrix.sizes
    share, halvings = Local(1.0, matrix.dtype), Local(0, "int32")
    with T.serial(0, size) as j:
        column = Local(0.0, matrix.dtype)
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


def _multiply(left: View, right: View, product: View) -> None:
    size, _ = left.sizes
    with T.serial(0, size) as i:
        with T.serial(0, size) as j:
            product[i, j] = 0.0
        with T.serial(0, size) as k, T.serial(0, size) as j:
            product[i, j] = product[i, j] + left[i, k] * right[k, j]


RULES: Rules = rules_of({"aten.linalg_matrix_exp.default": _matrix_exp})
