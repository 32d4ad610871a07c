"""The Fashion-MNIST convolutional network: one convolution, two linear layers, trained weights."""

import torch
from torch import nn

from .weights import load_weights


class Cnn(nn.Module):
    """Convolution, ReLU, 2x2 max-pool, then two linear layers with a ReLU between."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 3)
        self.pool = nn.MaxPool2d(2)
        self.hidden = nn.Linear(32 * 13 * 13, 100)
        self.classes = nn.Linear(100, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images ``[N, 1, 28, 28]`` to logits ``[N, 10]``."""
        pooled = self.pool(torch.relu(self.conv(x)))
        return self.classes(torch.relu(self.hidden(torch.flatten(pooled, 1))))


def build() -> nn.Module:
    """The network with its trained weights."""
    names = {
        "conv.weight": "conv2d_weight",
        "conv.bias": "conv2d_bias",
        "hidden.weight": "linear0_weight",
        "hidden.bias": "linear0_bias",
        "classes.weight": "linear1_weight",
        "classes.bias": "linear1_bias",
    }
    return load_weights(Cnn(), "fashion_mnist_cnn.npz", names)
