"""One architecture: its model, its inputs and its file formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.architectures.outcomes import Form

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Architecture:
    """A model with random weights.

    Attributes:
        name: ``package/model``.
        make: returns the model in evaluation mode and its inputs.
        forms: the file formats to survey.
        is_alive: whether every part of the model already affects its output.
    """

    name: str
    make: Callable[[], tuple[nn.Module, Inputs]]
    forms: tuple[Form, ...] = (Form.PT2,)
    is_alive: bool = False


def image(size: int, channels: int = 3, batch: int = 1) -> Inputs:
    """One square image."""
    return (torch.randn(batch, channels, size, size),)


def tokens(length: int = 16, vocabulary: int = 99) -> Inputs:
    """One sentence of token ids, without special tokens."""
    return (torch.randint(5, vocabulary, (1, length)),)
