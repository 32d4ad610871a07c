"""The decoder that is measured: a Llama of 110 million parameters with seeded random weights.

``Plain`` is the same network without transformers' classes, with keys and values as inputs and outputs, in
the form that converters of other runtimes turn into a state that grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.architectures.torchvision_models import declare_operators

MAX_LENGTH = 512
PIECE = 64
"""The tokens in a chunk of the prompt."""

LAYERS, HEADS, WIDTH, INNER, WORDS = 12, 12, 768, 2048, 32000
HEAD = WIDTH // HEADS
THETA = 10000.0
EPSILON = 1e-6
PROMPT = tuple(1 + 7919 * at % (WORDS - 1) for at in range(PIECE))


def build() -> Any:
    """The model, as transformers' ``LlamaForCausalLM``."""
    declare_operators()  # transformers imports torchvision where it is installed
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=MAX_LENGTH,
        rms_norm_eps=EPSILON,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    model.generation_config.cache_implementation = "static"
    model.generation_config.cache_config = {"batch_size": 1, "max_cache_len": MAX_LENGTH}
    return model


class LastToken(nn.Module):
    """The hidden state of the last token."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[1, T, WIDTH]`` to ``[1, 1, WIDTH]``."""
        return hidden[:, -1:]


def with_static_cache() -> nn.Module:
    """The model as ``forward(input_ids, cache_position)``, which keeps its cache: the last token's logits."""
    model = build()
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model.lm_head = nn.Sequential(LastToken(), model.lm_head)
    return TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=MAX_LENGTH)


def programs() -> Mapping[str, Any]:
    """The exported programs, as docs/usage.md recommends."""
    module = with_static_cache()

    def exported(count: int) -> Any:
        inputs = {"input_ids": torch.ones(1, count, dtype=torch.long), "cache_position": torch.arange(count)}
        return torch.export.export(module, (), inputs, strict=False)

    return {"prefill": exported(PIECE), "decode": exported(1)}


def rotations() -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary embedding, ``[MAX_LENGTH, HEAD / 2]`` each."""
    frequencies = 1 / THETA ** (torch.arange(0, HEAD, 2).float() / HEAD)
    angles = torch.arange(MAX_LENGTH).float()[:, None] * frequencies
    return angles.cos(), angles.sin()


class Plain(nn.Module):
    """``forward(tokens [1, T], positions [T], *cache)``: the last token's logits, and the longer cache.

    The cache has keys and values of each layer in turn, ``[1, HEADS, S, HEAD]``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(
            {name.replace(".", "/"): nn.Parameter(value) for name, value in build().state_dict().items()}
        )
        cosines, sines = rotations()
        self.register_buffer("cosines", torch.cat([cosines, cosines], -1))
        self.register_buffer("sines", torch.cat([sines, sines], -1))

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, *cache: torch.Tensor) -> Any:
        """See the class."""
        x, found = functional.embedding(tokens, self._weight("model.embed_tokens")), []
        for layer in range(LAYERS):
            attended, *pair = self._attend(f"model.layers.{layer}", x, positions, cache[2 * layer :])
            x, found = x + attended, [*found, *pair]
            x = x + self._perceptron(f"model.layers.{layer}", x)
        return self._linear("model.embed_tokens", self._norm("model.norm", x[:, -1:])), *found

    def _attend(self, layer: str, x: torch.Tensor, positions: torch.Tensor, past: Any) -> Any:
        normed = self._norm(f"{layer}.input_layernorm", x)
        query, key, value = (
            self._linear(f"{layer}.self_attn.{part}_proj", normed).view(1, -1, HEADS, HEAD).transpose(1, 2)
            for part in "qkv"
        )
        cosines, sines = self.cosines[positions], self.sines[positions]
        query, key = (part * cosines + _turned(part) * sines for part in (query, key))
        key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        seen = torch.arange(key.shape[2])[None, :] <= positions[:, None]
        mixed = functional.scaled_dot_product_attention(query, key, value, seen[None, None])
        mixed = mixed.transpose(1, 2).reshape(1, -1, WIDTH)
        return self._linear(f"{layer}.self_attn.o_proj", mixed), key, value

    def _perceptron(self, layer: str, x: torch.Tensor) -> torch.Tensor:
        normed = self._norm(f"{layer}.post_attention_layernorm", x)
        gate, up = (self._linear(f"{layer}.mlp.{part}_proj", normed) for part in ("gate", "up"))
        return self._linear(f"{layer}.mlp.down_proj", functional.silu(gate) * up)

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * self._weight(name)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self._weight(name))

    def _weight(self, name: str) -> torch.Tensor:
        return self.weights[f"{name}.weight".replace(".", "/")]


def _turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)
