"""The Fashion-MNIST multi-layer perceptron: 784 pixels, 128 hidden units, 10 classes, trained weights."""

import torch
from torch import nn

from .weights import load_weights


class Mlp(nn.Module):
    """Two linear layers with a ReLU between."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(784, 128)
        self.classes = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images ``[N, 784]`` to logits ``[N, 10]``."""
        return self.classes(torch.relu(self.hidden(x)))


def build() -> nn.Module:
    """The network with its trained weights."""
    names = {"hidden.weight": "w0", "hidden.bias": "b0", "classes.weight": "w1", "classes.bias": "b1"}
    return load_weights(Mlp(), "fashion_mnist_mlp.npz", names)
