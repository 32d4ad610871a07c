"""Weights: trained ones from ``examples/data``, and seeded random ones."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

DATA = Path(__file__).resolve().parents[1] / "data"


def load_weights(module: nn.Module, file: str, names: dict[str, str]) -> nn.Module:
    """Fill a module from an ``.npz``.

    Args:
        module: the module to fill; it is returned in evaluation mode.
        file: a file in ``examples/data``.
        names: the array's name for each entry of the module's state.
    """
    with np.load(DATA / file, allow_pickle=False) as arrays:
        state = {entry: torch.from_numpy(arrays[name]) for entry, name in names.items()}
    module.load_state_dict(state)
    return module.eval()


def randomize_batch_norms(module: nn.Module, seed: int) -> nn.Module:
    """Randomize every batch norm's statistics and affine parameters, so that folding has an effect.

    Returns the module in evaluation mode.
    """
    generator = torch.Generator().manual_seed(seed)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            assert norm.running_mean is not None and norm.running_var is not None
            norm.running_mean.normal_(0.0, 0.1, generator=generator)
            norm.running_var.uniform_(0.5, 1.5, generator=generator)
            nn.init.uniform_(norm.weight, 0.5, 1.5, generator=generator)
            nn.init.normal_(norm.bias, 0.0, 0.1, generator=generator)
    return module.eval()
