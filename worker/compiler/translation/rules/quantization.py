"""Quantized models: integers by a scale and a zero point."""

from __future__ import annotations

import torch
from torch import Tensor

from worker.compiler.quantized_operators import IMPLEMENTATIONS, NAMESPACE
from worker.compiler.translation.rule import Decomposition


def _fake_quantize(
    data: Tensor, scale: float | Tensor, zero_point: int | Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """Quantized and dequantized numbers, and which of them were in range."""
    rounded = torch.round(data * (1.0 / scale)) + zero_point
    is_inside = (rounded >= low) & (rounded <= high)
    return (torch.clamp(rounded, low, high) - zero_point) * scale, is_inside


def _fake_quantize_by_tensor(
    data: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    fake, is_inside = _fake_quantize(data, scale.reshape(()), zero_point.reshape(()), low, high)
    is_on = enabled.reshape(()) != 0
    return torch.where(is_on, fake, data), is_inside | ~is_on


def _fake_quantize_by_channel(
    data: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    shape = [1] * data.dim()
    shape[axis] = -1
    return _fake_quantize(data, scale.reshape(shape), zero_point.reshape(shape), low, high)


RULES = (
    *(Decomposition(f"{NAMESPACE}.{overload}", compute) for overload, compute in IMPLEMENTATIONS.items()),
    Decomposition("aten.fake_quantize_per_tensor_affine_cachemask.default", _fake_quantize),
    Decomposition(
        "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", _fake_quantize_by_tensor
    ),
    Decomposition("aten.fake_quantize_per_channel_affine_cachemask.default", _fake_quantize_by_channel),
)
