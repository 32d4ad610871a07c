"""LU, Cholesky and QR factorizations, in the packed forms that LAPACK returns.

Where torch raises because a matrix has no factorization, these give infinities or NaN and set ``info``.

Source: G. Golub and C. Van Loan, "Matrix Computations", 4th ed., algorithms 3.4.1 (LU with partial pivoting),
4.2.1 (Cholesky), 5.1.1 and 5.2.1 (Householder QR).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.batch_loops import (
    Local,
    Result,
    View,
    copy,
    map_batch,
    matrix_sizes,
    partial_named,
    set_identity,
    swap,
    transposed,
    when,
)
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Decomposition, Rules, rules_of


def _lu_factor(emit: Emitter, matrix: relax.Expr, *, pivot: bool) -> tuple[relax.Expr, ...]:
    rows, columns = matrix_sizes(matrix)
    results = (
        Result((rows, columns), dtype_of(matrix)),
        Result((min(rows, columns),), "int32"),
        Result((), "int32"),
    )
    return tuple(map_batch(emit, partial_named(_lu, pivot=pivot), [matrix], results))


def _lu(matrix: View, factors: View, pivots: View, info: View, pivot: bool) -> None:
    """Gaussian elimination: both triangles in one matrix, pivots counted from 1.

    For each column, exchange the pivot row, divide the column below the diagonal by the pivot, and subtract
    the outer product from the rest (algorithm 3.4.1).
    """
    rows, columns = matrix.sizes
    copy(matrix, factors)
    info[()] = 0
    with T.serial(0, min(rows, columns)) as j:
        chosen = _largest_below(factors, j, rows) if pivot else Local(j, "int32")
        pivots[j] = chosen.value + 1
        with when(chosen.value != j), T.serial(0, columns) as c:
            swap((factors, (j, c)), (factors, (chosen.value, c)))
        with when(tirx.all(factors[j, j] == 0, info[()] == 0)):
            info[()] = j + 1
        with when(factors[j, j] != 0), T.serial(j + 1, rows) as i:
            factors[i, j] = factors[i, j] / factors[j, j]
            with T.serial(j + 1, columns) as c:
                factors[i, c] = factors[i, c] - factors[i, j] * factors[j, c]


def _largest_below(matrix: View, column: Any, rows: int) -> Local:
    place, size = (
        Local(column, "int32"),
        Local(tirx.abs(matrix[column, column]), matrix.dtype),
    )
    with T.serial(column + 1, rows) as i, when(tirx.abs(matrix[i, column]) > size.value):
        size.set(tirx.abs(matrix[i, column]))
        place.set(i)
    return place


def _lu_unpack(
    emit: Emitter, factors: relax.Expr, pivots: relax.Expr, unpack_data: bool, unpack_pivots: bool
) -> tuple[relax.Expr, ...]:
    rows, columns = matrix_sizes(factors)
    inner, dtype = min(rows, columns), dtype_of(factors)
    results = (
        Result((rows, rows), dtype),
        Result((rows, inner), dtype),
        Result((inner, columns), dtype),
    )
    return tuple(map_batch(emit, _unpack, [factors, pivots], results))


def _unpack(factors: View, pivots: View, permutation: View, lower: View, upper: View) -> None:
    """``permutation @ lower @ upper`` gives the factored matrix."""
    (rows, inner), (_, columns) = lower.sizes, upper.sizes
    zero, one = tirx.const(0, lower.dtype), tirx.const(1, lower.dtype)
    with T.serial(0, rows) as i, T.serial(0, inner) as j:
        lower[i, j] = tirx.if_then_else(i > j, factors[i, j], tirx.Select(i == j, one, zero))
    with T.serial(0, inner) as i, T.serial(0, columns) as j:
        upper[i, j] = tirx.if_then_else(i <= j, factors[i, j], zero)
    set_identity(permutation)
    with T.serial(0, inner) as j, T.serial(0, rows) as i:
        other = pivots[inner - 1 - j] - 1
        with when(other != inner - 1 - j):
            swap((permutation, (inner - 1 - j, i)), (permutation, (other, i)))


def _cholesky(emit: Emitter, matrix: relax.Expr, *, upper: bool) -> tuple[relax.Expr, relax.Expr]:
    """Read and return the lower triangle, or the upper one."""
    size, _ = matrix_sizes(matrix)
    source = transposed(emit, matrix) if upper else matrix
    results = (Result((size, size), dtype_of(matrix)), Result((), "int32"))
    factor, info = map_batch(emit, _cholesky_factor, [source], results)
    return (transposed(emit, factor) if upper else factor), info


def _cholesky_only(emit: Emitter, matrix: relax.Expr, upper: bool) -> relax.Expr:
    return _cholesky(emit, matrix, upper=upper)[0]


def _cholesky_factor(matrix: View, factor: View, info: View) -> None:
    """Column by column (algorithm 4.2.1). ``info`` is the order of the first minor that is not positive."""
    size, _ = matrix.sizes
    info[()] = 0
    with T.serial(0, size) as j:
        with T.serial(0, j) as i:
            factor[i, j] = 0.0
        rest = Local(matrix[j, j], matrix.dtype)
        with T.serial(0, j) as k:
            rest.set(rest.value - factor[j, k] * factor[j, k])
        with when(tirx.all(tirx.Not(rest.value > 0), info[()] == 0)):
            info[()] = j + 1
        factor[j, j] = tirx.sqrt(rest.value)
        with T.serial(j + 1, size) as i:
            rest.set(matrix[i, j])
            with T.serial(0, j) as k:
                rest.set(rest.value - factor[i, k] * factor[j, k])
            factor[i, j] = rest.value / factor[j, j]


def _qr(emit: Emitter, matrix: relax.Expr, mode: str) -> tuple[relax.Expr, relax.Expr]:
    return qr(emit, matrix, complete=mode == "complete")


def qr(emit: Emitter, matrix: relax.Expr, complete: bool) -> tuple[relax.Expr, relax.Expr]:
    """An orthogonal matrix and an upper triangle with the matrix as product."""
    rows, columns = matrix_sizes(matrix)
    inner, dtype = rows if complete else min(rows, columns), dtype_of(matrix)
    reflectors, scales = _geqrf(emit, matrix)
    (orthogonal,) = map_batch(emit, _reflected, [reflectors, scales], [Result((rows, inner), dtype)])
    (triangle,) = map_batch(emit, _upper, [reflectors], [Result((inner, columns), dtype)])
    return orthogonal, triangle


def _geqrf(emit: Emitter, matrix: relax.Expr) -> tuple[relax.Expr, ...]:
    rows, columns = matrix_sizes(matrix)
    dtype = dtype_of(matrix)
    results = (Result((rows, columns), dtype), Result((min(rows, columns),), dtype))
    return tuple(map_batch(emit, _reflectors, [matrix], results))


def _reflectors(matrix: View, packed: View, scales: View) -> None:
    """Householder QR: the triangle R, and below its diagonal the vectors of the reflections.

    For each column, reflect it onto the axis and apply the reflection ``I - scale v vᵀ`` with ``v[0] = 1`` to
    the columns after it (algorithm 5.2.1).
    """
    rows, columns = matrix.sizes
    copy(matrix, packed)
    with T.serial(0, min(rows, columns)) as j:
        below, first = Local(0.0, matrix.dtype), Local(packed[j, j], matrix.dtype)
        with T.serial(j + 1, rows) as i:
            below.set(below.value + packed[i, j] * packed[i, j])
        scales[j] = 0.0
        with when(below.value > 0):
            length = Local(tirx.sqrt(first.value * first.value + below.value), matrix.dtype)
            last = Local(tirx.Select(first.value > 0, -length.value, length.value), matrix.dtype)
            scales[j] = (last.value - first.value) / last.value
            with T.serial(j + 1, rows) as i:
                packed[i, j] = packed[i, j] / (first.value - last.value)
            packed[j, j] = last.value
        _reflect(packed, j, scales[j], packed, j + 1)


def _reflect(vectors: View, j: Any, scale: Any, target: View, start: Any) -> None:
    """Apply the reflection in column ``j`` of ``vectors`` to the target's columns from ``start`` on."""
    rows, columns = target.sizes
    with T.serial(start, columns) as c:
        total = Local(target[j, c], target.dtype)
        with T.serial(j + 1, rows) as i:
            total.set(total.value + vectors[i, j] * target[i, c])
        total.set(total.value * scale)
        target[j, c] = target[j, c] - total.value
        with T.serial(j + 1, rows) as i:
            target[i, c] = target[i, c] - vectors[i, j] * total.value


def _reflected(vectors: View, scales: View, orthogonal: View) -> None:
    """The product of all reflections, accumulated from the last one (section 5.1.6)."""
    set_identity(orthogonal)
    (count,) = scales.sizes
    with T.serial(0, count) as step:
        j = count - 1 - step
        _reflect(vectors, j, scales[j], orthogonal, 0)


def _upper(packed: View, triangle: View) -> None:
    rows, columns = triangle.sizes
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        triangle[i, j] = tirx.if_then_else(i <= j, packed[i, j], tirx.const(0, packed.dtype))


def _householder_product(emit: Emitter, vectors: relax.Expr, scales: relax.Expr) -> relax.Expr:
    result = Result(matrix_sizes(vectors), dtype_of(vectors))
    (orthogonal,) = map_batch(emit, _reflected, [vectors, scales], [result])
    return orthogonal


def _linalg_lu(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix, pivot=pivot)
    permutation, lower, upper = torch.lu_unpack(factors, pivots)
    return permutation, lower, upper


def _linalg_lu_factor(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix, pivot=pivot)
    return factors, pivots


def _linalg_cholesky(matrix: Tensor, *, upper: bool = False) -> Tensor:
    return torch.linalg.cholesky_ex(matrix, upper=upper)[0]


def _rotated(
    reflections: Tensor, scales: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Multiply by the square orthogonal matrix of the reflections."""
    rows, columns = reflections.shape[-2:]
    square = torch.nn.functional.pad(reflections, (0, rows - columns))
    rotation = torch.linalg.householder_product(square, scales)
    turned = rotation.mT if transpose else rotation
    return turned @ other if left else other @ turned


RULES: Rules = (
    *rules_of(
        {
            "aten.cholesky.default": _cholesky_only,
            "aten.geqrf.default": _geqrf,
            "aten.linalg_cholesky_ex.default": _cholesky,
            "aten.linalg_householder_product.default": _householder_product,
            "aten.linalg_lu_factor_ex.default": _lu_factor,
            "aten.linalg_qr.default": _qr,
            "aten.lu_unpack.default": _lu_unpack,
        }
    ),
    Decomposition("aten.linalg_cholesky.default", _linalg_cholesky),
    Decomposition("aten.linalg_lu.default", _linalg_lu),
    Decomposition("aten.linalg_lu_factor.default", _linalg_lu_factor),
    Decomposition("aten.ormqr.default", _rotated),
)
