"""torch's fused operators for transformers in inference, in terms of plain ones.

A trace of ``nn.TransformerEncoderLayer`` or ``nn.MultiheadAttention`` records them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.translation.rule import Decomposition, Rules

_MASKED = float("-inf")


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Inputs are [batch, length, embed_dim]; the weights of query, key and value lie one below the other."""
    parts = zip((query, key, value), qkv_weight.split(embed_dim), qkv_bias.split(embed_dim), strict=True)
    q, k, v = (
        F.linear(data, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for data, weight, bias in parts
    )
    scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = _masked(scores, mask, mask_type)
    weights = scores.softmax(-1)
    joined = (weights @ v).transpose(1, 2).flatten(2)
    seen = weights.mean(1) if need_weights and average_attn_weights else weights
    return F.linear(joined, proj_weight, proj_bias), seen


def _masked(scores: Tensor, mask: Tensor, mask_type: int | None) -> Tensor:
    """A mask of type 1 names keys by [batch, length]; others broadcast over the scores. True hides."""
    shaped = mask[:, None, None, :] if mask_type == 1 and mask.dim() == 2 else mask
    if mask.dtype == torch.bool:
        return scores.masked_fill(shaped, _MASKED)
    return scores + shaped


def _encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def attend(data: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attention(data, data, data, embed_dim, num_heads, *weights, mask, mask_type=mask_type)[0]

    def transform(data: Tensor) -> Tensor:
        hidden = F.linear(data, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    def first_norm(data: Tensor) -> Tensor:
        return F.layer_norm(data, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(data: Tensor) -> Tensor:
        return F.layer_norm(data, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        src = src + attend(first_norm(src))
        return src + transform(second_norm(src))
    src = first_norm(src + attend(src))
    return second_norm(src + transform(src))


RULES: Rules = (
    Decomposition("aten._native_multi_head_attention.default", _attention),
    Decomposition("aten._transformer_encoder_layer_fwd.default", _encoder_layer),
)
