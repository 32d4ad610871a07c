"""Factors of matrices, and systems of triangular ones, as LAPACK computes them.

Where torch raises at a matrix that has no factors, these give infinities or NaN, and say so in ``info``.

Source: G. Golub and C. Van Loan, "Matrix Computations", 4th ed., algorithms 3.4.1 (LU with pivots), 4.2.1
(Cholesky), 5.1.1 and 5.2.1 (Householder's QR).
"""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.emitter import Emitter, dtype_of, fixed, shape_of
from worker.compiler.translation.matrix_loops import (
    Cell,
    Part,
    Result,
    copy,
    each_matrix,
    partial_named,
    set_identity,
    swap,
    when,
)
from worker.compiler.translation.rule import Rules, rules_of


def sizes_of(matrix: relax.Expr) -> tuple[int, int]:
    """Rows and columns."""
    rows, columns = fixed(shape_of(matrix)[-2:], "matrices")
    return rows, columns


def transposed(emit: Emitter, matrix: relax.Expr) -> relax.Expr:
    """Rows and columns exchanged."""
    rank = len(shape_of(matrix))
    return emit(relax.op.permute_dims(matrix, [*range(rank - 2), rank - 1, rank - 2]))


def _lu_factor(emit: Emitter, matrix: relax.Expr, *, pivot: bool) -> tuple[relax.Expr, ...]:
    rows, columns = sizes_of(matrix)
    results = (
        Result((rows, columns), dtype_of(matrix)),
        Result((min(rows, columns),), "int32"),
        Result((), "int32"),
    )
    return tuple(each_matrix(emit, partial_named(_lu, pivot=pivot), [matrix], results))


def _lu(matrix: Part, factors: Part, pivots: Part, info: Part, pivot: bool) -> None:
    """Both triangles in one matrix; pivots count from 1."""
    rows, columns = matrix.sizes
    copy(matrix, factors)
    info[()] = 0
    with T.serial(0, min(rows, columns)) as j:
        chosen = _largest_below(factors, j, rows) if pivot else Cell(j, "int32")
        pivots[j] = chosen.value + 1
        with when(chosen.value != j), T.serial(0, columns) as c:
            swap((factors, (j, c)), (factors, (chosen.value, c)))
        with when(tirx.all(factors[j, j] == 0, info[()] == 0)):
            info[()] = j + 1
        with when(factors[j, j] != 0), T.serial(j + 1, rows) as i:
            factors[i, j] = factors[i, j] / factors[j, j]
            with T.serial(j + 1, columns) as c:
                factors[i, c] = factors[i, c] - factors[i, j] * factors[j, c]


def _largest_below(matrix: Part, column: Any, rows: int) -> Cell:
    place, size = Cell(column, "int32"), Cell(tirx.abs(matrix[column, column]), matrix.dtype)
    with T.serial(column + 1, rows) as i, when(tirx.abs(matrix[i, column]) > size.value):
        size.set(tirx.abs(matrix[i, column]))
        place.set(i)
    return place


def _lu_unpack(
    emit: Emitter, factors: relax.Expr, pivots: relax.Expr, unpack_data: bool, unpack_pivots: bool
) -> tuple[relax.Expr, ...]:
    rows, columns = sizes_of(factors)
    inner, dtype = min(rows, columns), dtype_of(factors)
    results = (
        Result((rows, rows), dtype),
        Result((rows, inner), dtype),
        Result((inner, columns), dtype),
    )
    return tuple(each_matrix(emit, _unpack, [factors, pivots], results))


def _unpack(factors: Part, pivots: Part, permutation: Part, lower: Part, upper: Part) -> None:
    """``permutation @ lower @ upper`` is what was factored."""
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


def _lu_solve(
    emit: Emitter, factors: relax.Expr, pivots: relax.Expr, right: relax.Expr, *, left: bool, adjoint: bool
) -> relax.Expr:
    """Of ``A X = B``. ``X A = B`` is the system of both transposed."""
    batch = emit.shape[:-2]
    columns = right if left else transposed(emit, right)
    body = _substitute
    if adjoint == left:
        factors, body = transposed(emit, factors), _substitute_transposed
    operands = [
        emit(relax.op.broadcast_to(one, (*batch, *shape_of(one)[-rank:])))
        for one, rank in ((factors, 2), (pivots, 1), (columns, 2))
    ]
    (solution,) = each_matrix(emit, body, operands, [Result(sizes_of(columns), dtype_of(right))])
    return solution if left else transposed(emit, solution)


def _substitute(factors: Part, pivots: Part, right: Part, solution: Part) -> None:
    copy(right, solution)
    with T.serial(0, pivots.sizes[0]) as i:
        _exchange(pivots, solution, i)
    _solve(factors, solution, upper=False, unit=True)
    _solve(factors, solution, upper=True, unit=False)


def _substitute_transposed(factors: Part, pivots: Part, right: Part, solution: Part) -> None:
    """The factors are transposed too: the lower one is divided by, and rows are exchanged at the end."""
    copy(right, solution)
    _solve(factors, solution, upper=False, unit=False)
    _solve(factors, solution, upper=True, unit=True)
    with T.serial(0, pivots.sizes[0]) as step:
        _exchange(pivots, solution, pivots.sizes[0] - 1 - step)


def _exchange(pivots: Part, solution: Part, i: Any) -> None:
    with when(pivots[i] - 1 != i), T.serial(0, solution.sizes[1]) as c:
        swap((solution, (i, c)), (solution, (pivots[i] - 1, c)))


def _solve(matrix: Part, solution: Part, upper: bool, unit: bool) -> None:
    """In place: each row less what the rows before it contribute, from the end in an upper triangle."""
    size, columns = solution.sizes
    with T.serial(0, size) as step:
        i = size - 1 - step if upper else step
        with T.serial(0, step) as earlier:
            j = size - 1 - earlier if upper else earlier
            with T.serial(0, columns) as c:
                solution[i, c] = solution[i, c] - matrix[i, j] * solution[j, c]
        if not unit:
            with T.serial(0, columns) as c:
                solution[i, c] = solution[i, c] / matrix[i, i]


def _solve_triangular(
    emit: Emitter, matrix: relax.Expr, right: relax.Expr, *, upper: bool, left: bool, unitriangular: bool
) -> relax.Expr:
    """``A X = B``, or ``X A = B`` by way of ``Aᵀ Xᵀ = Bᵀ``."""
    if not left:
        matrix, right, upper = transposed(emit, matrix), transposed(emit, right), not upper
    batch = emit.shape[:-2]
    matrix, right = (emit(relax.op.broadcast_to(one, (*batch, *sizes_of(one)))) for one in (matrix, right))
    result = Result(sizes_of(right), dtype_of(right))
    body = partial_named(_triangular, upper=upper, unit=unitriangular)
    (solution,) = each_matrix(emit, body, [matrix, right], [result])
    return solution if left else transposed(emit, solution)


def _triangular(matrix: Part, right: Part, solution: Part, upper: bool, unit: bool) -> None:
    copy(right, solution)
    _solve(matrix, solution, upper, unit)


def _cholesky(emit: Emitter, matrix: relax.Expr, *, upper: bool) -> tuple[relax.Expr, relax.Expr]:
    """Of the lower triangle, or of the upper one and as such."""
    size, _ = sizes_of(matrix)
    source = transposed(emit, matrix) if upper else matrix
    results = (Result((size, size), dtype_of(matrix)), Result((), "int32"))
    factor, info = each_matrix(emit, _cholesky_factor, [source], results)
    return (transposed(emit, factor) if upper else factor), info


def _cholesky_only(emit: Emitter, matrix: relax.Expr, upper: bool) -> relax.Expr:
    return _cholesky(emit, matrix, upper=upper)[0]


def _cholesky_factor(matrix: Part, factor: Part, info: Part) -> None:
    """``info`` is the order of the first minor that is not positive."""
    size, _ = matrix.sizes
    info[()] = 0
    with T.serial(0, size) as j:
        with T.serial(0, j) as i:
            factor[i, j] = 0.0
        rest = Cell(matrix[j, j], matrix.dtype)
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
    """An orthogonal matrix and an upper triangle, whose product is the matrix."""
    rows, columns = sizes_of(matrix)
    inner, dtype = rows if complete else min(rows, columns), dtype_of(matrix)
    reflectors, scales = _geqrf(emit, matrix)
    (orthogonal,) = each_matrix(emit, _reflected, [reflectors, scales], [Result((rows, inner), dtype)])
    (triangle,) = each_matrix(emit, _upper, [reflectors], [Result((inner, columns), dtype)])
    return orthogonal, triangle


def _geqrf(emit: Emitter, matrix: relax.Expr) -> tuple[relax.Expr, ...]:
    rows, columns = sizes_of(matrix)
    dtype = dtype_of(matrix)
    results = (Result((rows, columns), dtype), Result((min(rows, columns),), dtype))
    return tuple(each_matrix(emit, _reflectors, [matrix], results))


def _reflectors(matrix: Part, packed: Part, scales: Part) -> None:
    """The triangle, and below its diagonal the vectors v, which start with 1, of ``I - scale v vᵀ``."""
    rows, columns = matrix.sizes
    copy(matrix, packed)
    with T.serial(0, min(rows, columns)) as j:
        below, first = Cell(0.0, matrix.dtype), Cell(packed[j, j], matrix.dtype)
        with T.serial(j + 1, rows) as i:
            below.set(below.value + packed[i, j] * packed[i, j])
        scales[j] = 0.0
        with when(below.value > 0):
            length = Cell(tirx.sqrt(first.value * first.value + below.value), matrix.dtype)
            last = Cell(tirx.Select(first.value > 0, -length.value, length.value), matrix.dtype)
            scales[j] = (last.value - first.value) / last.value
            with T.serial(j + 1, rows) as i:
                packed[i, j] = packed[i, j] / (first.value - last.value)
            packed[j, j] = last.value
        _reflect(packed, j, scales[j], packed, j + 1)


def _reflect(vectors: Part, j: Any, scale: Any, target: Part, start: Any) -> None:
    """The reflection by column ``j`` of the vectors, applied to the target's columns from ``start`` on."""
    rows, columns = target.sizes
    with T.serial(start, columns) as c:
        total = Cell(target[j, c], target.dtype)
        with T.serial(j + 1, rows) as i:
            total.set(total.value + vectors[i, j] * target[i, c])
        total.set(total.value * scale)
        target[j, c] = target[j, c] - total.value
        with T.serial(j + 1, rows) as i:
            target[i, c] = target[i, c] - vectors[i, j] * total.value


def _reflected(vectors: Part, scales: Part, orthogonal: Part) -> None:
    """The product of all reflections, from the last one on."""
    set_identity(orthogonal)
    (count,) = scales.sizes
    with T.serial(0, count) as step:
        j = count - 1 - step
        _reflect(vectors, j, scales[j], orthogonal, 0)


def _upper(packed: Part, triangle: Part) -> None:
    rows, columns = triangle.sizes
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        triangle[i, j] = tirx.if_then_else(i <= j, packed[i, j], tirx.const(0, packed.dtype))


def _householder_product(emit: Emitter, vectors: relax.Expr, scales: relax.Expr) -> relax.Expr:
    result = Result(sizes_of(vectors), dtype_of(vectors))
    (orthogonal,) = each_matrix(emit, _reflected, [vectors, scales], [result])
    return orthogonal


RULES: Rules = rules_of(
    {
        "aten.cholesky.default": _cholesky_only,
        "aten.geqrf.default": _geqrf,
        "aten.linalg_cholesky_ex.default": _cholesky,
        "aten.linalg_householder_product.default": _householder_product,
        "aten.linalg_lu_factor_ex.default": _lu_factor,
        "aten.linalg_lu_solve.default": _lu_solve,
        "aten.linalg_qr.default": _qr,
        "aten.linalg_solve_triangular.default": _solve_triangular,
        "aten.lu_unpack.default": _lu_unpack,
    }
)
