"""BERT (Devlin et al., 2018) of 4 layers, hidden size 256, 4 heads, 64 tokens; seeded random weights.

The sizes are those of the published "BERT-mini" (Turc et al., "Well-Read Students Learn Better", 2019).
"""

import math

import torch
from torch import nn

VOCABULARY = 30522
HIDDEN = 256
HEADS = 4
LAYERS = 4
INTERMEDIATE = 1024
TOKENS = 64
EPSILON = 1e-12


class Embeddings(nn.Module):
    """Words, positions and one token type, summed and normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(TOKENS, HIDDEN)
        self.token_type = nn.Parameter(torch.randn(HIDDEN))
        self.norm = nn.LayerNorm(HIDDEN, eps=EPSILON)
        self.register_buffer("position_ids", torch.arange(TOKENS).unsqueeze(0))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Word indices ``[N, 64]`` to ``[N, 64, 256]``."""
        return self.norm(self.words(input_ids) + self.positions(self.position_ids) + self.token_type)


class SelfAttention(nn.Module):
    """Scaled dot products of four heads, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)
        self.output = nn.Linear(HIDDEN, HIDDEN)
        self.heads = HEADS
        self.head_size = HIDDEN // HEADS
        self.scale = 1.0 / math.sqrt(self.head_size)

    def split_heads(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, T, 256]`` to ``[N, 4, T, 64]``."""
        return x.view(x.size(0), x.size(1), self.heads, self.head_size).transpose(1, 2)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[N, T, 256]`` to the same shape."""
        query = self.split_heads(self.query(hidden))
        key = self.split_heads(self.key(hidden))
        value = self.split_heads(self.value(hidden))
        weights = torch.softmax(torch.matmul(query, key.transpose(-1, -2)) * self.scale, dim=-1)
        return self.output(torch.matmul(weights, value).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to its input and normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention()
        self.attention_norm = nn.LayerNorm(HIDDEN, eps=EPSILON)
        self.intermediate = nn.Linear(HIDDEN, INTERMEDIATE)
        self.output = nn.Linear(INTERMEDIATE, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN, eps=EPSILON)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[N, T, 256]`` to the same shape."""
        attended = self.attention_norm(hidden + self.attention(hidden))
        inner = nn.functional.gelu(self.intermediate(attended))
        return self.output_norm(attended + self.output(inner))


class Bert(nn.Module):
    """The encoder with the pooler over its first token."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.pooler = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Word indices ``[N, 64]`` to hidden states ``[N, 64, 256]`` and the pooled ``[N, 256]``."""
        hidden = self.layers(self.embeddings(input_ids))
        return hidden, torch.tanh(self.pooler(hidden[:, 0]))


def build() -> nn.Module:
    """The network with seeded weights; the same on every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return Bert().eval()
