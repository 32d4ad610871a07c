"""Eigenvalues of symmetric matrices, and singular values, by Jacobi rotations.

Each sweep visits every pair of columns (or of rows and columns) and rotates the pair so that their inner
product (or their off-diagonal element) becomes zero; a fixed number of sweeps makes all of them negligible.
Vectors may have other signs than torch's, which depend on its library.

Source: G. Golub and C. Van Loan, "Matrix Computations", 4th ed., sections 8.5 (cyclic Jacobi) and 8.6.3
(one-sided Jacobi).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
from worker.compiler.translation.rule import Rules, rules_of
from worker.compiler.translation.rules.matrix_factorizations import qr

_SWEEPS = 15
"""Convergence is quadratic: ten sweeps suffice for hundreds of columns."""


def _eigh(emit: Emitter, matrix: relax.Expr, triangle: str, compute_v: bool) -> tuple[relax.Expr, relax.Expr]:
    """Ascending eigenvalues and eigenvectors in columns. Only one triangle of the matrix is read."""
    size, _ = matrix_sizes(matrix)
    dtype = dtype_of(matrix)
    results = (Result((size,), dtype), Result((size, size), dtype), Result((size, size), dtype))
    body = partial_named(_symmetric, lower=triangle.upper() == "L")
    values, vectors, _rotated = map_batch(emit, body, [matrix], results)
    return values, vectors if compute_v else emit.full((0,), 0.0, dtype)


def _symmetric(matrix: View, values: View, vectors: View, rotated: View, lower: bool) -> None:
    size, _ = matrix.sizes
    with T.serial(0, size) as i, T.serial(0, size) as j:
        rotated[i, j] = (
            matrix[tirx.max(i, j), tirx.min(i, j)] if lower else matrix[tirx.min(i, j), tirx.max(i, j)]
        )
    set_identity(vectors)
    with _sweeps(size) as (p, q), when(rotated[p, q] != 0):
        difference = Local(rotated[q, q] - rotated[p, p], matrix.dtype)
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
    """Loops over all pairs of columns, several times."""
    with T.serial(0, _SWEEPS), T.serial(0, size) as p, T.serial(p + 1, size) as q:
        yield p, q


def _rotation(difference: Any, twice: Any, dtype: str) -> tuple[Local, Local]:
    """Cosine and sine of the smaller angle with ``tan 2φ = twice / difference`` (section 8.5.2)."""
    ratio = Local(difference / twice, dtype)
    slope = tirx.Select(ratio.value < 0, tirx.const(-1, dtype), tirx.const(1, dtype))
    one = tirx.const(1, dtype)
    tangent = Local(slope / (tirx.abs(ratio.value) + tirx.sqrt(one + ratio.value * ratio.value)), dtype)
    cosine = Local(one / tirx.sqrt(one + tangent.value * tangent.value), dtype)
    return cosine, Local(tangent.value * cosine.value, dtype)


def _turn(matrix: View, here: Any, there: Any, cosine: Local, sine: Local) -> None:
    left, right = Local(matrix[here], matrix.dtype), Local(matrix[there], matrix.dtype)
    matrix[here] = cosine.value * left.value - sine.value * right.value
    matrix[there] = sine.value * left.value + cosine.value * right.value


def _order(values: View, columns: tuple[View, ...], descending: bool) -> None:
    """Selection sort of the values, together with their columns."""
    (size,) = values.sizes
    with T.serial(0, size) as i:
        best = Local(i, "int32")
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
    """``U diag(S) Vh``: V from rotations, U from a QR factorization of the matrix times V."""
    rows, columns = matrix_sizes(matrix)
    if rows < columns:
        left, values, right = _svd(emit, transposed(emit, matrix), full_matrices, compute_uv, driver=driver)
        return transposed(emit, right), values, transposed(emit, left)
    dtype = dtype_of(matrix)
    results = (Result((columns,), dtype), Result((columns, columns), dtype), Result((rows, columns), dtype))
    values, vectors, images = map_batch(emit, _one_sided, [matrix], results)
    left, triangle = qr(emit, images, complete=full_matrices)
    (signed,) = map_batch(emit, _signed, [left, triangle], [Result(matrix_sizes(left), dtype)])
    return signed, values, transposed(emit, vectors)


def _one_sided(matrix: View, values: View, vectors: View, images: View) -> None:
    """Rotate pairs of columns until all are orthogonal: their lengths are the singular values."""
    rows, columns = matrix.sizes
    copy(matrix, images)
    set_identity(vectors)
    with _sweeps(columns) as (p, q):
        first, second, shared = (Local(0.0, matrix.dtype) for _ in range(3))
        with T.serial(0, rows) as i:
            first.set(first.value + images[i, p] * images[i, p])
            second.set(second.value + images[i, q] * images[i, q])
            shared.set(shared.value + images[i, p] * images[i, q])
        with when(shared.value != 0):
            cosine, sine = _rotation(second.value - first.value, shared.value * 2, matrix.dtype)
            with T.serial(0, rows) as i:
                _turn(images, (i, p), (i, q), cosine, sine)
            with T.serial(0, columns) as i:
                _turn(vectors, (i, p), (i, q), cosine, sine)
    with T.serial(0, columns) as j:
        total = Local(0.0, matrix.dtype)
        with T.serial(0, rows) as i:
            total.set(total.value + images[i, j] * images[i, j])
        values[j] = tirx.sqrt(total.value)
    _order(values, (vectors, images), descending=True)


def _signed(left: View, triangle: View, signed: View) -> None:
    """The columns of Q, times the signs of R's diagonal, so that the singular values are positive."""
    rows, columns = left.sizes
    _, inner = triangle.sizes
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        negative = tirx.if_then_else(
            j < inner, triangle[tirx.min(j, inner - 1), tirx.min(j, inner - 1)] < 0, tirx.const(False, "bool")
        )
        signed[i, j] = tirx.Select(negative, -left[i, j], left[i, j])


RULES: Rules = rules_of({"aten._linalg_eigh.default": _eigh, "aten._linalg_svd.default": _svd})
