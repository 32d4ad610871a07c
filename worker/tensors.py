"""Converts tensors to arrays and back, including bfloat16."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Copy a tensor to a contiguous array; bfloat16 becomes ``ml_dtypes.bfloat16``."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().clone()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return plain.numpy()


def as_tensor(array: NDArray[Any]) -> torch.Tensor:
    """Copy an array to a tensor; ``ml_dtypes.bfloat16`` becomes bfloat16."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())
