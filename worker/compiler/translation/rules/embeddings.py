"""Rows of an embedding table, and their sums, means and maxima by bag."""

from __future__ import annotations

import torch
from tvm import relax

from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.rule import Decomposition, Rule, Rules
from worker.compiler.translation.rules.indexing import look_up


def _embedding(
    emit: Emitter, table: relax.Expr, indices: relax.Expr, padding_idx: int, by_frequency: bool, sparse: bool
) -> relax.Expr:
    """The arguments after the indices affect only gradients."""
    return look_up(emit, table, indices, axis=0)


_SUM, _MEAN, _MAX = range(3)
_NORM_GUARD = 1e-7


def _embedding_bag(
    table: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A matrix of ones marks the indices of each bag; its product with the rows gives the sums."""
    starts = offsets[:-1] if include_last_offset else offsets
    position = torch.arange(indices.shape[0], dtype=starts.dtype)
    bag = (position.unsqueeze(1) >= starts.unsqueeze(0)).sum(1) - 1
    inside = bag.unsqueeze(0) == torch.arange(starts.shape[0]).unsqueeze(1)
    if padding_idx >= 0:
        inside = inside & (indices != padding_idx).unsqueeze(0)
    rows = table.index_select(0, indices)
    sizes = inside.sum(1)
    if mode == _MAX:
        largest = torch.where(inside.unsqueeze(2), rows.unsqueeze(0), float("-inf")).amax(1)
        result = torch.where((sizes > 0).unsqueeze(1), largest, 0.0)
    else:
        shares = inside.to(table.dtype)
        if per_sample_weights is not None:
            shares = shares * per_sample_weights
        result = shares @ rows
    if mode == _MEAN:
        result = result / sizes.clamp(min=1).to(table.dtype).unsqueeze(1)
    return result, bag, sizes, sizes


def _renormalized(
    table: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float
) -> torch.Tensor:
    """Rows that are looked up and longer than ``max_norm`` get that length, as in torch."""
    is_read = (torch.arange(table.shape[0]).unsqueeze(1) == indices.flatten().unsqueeze(0)).any(1)
    norm = torch.linalg.vector_norm(table, norm_type, 1)
    factor = torch.where(is_read & (norm > max_norm), max_norm / (norm + _NORM_GUARD), 1.0)
    return table * factor.unsqueeze(1)


RULES: Rules = (
    Rule("aten.embedding.default", _embedding),
    Decomposition("aten.embedding_renorm.default", _renormalized),
    Decomposition("aten._embedding_bag.default", _embedding_bag),
    Decomposition("aten._embedding_bag_forward_only.default", _embedding_bag),
)
