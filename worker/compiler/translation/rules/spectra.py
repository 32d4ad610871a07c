"""Eigenvalues of symmetric matrices, and singular values, by Jacobi's rotations.

Vectors are right but for their signs, which torch's library chooses otherwise: what does not depend on those
is as in torch.

Source: G. Golub and C. Van Loan, "Matrix Computations", 4th ed., sections 8.5 and 8.6.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.emitter import Emitter, dtype_of
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
from worker.compiler.translation.rules.factorizations import qr, sizes_of, transposed

_SWEEPS = 15
"""Over all pairs of columns: the angles shrink quadratically, ten sweeps do for hundreds of columns."""


def _eigh(emit: Emitter, matrix: relax.Expr, triangle: str, compute_v: bool) -> tuple[relax.Expr, relax.Expr]:
    """Eigenvalues, ascending, and eigenvectors in columns, of the matrix that a triangle stands for."""
    size, _ = sizes_of(matrix)
    dtype = dtype_of(matrix)
    results = (Result((size,), dtype), Result((size, size), dtype), Result((size, size), dtype))
    body = partial_named(_symmetric, lower=triangle.upper() == "L")
    values, vectors, _rotated = each_matrix(emit, body, [matrix], results)
    return values, vectors if compute_v else emit.full((0,), 0.0, dtype)


def _symmetric(matrix: Part, values: Part, vectors: Part, rotated: Part, lower: bool) -> None:
    size, _ = matrix.sizes
    with T.serial(0, size) as i, T.serial(0, size) as j:
        rotated[i, j] = (
            matrix[tirx.max(i, j), tirx.min(i, j)] if lower else matrix[tirx.min(i, j), tirx.max(i, j)]
        )
    set_identity(vectors)
    with _sweeps(size) as (p, q), when(rotated[p, q] != 0):
        difference = Cell(rotated[q, q] - rotated[p, p], matrix.dtype)
        cosine, sine = _rotation(difference.value, rotated[p, q] * 2, matrix.dtype)
        with T.serial(0, size) as k:
            _turn(rotated, (k, p), (k, q), cosine, sine)
        with T.serial(0, size) as k:
            _turn(rotated, (p, k), (q, k), cosine, sine)
        with T.serial(0, size) as k:
            _turn(vectors, (k, p), (k, q), cosine, sine)
    with T.serial(0, size) as i:
        values[i] = rotated[i, i]
    _order(values, (vectors,), descending=False)


@contextmanager
def _sweeps(size: int) -> Iterator[tuple[Any, Any]]:
    """All pairs of columns, several times."""
    with T.serial(0, _SWEEPS), T.serial(0, size) as p, T.serial(p + 1, size) as q:
        yield p, q


def _rotation(difference: Any, twice: Any, dtype: str) -> tuple[Cell, Cell]:
    """The smaller angle with ``tan 2φ = twice / difference``."""
    ratio = Cell(difference / twice, dtype)
    slope = tirx.Select(ratio.value < 0, tirx.const(-1, dtype), tirx.const(1, dtype))
    one = tirx.const(1, dtype)
    tangent = Cell(slope / (tirx.abs(ratio.value) + tirx.sqrt(one + ratio.value * ratio.value)), dtype)
    cosine = Cell(one / tirx.sqrt(one + tangent.value * tangent.value), dtype)
    return cosine, Cell(tangent.value * cosine.value, dtype)


def _turn(matrix: Part, here: Any, there: Any, cosine: Cell, sine: Cell) -> None:
    ours, theirs = Cell(matrix[here], matrix.dtype), Cell(matrix[there], matrix.dtype)
    matrix[here] = cosine.value * ours.value - sine.value * theirs.value
    matrix[there] = sine.value * ours.value + cosine.value * theirs.value


def _order(values: Part, columns: tuple[Part, ...], descending: bool) -> None:
    """By selection, the values with their columns."""
    (size,) = values.sizes
    with T.serial(0, size) as i:
        best = Cell(i, "int32")
        with T.serial(i + 1, size) as j:
            left, right = values[j], values[best.value]
            with when(left > right if descending else left < right):
                best.set(j)
        with when(best.value != i):
            swap((values, (i,)), (values, (best.value,)))
            for part in columns:
                with T.serial(0, part.sizes[0]) as k:
                    swap((part, (k, i)), (part, (k, best.value)))


def _svd(
    emit: Emitter, matrix: relax.Expr, full_matrices: bool, compute_uv: bool, *, driver: str | None
) -> tuple[relax.Expr, ...]:
    """``U diag(S) Vh``: right vectors by rotations, left ones by QR of what the matrix makes of those."""
    rows, columns = sizes_of(matrix)
    if rows < columns:
        left, values, right = _svd(emit, transposed(emit, matrix), full_matrices, compute_uv, driver=driver)
        return transposed(emit, right), values, transposed(emit, left)
    dtype = dtype_of(matrix)
    results = (Result((columns,), dtype), Result((columns, columns), dtype), Result((rows, columns), dtype))
    values, vectors, images = each_matrix(emit, _one_sided, [matrix], results)
    left, triangle = qr(emit, images, complete=full_matrices)
    (signed,) = each_matrix(emit, _signed, [left, triangle], [Result(sizes_of(left), dtype)])
    return signed, values, transposed(emit, vectors)


def _one_sided(matrix: Part, values: Part, vectors: Part, images: Part) -> None:
    """Columns are turned until they are orthogonal: their lengths are the singular values."""
    rows, columns = matrix.sizes
    copy(matrix, images)
    set_identity(vectors)
    with _sweeps(columns) as (p, q):
        ours, theirs, shared = (Cell(0.0, matrix.dtype) for _ in range(3))
        with T.serial(0, rows) as i:
            ours.set(ours.value + images[i, p] * images[i, p])
            theirs.set(theirs.value + images[i, q] * images[i, q])
            shared.set(shared.value + images[i, p] * images[i, q])
        with when(shared.value != 0):
            cosine, sine = _rotation(theirs.value - ours.value, shared.value * 2, matrix.dtype)
            with T.serial(0, rows) as i:
                _turn(images, (i, p), (i, q), cosine, sine)
            with T.serial(0, columns) as i:
                _turn(vectors, (i, p), (i, q), cosine, sine)
    with T.serial(0, columns) as j:
        total = Cell(0.0, matrix.dtype)
        with T.serial(0, rows) as i:
            total.set(total.value + images[i, j] * images[i, j])
        values[j] = tirx.sqrt(total.value)
    _order(values, (vectors, images), descending=True)


def _signed(left: Part, triangle: Part, signed: Part) -> None:
    """The columns of Q with the signs of R's diagonal, which is the singular values but for those."""
    rows, columns = left.sizes
    _, inner = triangle.sizes
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        negative = tirx.if_then_else(
            j < inner, triangle[tirx.min(j, inner - 1), tirx.min(j, inner - 1)] < 0, tirx.const(False, "bool")
        )
        signed[i, j] = tirx.Select(negative, -left[i, j], left[i, j])


RULES: Rules = rules_of({"aten._linalg_eigh.default": _eigh, "aten._linalg_svd.default": _svd})
