"""ViT-Tiny/16 and ViT-B/16 (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020), random weights.

The tiny size is that of Touvron et al., "Training data-efficient image transformers", 2020.
"""

import torch
from torch import nn

IMAGE = 224
PATCH = 16
LAYERS = 12
HEAD_SIZE = 64
TOKENS = (IMAGE // PATCH) ** 2 + 1
EPSILON = 1e-6


class Attention(nn.Module):
    """Self-attention with one projection for queries, keys and values."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head_size = HEAD_SIZE
        self.heads = width // HEAD_SIZE
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, 197, width]`` to the same shape."""
        shape = (x.size(0), x.size(1), 3, self.heads, self.head_size)
        qkv = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        return self.projection(attended.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and a feed-forward network, each on normalized input and added to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=EPSILON)
        self.attention = Attention(width)
        self.inner_norm = nn.LayerNorm(width, eps=EPSILON)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, 197, width]`` to the same shape."""
        attended = x + self.attention(self.attention_norm(x))
        return attended + self.inner(self.inner_norm(attended))


class VisionTransformer(nn.Module):
    """Patches and a class token through twelve layers; a linear classifier on the class token."""

    def __init__(self, width: int, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, TOKENS, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.classes = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images ``[N, 3, 224, 224]`` to logits ``[N, classes]``."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.class_token.expand(x.size(0), -1, -1), patches), dim=1)
        return self.classes(self.norm(self.layers(tokens + self.positions))[:, 0])


def build_tiny() -> nn.Module:
    """ViT-Tiny, 192 wide, with seeded weights; the same on every call."""
    return _build(192)


def build_base() -> nn.Module:
    """ViT-B, 768 wide, with seeded weights; the same on every call."""
    return _build(768)


def _build(width: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(width)
        return VisionTransformer(width).eval()
