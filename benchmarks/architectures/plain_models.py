"""Architectures of ``torch.nn`` alone, and scripts whose control flow depends on shapes or on data.

torch.fx writes annotations into its code and does not support postponed ones.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.architectures.entry import Architecture, Inputs
from benchmarks.architectures.outcomes import EVERY_FORM, Form

SCRIPTED = (Form.SCRIPTED,)
"""Exports and traces don't keep data-dependent branches."""


class Recurrent(nn.Module):
    """Two bidirectional layers, and a linear one on the last step."""

    def __init__(self, recurrent: type[nn.RNNBase]) -> None:
        super().__init__()
        self.recurrent = recurrent(8, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps, _ = self.recurrent(x)
        return self.head(steps[:, -1])


class Encoder(nn.Module):
    """An encoder that torch traces with fused operators."""

    def __init__(self, norm_first: bool, activation: str) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            16, 4, 32, batch_first=True, norm_first=norm_first, activation=activation
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Attention(nn.Module):
    """Attention with its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        joined, weights = self.attention(x, x, x)
        assert weights is not None
        return joined, weights


class Decoder(nn.Module):
    """Transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(8, 8, 4, 2, 1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 3, 3, 2, 1, 1),
            nn.Tanh(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class ByData(nn.Module):
    """A data-dependent branch with different weights on each side."""

    def __init__(self) -> None:
        super().__init__()
        self.positive = nn.Linear(4, 4)
        self.negative = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # noqa: SIM108 - the branch is the point
            y = self.positive(x)
        else:
            y = self.negative(x) * 2
        return y + 1


class ByNestedData(nn.Module):
    """A nested branch, and a branch without an else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        if x.mean() > 0:
            if x.max() > 1:  # noqa: SIM108
                y = x * 3
            else:
                y = x + 3
        return y


class ByShape(nn.Module):
    """Loops, branches and lists that depend on sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns: list[torch.Tensor] = []
        for index in range(x.size(1)):
            if index % 2 == 0:
                columns.append(x[:, index] * index)
            else:
                columns.append(x[:, index] + x.shape[0])
        count = 0
        while count < x.size(0):
            count += 2
        return torch.stack(columns, 1) * count


class SizeArithmetic(nn.Module):
    """Views whose sizes are computed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        tiles = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4)
        tiles = tiles.reshape(b * 4, c, h // 2, w // 2)
        return tiles[..., : tiles.size(-1) - 1].flatten(1)


class Containers(nn.Module):
    """A dictionary and tuples."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        named: dict[str, torch.Tensor] = {}
        named["one"] = x
        named["two"] = x * 2
        pair = (named["one"], named["two"])
        return pair[0] + pair[1], named["two"]


class InPlace(nn.Module):
    """In-place masks and in-place writes to slices."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x > 1
        mask |= x < -1
        mask &= x < 2
        written = torch.zeros(x.shape[0], x.shape[1])
        written[:, 0] = 1
        written[:, 1:] += x[:, 1:]
        return x.masked_fill(mask, 0.0) + written


class Steps(nn.Module):
    """A cell in a loop over time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.zeros(x.size(0), 8)
        memory = torch.zeros(x.size(0), 8)
        for step in range(x.size(1)):
            hidden, memory = self.cell(x[:, step], (hidden, memory))
        return hidden


class SizeFromTensor(nn.Module):
    """A size that is read from a tensor of sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = int(torch.tensor(x.shape[1] * 0.5).item())
        return x[:, :count]


def architectures() -> list[Architecture]:
    """All architectures of this module."""
    return [
        _made("lstm", partial(Recurrent, nn.LSTM), (2, 5, 8)),
        _made("gru", partial(Recurrent, nn.GRU), (2, 5, 8)),
        _made("encoder", partial(Encoder, False, "relu"), (2, 5, 16)),
        _made("encoder_norm_first", partial(Encoder, True, "gelu"), (2, 5, 16)),
        _made("attention", Attention, (2, 5, 16)),
        _made("transposed_decoder", Decoder, (1, 8, 4, 4)),
        _made("by_data", ByData, (2, 4), SCRIPTED),
        _made("by_nested_data", ByNestedData, (2, 4), SCRIPTED),
        _made("by_shape", ByShape, (3, 4)),
        _made("size_arithmetic", SizeArithmetic, (1, 2, 6, 8)),
        _made("containers", Containers, (2, 3)),
        _made("in_place", InPlace, (2, 3)),
        _made("steps", Steps, (2, 3, 4)),
        _made("size_from_tensor", SizeFromTensor, (2, 6)),
    ]


def _made(
    name: str,
    model: Callable[[], nn.Module],
    shape: tuple[int, ...],
    forms: tuple[Form, ...] = EVERY_FORM,
) -> Architecture:
    return Architecture(f"plain/{name}", partial(_make, model, shape), forms)


def _make(model: Callable[[], nn.Module], shape: tuple[int, ...]) -> tuple[nn.Module, Inputs]:
    return model().eval(), (torch.randn(shape),)
