"""Solutions of linear systems, inverses and determinants, from factored matrices.

A singular matrix gives infinities or NaN, where torch raises.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from tvm import relax
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.batch_loops import (
    Result,
    View,
    copy,
    map_batch,
    matrix_sizes,
    partial_named,
    swap,
    transposed,
    when,
)
from worker.compiler.translation.emitter import Emitter, dtype_of, shape_of
from worker.compiler.translation.rule import Decomposition, Rule, Rules


def _lu_solve(
    emit: Emitter, factors: relax.Expr, pivots: relax.Expr, right: relax.Expr, *, left: bool, adjoint: bool
) -> relax.Expr:
    """Solve ``A X = B``, or ``X A = B`` by transposing both sides."""
    batch = emit.shape[:-2]
    columns = right if left else transposed(emit, right)
    body = _substitute
    if adjoint == left:
        factors, body = transposed(emit, factors), _substitute_transposed
    operands = [
        emit(relax.op.broadcast_to(one, (*batch, *shape_of(one)[-rank:])))
        for one, rank in ((factors, 2), (pivots, 1), (columns, 2))
    ]
    (solution,) = map_batch(emit, body, operands, [Result(matrix_sizes(columns), dtype_of(right))])
    return solution if left else transposed(emit, solution)


def _substitute(factors: View, pivots: View, right: View, solution: View) -> None:
    copy(right, solution)
    with T.serial(0, pivots.sizes[0]) as i:
        _exchange(pivots, solution, i)
    _substitute_rows(factors, solution, upper=False, unit=True)
    _substitute_rows(factors, solution, upper=True, unit=False)


def _substitute_transposed(factors: View, pivots: View, right: View, solution: View) -> None:
    """Solve with the transposed factors: the lower one has the pivots, rows are exchanged at the end."""
    copy(right, solution)
    _substitute_rows(factors, solution, upper=False, unit=False)
    _substitute_rows(factors, solution, upper=True, unit=True)
    with T.serial(0, pivots.sizes[0]) as step:
        _exchange(pivots, solution, pivots.sizes[0] - 1 - step)


def _exchange(pivots: View, solution: View, i: Any) -> None:
    with when(pivots[i] - 1 != i), T.serial(0, solution.sizes[1]) as c:
        swap((solution, (i, c)), (solution, (pivots[i] - 1, c)))


def _substitute_rows(matrix: View, solution: View, upper: bool, unit: bool) -> None:
    """Forward or back substitution, in place.

    Subtracts from each row the contributions of the rows solved before it, then divides by the diagonal.
    An upper triangle is solved from the last row.

    Source: G. Golub and C. Van Loan, "Matrix Computations", 4th ed., algorithms 3.1.1 and 3.1.2.
    """
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
    """Solve ``A X = B``, or ``X A = B`` as ``Aᵀ Xᵀ = Bᵀ``."""
    if not left:
        matrix, right, upper = transposed(emit, matrix), transposed(emit, right), not upper
    batch = emit.shape[:-2]
    matrix, right = (
        emit(relax.op.broadcast_to(one, (*batch, *matrix_sizes(one)))) for one in (matrix, right)
    )
    result = Result(matrix_sizes(right), dtype_of(right))
    body = partial_named(_triangular, upper=upper, unit=unitriangular)
    (solution,) = map_batch(emit, body, [matrix, right], [result])
    return solution if left else transposed(emit, solution)


def _triangular(matrix: View, right: View, solution: View, upper: bool, unit: bool) -> None:
    copy(right, solution)
    _substitute_rows(matrix, solution, upper, unit)


def _inverse(matrix: Tensor) -> Tensor:
    return _inverse_ex(matrix)[0]


def _inverse_ex(matrix: Tensor, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    factors, pivots, info = torch.linalg.lu_factor_ex(matrix)
    ones = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand_as(matrix)
    return torch.linalg.lu_solve(factors, pivots, ones), info


def _inverse_of_tensor(tensor: Tensor, ind: int = 2) -> Tensor:
    """Invert as a matrix: the first ``ind`` axes are its rows, the others its columns."""
    rows, columns = tensor.shape[:ind], tensor.shape[ind:]
    inverse = torch.linalg.inv(tensor.reshape(prod(rows), prod(columns)))
    return inverse.reshape(*columns, *rows)


def _solve(matrix: Tensor, right: Tensor, *, left: bool = True) -> Tensor:
    return _solve_ex(matrix, right, left=left)[0]


def _solve_ex(
    matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``right`` is a batch of vectors if its shape fits one; else both batches broadcast."""
    is_vector = right.dim() == 1 or right.shape == matrix.shape[:-1]
    columns = right.unsqueeze(-1) if is_vector else right
    if not left:
        matrix, columns = matrix.mT, columns.mT
    batch = torch.broadcast_shapes(matrix.shape[:-2], columns.shape[:-2])
    factors, pivots, info = torch.linalg.lu_factor_ex(matrix.expand(*batch, *matrix.shape[-2:]))
    solution = torch.linalg.lu_solve(factors, pivots, columns.expand(*batch, *columns.shape[-2:]))
    if not left:
        solution = solution.mT
    return (solution.squeeze(-1) if is_vector else solution), factors, pivots, info


def _determinant(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix)
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    return diagonal.prod(-1) * _sign_of(pivots).to(matrix.dtype), factors, pivots


def _log_determinant(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix)
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sign().prod(-1) * _sign_of(pivots).to(matrix.dtype)
    return sign, diagonal.abs().log().sum(-1), factors, pivots


def _sign_of(pivots: Tensor) -> Tensor:
    """1 for an even number of row exchanges, else -1."""
    places = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    return 1 - 2 * ((pivots != places).sum(-1) % 2)


def _cholesky_solve(right: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    halfway = torch.linalg.solve_triangular(lower, right, upper=False)
    return torch.linalg.solve_triangular(lower.mT, halfway, upper=True)


def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    ones = torch.eye(factor.shape[-1], dtype=factor.dtype).expand_as(factor)
    return _cholesky_solve(ones, factor, upper)


def _triangular_solve(
    right: Tensor, matrix: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    given = matrix.mT if transpose else matrix
    solution = torch.linalg.solve_triangular(
        given, right, upper=upper != transpose, unitriangular=unitriangular
    )
    return solution, matrix.expand(*solution.shape[:-2], *matrix.shape[-2:])


def _pseudo_inverse(
    matrix: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """Singular values below the tolerance count as zero. A Hermitian matrix is its lower triangle."""
    if hermitian:
        matrix = matrix.tril() + matrix.tril(-1).mT
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    largest = values.amax(-1, keepdim=True)
    floor = torch.zeros((), dtype=values.dtype) if atol is None else atol.to(values.dtype).unsqueeze(-1)
    share = max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps
    if rtol is not None:
        relative = rtol.to(values.dtype).unsqueeze(-1) * largest
    else:
        relative = largest * share if atol is None else torch.where(floor > 0, 0.0, largest * share)
    counts = values > torch.maximum(floor, relative)
    inverses = torch.where(counts, 1 / torch.where(counts, values, 1.0), 0.0)
    return (right.mT * inverses.unsqueeze(-2)) @ left.mT


_DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "_linalg_det.default": _determinant,
    "_linalg_slogdet.default": _log_determinant,
    "_linalg_solve_ex.default": _solve_ex,
    "cholesky_inverse.default": _cholesky_inverse,
    "cholesky_solve.default": _cholesky_solve,
    "inverse.default": _inverse,
    "linalg_inv.default": _inverse,
    "linalg_inv_ex.default": _inverse_ex,
    "linalg_pinv.atol_rtol_tensor": _pseudo_inverse,
    "linalg_solve.default": _solve,
    "linalg_tensorinv.default": _inverse_of_tensor,
    "triangular_solve.default": _triangular_solve,
}

RULES: Rules = (
    Rule("aten.linalg_lu_solve.default", _lu_solve),
    Rule("aten.linalg_solve_triangular.default", _solve_triangular),
    *(Decomposition(f"aten.{name}", compute) for name, compute in _DECOMPOSITIONS.items()),
)
