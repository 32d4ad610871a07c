"""One architecture: how to make it, and what to give it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Architecture:
    """A model with random weights.

    Attributes:
        name: ``package/model``.
        make: makes the model, in evaluation mode, and its inputs.
    """

    name: str
    make: Callable[[], tuple[nn.Module, Inputs]]


def image(size: int, channels: int = 3, batch: int = 1) -> Inputs:
    """One square image."""
    return (torch.randn(batch, channels, size, size),)


def tokens(length: int = 16, vocabulary: int = 99) -> Inputs:
    """One sentence of token numbers, which are not the special ones."""
    return (torch.randint(5, vocabulary, (1, length)),)
