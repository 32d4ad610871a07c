"""MobileNetV2 (Sandler et al., "Inverted Residuals and Linear Bottlenecks", 2018), seeded random weights."""

import torch
from torch import nn

from .weights import randomize_batch_norms

# expansion, output channels, repeats, first stride: table 2 of the paper
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def conv_norm_relu(inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1) -> nn.Sequential:
    """A convolution of the same size (divided by the stride), batch norm, ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expand by 1x1, filter by depthwise 3x3, project by 1x1."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [conv_norm_relu(inputs, hidden, 1, 1)] if expansion != 1 else []
        self.residual = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *expand,
            conv_norm_relu(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, inputs, H, W]`` to ``[N, outputs, H / stride, W / stride]``."""
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    """The paper's network at width 1."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        blocks: list[nn.Module] = [conv_norm_relu(3, 32, 3, 2)]
        inputs = 32
        for expansion, outputs, repeats, first_stride in STAGES:
            for index in range(repeats):
                stride = first_stride if index == 0 else 1
                blocks.append(InvertedResidual(inputs, outputs, stride, expansion))
                inputs = outputs
        blocks.append(conv_norm_relu(inputs, 1280, 1, 1))
        self.features = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images ``[N, 3, 224, 224]`` to logits ``[N, classes]``."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def build() -> nn.Module:
    """The network with seeded weights; the same on every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return randomize_batch_norms(MobileNetV2(), seed=2)
