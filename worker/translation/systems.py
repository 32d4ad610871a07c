"""Triangular systems, and products with one matrix for each group of rows."""

from __future__ import annotations

import torch

from worker.translation.rule import Decomposition, Rules


def _solve_triangular(
    matrix: torch.Tensor,
    right: torch.Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> torch.Tensor:
    """Row by row: each unknown from those before it; an upper triangle is a lower one from the end."""
    if not left:
        return _solve_triangular(matrix.mT, right.mT, upper=not upper, unitriangular=unitriangular).mT
    if upper:
        flipped = matrix.flip((-2, -1)), right.flip(-2)
        return _solve_triangular(*flipped, upper=False, unitriangular=unitriangular).flip(-2)
    rows: list[torch.Tensor] = []
    for place in range(matrix.shape[-1]):
        row = right[..., place : place + 1, :]
        if rows:
            row = row - matrix[..., place : place + 1, :place] @ torch.cat(rows, -2)
        rows.append(row if unitriangular else row / matrix[..., place : place + 1, place : place + 1])
    return torch.cat(rows, -2)


def _grouped_mm(
    rows: torch.Tensor,
    matrices: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``[t, k]`` with ``[g, k, n]``: rows up to ``offs[0]`` with the first matrix, and so on.

    All rows are multiplied with all matrices; each keeps the product of its own.
    """
    if offs is None or rows.dim() != 2 or matrices.dim() != 3 or bias is not None:
        raise NotImplementedError("groups of other than rows")
    group = (torch.arange(rows.shape[0]).unsqueeze(1) >= offs.unsqueeze(0)).sum(1)
    products = rows.unsqueeze(0) @ matrices
    own = group.unsqueeze(0) == torch.arange(matrices.shape[0]).unsqueeze(1)
    chosen = torch.where(own.unsqueeze(2), products, 0.0).sum(0)
    return chosen.to(rows.dtype if out_dtype is None else out_dtype)


RULES: Rules = (
    Decomposition("aten.linalg_solve_triangular.default", _solve_triangular),
    Decomposition("aten._grouped_mm.default", _grouped_mm),
)
