"""An LSTM and a GRU of three layers of 256 units over 160 frames of 80 numbers; seeded random weights.

The sizes are those of a small acoustic model: 1.6 seconds of speech as log-mel frames.
"""

import torch
from torch import nn

FRAMES = 160
FEATURES = 80
UNITS = 256
LAYERS = 3
CLASSES = 32


class AcousticModel(nn.Module):
    """Recurrent layers and a class for each frame."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(FEATURES, UNITS, num_layers=LAYERS, batch_first=True)
        self.classes = nn.Linear(UNITS, CLASSES)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """``[N, T, 80]`` to ``[N, T, 32]``."""
        return self.classes(self.layers(frames)[0])


def build_lstm() -> nn.Module:
    """The LSTM with seeded weights; the same on every call."""
    return _build(nn.LSTM)


def build_gru() -> nn.Module:
    """The GRU with seeded weights; the same on every call."""
    return _build(nn.GRU)


def _build(kind: type[nn.RNNBase]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return AcousticModel(kind).eval()
