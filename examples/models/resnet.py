"""ResNet-18 and -50 (He et al., "Deep Residual Learning for Image Recognition", 2015), random weights."""

import torch
from torch import nn

from .weights import randomize_batch_norms

# inputs of the first block, width, blocks of ResNet-50: table 1 of the paper
STAGES_50 = ((64, 64, 3), (256, 128, 4), (512, 256, 6), (1024, 512, 3))
EXPANSION = 4


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, inputs, H, W]`` to ``[N, outputs, H / stride, W / stride]``."""
        inner = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut; the 3x3 has the stride, as is usual."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, inputs, H, W]`` to ``[N, 4 * width, H / stride, W / stride]``."""
        reduced = self.relu(self.bn1(self.conv1(x)))
        inner = self.relu(self.bn2(self.conv2(reduced)))
        return self.relu(self.bn3(self.conv3(inner)) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, stages of blocks, a pooled linear classifier of ``features``."""

    def __init__(self, layers: nn.Module, features: int, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layers = layers
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images ``[N, 3, 224, 224]`` to logits ``[N, classes]``."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity, or a 1x1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def layers_18() -> nn.Module:
    """Four stages of two basic blocks."""
    return nn.Sequential(
        *(
            nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1))
            for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
        )
    )


def layers_50() -> nn.Module:
    """Four stages of three, four, six and three bottlenecks."""
    stages: list[nn.Module] = []
    for inputs, width, blocks in STAGES_50:
        first = Bottleneck(inputs, width, 1 if inputs == width else 2)
        others = (Bottleneck(width * EXPANSION, width, 1) for _ in range(blocks - 1))
        stages.append(nn.Sequential(first, *others))
    return nn.Sequential(*stages)


def build_18() -> nn.Module:
    """ResNet-18 with seeded weights; the same on every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(18)
        return randomize_batch_norms(ResNet(layers_18(), 512), seed=18)


def build_50() -> nn.Module:
    """ResNet-50 with seeded weights; the same on every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(50)
        return randomize_batch_norms(ResNet(layers_50(), 2048), seed=50)
