"""Losses of which torch's decomposition computes something else than torch."""

from __future__ import annotations

import torch
from torch import Tensor

from worker.compiler.translation.rule import Decomposition, Rules

_NONE, _MEAN = 0, 1
"""torch's ``reduction``; 2 sums up."""


def _multilabel_margin(data: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """``Σ max(0, 1 - x[label] + x[other]) / n`` over a row's labels, which end before the first -1.

    torch's decomposition counts the places behind that end as the label 0.
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


RULES: Rules = (Decomposition("aten.multilabel_margin_loss_forward.default", _multilabel_margin),)
