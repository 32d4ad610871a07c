"""A small U-Net (Ronneberger et al., 2015): four levels, 32 channels at the top; seeded random weights.

As most implementations have it: padded convolutions with batch norms, so that skips need no crop.
"""

import torch
from torch import nn

from .weights import randomize_batch_norms

WIDTHS = (32, 64, 128, 256)
IMAGE = 128


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions of the same size, each with batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Up(nn.Module):
    """Doubles height and width by a transposed convolution and joins the encoder's skip."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, 2)
        self.conv = double_conv(2 * outputs, outputs)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """``[N, inputs, H, W]`` and ``[N, outputs, 2H, 2W]`` to the skip's shape."""
        return self.conv(torch.cat((skip, self.up(x)), dim=1))


class UNet(nn.Module):
    """Three levels down, three up, a mask of ``classes`` at the image's size."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        top, high, low, bottom = WIDTHS
        self.top = double_conv(3, top)
        self.high = double_conv(top, high)
        self.low = double_conv(high, low)
        self.bottom = double_conv(low, bottom)
        self.pool = nn.MaxPool2d(2)
        self.up_low = Up(bottom, low)
        self.up_high = Up(low, high)
        self.up_top = Up(high, top)
        self.mask = nn.Conv2d(top, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images ``[N, 3, H, W]`` to logits ``[N, classes, H, W]``; both sizes multiples of 8."""
        top = self.top(x)
        high = self.high(self.pool(top))
        low = self.low(self.pool(high))
        bottom = self.bottom(self.pool(low))
        return self.mask(self.up_top(self.up_high(self.up_low(bottom, low), high), top))


def build() -> nn.Module:
    """The network with seeded weights; the same on every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(15)
        return randomize_batch_norms(UNet(), seed=15)
