"""Inverses, determinants and solutions, in terms of the factors of matrices."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from worker.compiler.translation.rule import Decomposition, Rules


def _inverse(matrix: Tensor) -> Tensor:
    return _inverse_ex(matrix)[0]


def _inverse_ex(matrix: Tensor, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    factors, pivots, info = torch.linalg.lu_factor_ex(matrix)
    ones = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand_as(matrix)
    return torch.linalg.lu_solve(factors, pivots, ones), info


def _inverse_of_tensor(tensor: Tensor, ind: int = 2) -> Tensor:
    """Its first axes are the rows of a matrix, the others its columns."""
    rows, columns = tensor.shape[:ind], tensor.shape[ind:]
    inverse = torch.linalg.inv(tensor.reshape(prod(rows), prod(columns)))
    return inverse.reshape(*columns, *rows)


def _solve(matrix: Tensor, right: Tensor, *, left: bool = True) -> Tensor:
    return _solve_ex(matrix, right, left=left)[0]


def _solve_ex(
    matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A batch of vectors is one where the shapes say so; else both batches broadcast."""
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
    """1 for an even number of exchanges of rows, else -1."""
    places = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    return 1 - 2 * ((pivots != places).sum(-1) % 2)


def _lu(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix, pivot=pivot)
    permutation, lower, upper = torch.lu_unpack(factors, pivots)
    return permutation, lower, upper


def _lu_factor(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix, pivot=pivot)
    return factors, pivots


def _cholesky(matrix: Tensor, *, upper: bool = False) -> Tensor:
    return torch.linalg.cholesky_ex(matrix, upper=upper)[0]


def _cholesky_solve(right: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    halfway = torch.linalg.solve_triangular(lower, right, upper=False)
    return torch.linalg.solve_triangular(lower.mT, halfway, upper=True)


def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    ones = torch.eye(factor.shape[-1], dtype=factor.dtype).expand_as(factor)
    return _cholesky_solve(ones, factor, upper)


def _rotated(
    reflections: Tensor, scales: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """The product with all columns of what the reflections make."""
    rows, columns = reflections.shape[-2:]
    square = torch.nn.functional.pad(reflections, (0, rows - columns))
    rotation = torch.linalg.householder_product(square, scales)
    turned = rotation.mT if transpose else rotation
    return turned @ other if left else other @ turned


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
    """Singular values of less than the bound count as none. Of a Hermitian one the lower triangle counts."""
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
    "linalg_cholesky.default": _cholesky,
    "linalg_inv.default": _inverse,
    "linalg_inv_ex.default": _inverse_ex,
    "linalg_lu.default": _lu,
    "linalg_lu_factor.default": _lu_factor,
    "linalg_pinv.atol_rtol_tensor": _pseudo_inverse,
    "linalg_solve.default": _solve,
    "linalg_tensorinv.default": _inverse_of_tensor,
    "ormqr.default": _rotated,
    "triangular_solve.default": _triangular_solve,
}

RULES: Rules = tuple(Decomposition(f"aten.{name}", compute) for name, compute in _DECOMPOSITIONS.items())
