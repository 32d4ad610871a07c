"""Quantized models as ``torchao``'s ``convert_pt2e`` writes them, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

import worker.compiler.quantized_operators  # noqa: F401 - defines the operators

Through = Callable[[Tensor], Tensor]

Q = torch.ops.quantized_decomposed
BYTE = (-128, 127, torch.int8)
UNSIGNED = (0, 255, torch.uint8)


class Bytes(NamedTuple):
    """Weights as bytes, with the scale and the zero point of each output."""

    values: Tensor
    scales: Tensor
    zero_points: Tensor


def bytes_of(weights: Tensor, zero_point: int = 0) -> Bytes:
    """Weights, quantized along their first axis."""
    scales = weights.abs().flatten(1).amax(1) / 127
    along = scales.reshape(-1, *([1] * (weights.dim() - 1)))
    values = (weights / along + zero_point).round().clamp(-128, 127).to(torch.int8)
    return Bytes(values, scales, torch.full((len(weights),), zero_point))


def through(zero_point: int, low: int, high: int, dtype: torch.dtype) -> Through:
    """Through bytes with a zero point."""

    def quantized(x: Tensor) -> Tensor:
        given = (0.04, zero_point, low, high, dtype)
        return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, *given), *given)

    return quantized


unsigned, signed, symmetric = through(113, *UNSIGNED), through(-7, *BYTE), through(0, *BYTE)
"""As for x86-64, as for Arm, and without a zero point."""


def dynamic(x: Tensor) -> Tensor:
    """Through bytes by the range of the tensor."""
    given = (*Q.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8), *BYTE)
    return Q.dequantize_per_tensor.tensor(Q.quantize_per_tensor.tensor(x, *given), *given)


def by_token(x: Tensor) -> Tensor:
    """Through bytes by the range of each row."""
    given = (*Q.choose_qparams_per_token_asymmetric(x, torch.int8), *BYTE)
    return Q.dequantize_per_token(Q.quantize_per_token(x, *given), *given, torch.float32)


def unchanged(x: Tensor) -> Tensor:
    """For models whose weights alone are quantized."""
    return x


class QuantizedLinear(nn.Module):
    """A linear layer of bytes."""

    def __init__(
        self, depth: int, columns: int, through: Callable[[Tensor], Tensor], zero_point: int = 0
    ) -> None:
        super().__init__()
        weights = bytes_of(torch.randn(columns, depth) / depth**0.5, zero_point)
        self.through = through
        for name, tensor in weights._asdict().items():
            self.register_buffer(name, tensor)
        self.bias = nn.Parameter(torch.randn(columns) / 8)

    def forward(self, x: Tensor) -> Tensor:
        weight = Q.dequantize_per_channel(self.values, self.scales, self.zero_points, 0, *BYTE)
        return nn.functional.linear(self.through(x), weight, self.bias)


class QuantizedConvolution(nn.Module):
    """A convolution of bytes, in one or two dimensions, that keeps the size of its image."""

    def __init__(self, given: int, channels: int, rank: int = 2, size: int = 3, groups: int = 1) -> None:
        super().__init__()
        shape = (channels, given // groups, *([size] * rank))
        weights = bytes_of(torch.randn(shape) / (given // groups * size**rank) ** 0.5)
        self.convolve = {1: nn.functional.conv1d, 2: nn.functional.conv2d}[rank]
        self.padding, self.groups = size // 2, groups
        for name, tensor in weights._asdict().items():
            self.register_buffer(name, tensor)
        self.bias = nn.Parameter(torch.randn(channels) / 8)

    def forward(self, x: Tensor) -> Tensor:
        weight = Q.dequantize_per_channel(self.values, self.scales, self.zero_points, 0, *BYTE)
        image = unsigned(x)
        return self.convolve(image, weight, self.bias, padding=self.padding, groups=self.groups)
