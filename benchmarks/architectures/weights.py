"""Random weights that make every part of a model affect its output.

Default initializations often multiply residual branches by 0 or 1e-6, which hides errors. Batch norms without
statistics let values grow from layer to layer until outputs cannot be compared.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.architectures.entry import Inputs

SMALL = 0.1
BATCH = 16
"""With fewer, the variance of channels with a few pixels is meaningless."""


def enliven(model: nn.Module) -> None:
    """Randomize constant parameters.

    Zeros stay around 0, tiny values around ``SMALL``, other values around their old value.
    """
    for parameter in model.parameters():
        if (
            parameter.is_floating_point()
            and parameter.numel()
            and bool((parameter == parameter.view(-1)[0]).all())
        ):
            _vary(parameter.data, float(parameter.view(-1)[0]))


def _vary(values: torch.Tensor, constant: float) -> None:
    if constant == 0:
        values.normal_(0, SMALL)
    else:
        values.uniform_(0.75, 1.25).mul_(max(abs(constant), SMALL) * (1 if constant > 0 else -1))


def calibrate(model: nn.Module, inputs: Inputs) -> None:
    """Set the statistics of batch norms from a random batch, in place."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    model(*map(_batch, inputs))
    for norm in norms:
        norm.momentum = 0.1
        norm.eval()


def _batch(tensor: torch.Tensor) -> torch.Tensor:
    repeated = tensor.repeat(BATCH, *[1] * (tensor.dim() - 1))
    return torch.randn_like(repeated) if tensor.is_floating_point() else repeated
