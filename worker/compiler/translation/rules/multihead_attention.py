"""Attention, as matrix products and a softmax, a pattern that the schedules recognize.

Traces of ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` record torch's fused operators for
inference, which are decomposed into plain ones.
"""

from __future__ import annotations

from math import inf

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tvm import relax, tirx

from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Decomposition, Rule, Rules
from worker.compiler.translation.rules.matrix_products import biased, times


def _scaled_attention(
    emit: Emitter,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    mask: relax.Expr | None,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None,
    enable_gqa: bool,
) -> relax.Expr:
    """A query whose keys are all masked gives zeros."""
    dtype = dtype_of(query)
    if enable_gqa:
        key, value = (_for_heads_of(emit, query, shared) for shared in (key, value))
    axes = [*range(key.ty.ndim - 2), key.ty.ndim - 1, key.ty.ndim - 2]
    turned = emit(relax.op.permute_dims(key, axes))
    scores = emit(relax.op.matmul(query, turned, out_dtype=wide(dtype)))
    scores = times(emit, scores, int(query.ty.shape[-1]) ** -0.5 if scale is None else scale)
    if is_causal:
        mask = _causal_mask(emit, scores)
    weights = _masked_softmax(emit, scores, mask)
    product = relax.op.matmul(emit.cast(weights, dtype), value, out_dtype=wide(dtype))
    return biased(emit, product, None, dtype)


def _for_heads_of(emit: Emitter, query: relax.Expr, shared: relax.Expr) -> relax.Expr:
    """Keys or values ``[..., H / n, S, D]`` with each head repeated for ``n`` query heads."""
    *batch, heads, size, depth = shared.ty.shape
    repeats = int(query.ty.shape[-3]) // int(heads)
    apart = emit(relax.op.expand_dims(shared, -3))
    repeated = emit(relax.op.broadcast_to(apart, (*batch, heads, repeats, size, depth)))
    return emit(relax.op.reshape(repeated, (*batch, int(heads) * repeats, size, depth)))


def _causal_mask(emit: Emitter, scores: relax.Expr) -> relax.Expr:
    """A mask ``[T, S]``: query ``i`` sees keys up to ``i``. It is a constant if the sizes are fixed."""
    *_, queries, keys = scores.ty.shape
    if all(isinstance(size, tirx.IntImm) for size in (queries, keys)):
        return relax.const(np.tri(int(queries), int(keys), dtype=bool), "bool")
    ones = emit(relax.op.ones((queries, keys), "float32"))
    return emit.cast(emit(relax.op.tril(ones)), "bool")


def _masked_softmax(emit: Emitter, scores: relax.Expr, mask: relax.Expr | None) -> relax.Expr:
    if mask is None:
        return emit(relax.op.nn.softmax(scores))
    dtype = dtype_of(scores)
    nothing, zero = relax.const(-inf, dtype), relax.const(0.0, dtype)
    if dtype_of(mask) == "bool":
        scores = emit(relax.op.where(mask, scores, nothing))
    else:
        scores = emit(relax.op.add(scores, emit.cast(mask, dtype)))
    highest = emit(relax.op.max(scores, -1, keepdims=True))
    sees_nothing = emit(relax.op.equal(highest, nothing))
    return emit(relax.op.where(sees_nothing, zero, emit(relax.op.nn.softmax(scores))))


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
    """Inputs are [batch, length, embed_dim]; query, key and value weights are stacked by rows."""
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
    """A mask of type 1 is [batch, length] over keys; others broadcast over the scores. True hides."""
    shaped = mask[:, None, None, :] if mask_type == 1 and mask.dim() == 2 else mask
    if mask.dtype == torch.bool:
        return scores.masked_fill(shaped, -inf)
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
    Rule("aten.scaled_dot_product_attention.default", _scaled_attention),
    Decomposition("aten._native_multi_head_attention.default", _attention),
    Decomposition("aten._transformer_encoder_layer_fwd.default", _encoder_layer),
)
