"""Distances between tensors and rows, and losses that torch's own decomposition gets wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from worker.compiler.translation.rule import Decomposition, Rules

_NONE, _MEAN = 0, 1
"""Values of torch's ``reduction``; 2 is the sum."""


def _multilabel_margin(data: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """``Σ max(0, 1 - x[label] + x[other]) / n`` over a row's labels, which end at the first -1.

    torch's own decomposition counts the entries after that end as label 0.
    """
    rows, labels = torch.atleast_2d(data), torch.atleast_2d(target)
    count = rows.shape[1]
    is_label = (labels < 0).to(torch.int64).cumsum(-1) == 0
    known = torch.where(is_label, labels, 0)
    is_named = ((known.unsqueeze(-1) == torch.arange(count)) & is_label.unsqueeze(-1)).any(1)
    margins = (1 - rows.gather(-1, known).unsqueeze(-1) + rows.unsqueeze(1)).clamp_min(0)
    counted = is_label.unsqueeze(-1) & ~is_named.unsqueeze(1)
    losses = torch.where(counted, margins, 0).sum((1, 2)) / count
    named = is_named.to(data.dtype).reshape(target.shape)
    if reduction == _NONE:
        return losses.reshape(data.shape[:-1]), named
    return (losses.mean() if reduction == _MEAN else losses.sum()), named


def _cdist(left: torch.Tensor, right: torch.Tensor, p: float, compute_mode: int | None) -> torch.Tensor:
    return torch.linalg.vector_norm(left.unsqueeze(-2) - right.unsqueeze(-3), p, -1)


def _pdist(rows: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """The distance between each row and every later row."""
    count = rows.shape[0]
    first, second = torch.triu_indices(count, count, 1, device=rows.device)
    return torch.linalg.vector_norm(rows[first] - rows[second], p, -1)


def _distance(left: Tensor, right: Tensor, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(left - right, p)


RULES: Rules = (
    Decomposition("aten._cdist_forward.default", _cdist),
    Decomposition("aten._pdist_forward.default", _pdist),
    Decomposition("aten.dist.default", _distance),
    Decomposition("aten.multilabel_margin_loss_forward.default", _multilabel_margin),
)
