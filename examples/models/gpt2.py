"""A block of GPT-2 (Radford et al., 2019): 768 wide, 12 heads, causal, 128 tokens; seeded random weights."""

import torch
from torch import nn

WIDTH = 768
HEADS = 12
TOKENS = 128
EPSILON = 1e-5


class CausalAttention(nn.Module):
    """Causal self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.width = WIDTH
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)

    def split_heads(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, T, 768]`` to ``[N, 12, T, 64]``."""
        return x.view(x.size(0), x.size(1), self.heads, self.width // self.heads).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, T, 768]`` to the same shape."""
        query, key, value = self.qkv(x).split(self.width, dim=2)
        attended = nn.functional.scaled_dot_product_attention(
            self.split_heads(query), self.split_heads(key), self.split_heads(value), is_causal=True
        )
        return self.projection(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward network, each on normalized input and added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.attention = CausalAttention()
        self.inner_norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.inner = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[N, T, 768]`` to the same shape."""
        attended = hidden + self.attention(self.attention_norm(hidden))
        return attended + self.inner(self.inner_norm(attended))


def build() -> nn.Module:
    """The block with seeded weights; the same on every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return Block().eval()
