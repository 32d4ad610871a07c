"""The decoder as a GGUF file in float32, for llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from benchmarks.decoder.model import (
    EPSILON,
    HEAD,
    HEADS,
    INNER,
    LAYERS,
    MAX_LENGTH,
    THETA,
    WIDTH,
    WORDS,
    build,
)

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path) -> None:
    """Write the model without a vocabulary."""
    weights = {name: value.numpy() for name, value in build().state_dict().items()}
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(MAX_LENGTH)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(THETA)
    writer.add_vocab_size(WORDS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("none")
    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"])
    for layer in range(LAYERS):
        for name, own in _NAMES.items():
            values = weights[f"model.layers.{layer}.{name}.weight"]
            if own in {"attn_q", "attn_k"}:
                values = _interleaved(values)
            writer.add_tensor(f"blk.{layer}.{own}.weight", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _interleaved(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Interleave the halves of each head: llama.cpp rotates neighbors, transformers rotates the halves."""
    width = weights.shape[1]
    return weights.reshape(HEADS, 2, HEAD // 2, width).swapaxes(1, 2).reshape(weights.shape)
