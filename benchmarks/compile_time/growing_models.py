"""Models that grow by one part at a time: outputs, layers, inputs, parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import nn

from benchmarks.architectures.entry import Inputs

Made = tuple[nn.Module, Inputs]

_WIDTH = 16


class Slices(nn.Module):
    """One output for each column of the input."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x[:, column] for column in range(x.shape[1]))


class Sums(nn.Module):
    """Outputs that each add another number."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x + number for number in range(self.count))


class Heads(nn.Module):
    """Linear layers that read the same input, with one output each."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(_WIDTH, 4) for _ in range(count))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(head(x) for head in self.heads)


class Residual(nn.Module):
    """A linear layer with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.linear(x)) * 0.01


class Chain(nn.Module):
    """Elementwise operators in a row."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in range(self.count):
            x = torch.tanh(x) if number % 3 else x * 1.01 + 0.1
        return x


class Total(nn.Module):
    """The sum of all inputs."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        total = inputs[0]
        for one in inputs[1:]:
            total = total + one
        return total


class Scaled(nn.Module):
    """Sums of the input, each scaled by a parameter."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.rand(_WIDTH) / count) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x
        for scale in self.scales:
            total = total + x * scale
        return total


def _slices(count: int) -> Made:
    return Slices(), (torch.randn(4, count),)


def _sums(count: int) -> Made:
    return Sums(count), (torch.randn(4, _WIDTH),)


def _heads(count: int) -> Made:
    return Heads(count), (torch.randn(4, _WIDTH),)


def _equal_layers(count: int) -> Made:
    return nn.Sequential(*(Residual() for _ in range(count))), (torch.randn(4, _WIDTH),)


def _distinct_layers(count: int) -> Made:
    """Pairs of layers through as many different widths."""
    layers: list[nn.Module] = []
    for number in range(count // 2):
        width = _WIDTH + number
        layers += [nn.Linear(_WIDTH, width), nn.Tanh(), nn.Linear(width, _WIDTH), nn.Tanh()]
    return nn.Sequential(*layers), (torch.randn(4, _WIDTH),)


def _convolutions(count: int) -> Made:
    layers = (
        layer
        for _ in range(count)
        for layer in (nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1), nn.BatchNorm2d(_WIDTH), nn.ReLU())
    )
    return nn.Sequential(*layers), (torch.randn(1, _WIDTH, 8, 8),)


def _chain(count: int) -> Made:
    return Chain(count), (torch.randn(4, _WIDTH),)


def _inputs(count: int) -> Made:
    return Total(), tuple(torch.randn(4, _WIDTH) for _ in range(count))


def _parameters(count: int) -> Made:
    return Scaled(count), (torch.randn(4, _WIDTH),)


GROWING: Mapping[str, Callable[[int], Made]] = MappingProxyType(
    {
        "slices": _slices,
        "sums": _sums,
        "heads": _heads,
        "equal layers": _equal_layers,
        "distinct layers": _distinct_layers,
        "convolutions": _convolutions,
        "chain": _chain,
        "inputs": _inputs,
        "parameters": _parameters,
    }
)
"""Models by name, each a function of its number of parts."""
