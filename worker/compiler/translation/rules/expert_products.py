"""Products with one matrix for each group of rows.

Experts of transformers models call them by a name of that package's own, which is defined here where
the package is not installed, so that exported programs that call it load.
"""

from __future__ import annotations

import torch

from worker.compiler.translation.rule import Decomposition, Rules
from worker.compiler.translation.untranslatable import UntranslatableError


def _grouped_mm(
    rows: torch.Tensor,
    matrices: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``[t, k]`` with ``[g, k, n]``: rows up to ``offs[0]`` with the first matrix, and so on.

    With few rows, each is multiplied with a copy of its matrix; with more of them than matrices, all rows are
    multiplied with all matrices, and each keeps the product of its own.
    """
    if offs is None or rows.dim() != 2 or matrices.dim() != 3 or bias is not None:
        raise UntranslatableError("groups of other than rows")
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
    """The operator of transformers, where that package did not define it."""
    library = torch.library.Library("transformers", "FRAGMENT")
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        library.impl("grouped_mm_fallback", _grouped_mm, "CPU")
        torch.library.register_fake("transformers::grouped_mm_fallback", _product_of_groups, lib=library)
    return library


_LIBRARY = _define_for_experts()
"""What it defines lives as long as it does."""

RULES: Rules = (
    Decomposition("aten._grouped_mm.default", _grouped_mm),
    Decomposition("transformers.grouped_mm_fallback.default", _grouped_mm),
)
