"""One architecture: its model, its inputs and its file formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from benchmarks.architectures.outcomes import EVERY_FORM, Form
from bessemer.contract.request import Constant

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Architecture:
    """A model and its inputs.

    Attributes:
        name: ``package/model``.
        make: returns the model in evaluation mode and its inputs.
        forms: the file formats to survey.
        is_alive: whether every part of the model already affects its output, as with trained weights.
        constants: the values of arguments that are not tensors.
        module: what to import once, before processes are forked.
    """

    name: str
    make: Callable[[], tuple[nn.Module, Inputs]]
    forms: tuple[Form, ...] = EVERY_FORM
    is_alive: bool = False
    constants: Mapping[str, Constant] = field(default_factory=dict)
    module: str = "torch"


def image(size: int, channels: int = 3, batch: int = 1) -> Inputs:
    """One square image."""
    return (torch.randn(batch, channels, size, size),)


def tokens(length: int = 16, vocabulary: int = 99) -> Inputs:
    """One sentence of token ids, without special tokens."""
    return (torch.randint(5, vocabulary, (1, length)),)
