"""Architectures of transformers, in configurations of a few small layers."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.architectures.entry import Architecture, Inputs, image, tokens

SMALL: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
    "use_cache": False,
    "pad_token_id": 0,
}
_KV = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
_EXPERTS = {
    **_KV,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}

ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": SMALL,
    "Roberta": SMALL,
    "XLMRoberta": SMALL,
    "Albert": {**SMALL, "embedding_size": 16},
    "Electra": {**SMALL, "embedding_size": 16},
    "Camembert": SMALL,
    "RoFormer": {**SMALL, "embedding_size": 32},
    "DistilBert": {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "MobileBert": {**SMALL, "embedding_size": 32, "intra_bottleneck_size": 32},
    "Deberta": {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DebertaV2": {
        **SMALL,
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 16,
    },
    "ConvBert": {**SMALL, "embedding_size": 32},
    "SqueezeBert": {**SMALL, "embedding_size": 32},
    "FNet": SMALL,
    "MPNet": SMALL,
    "Nystromformer": {**SMALL, "segment_means_seq_len": 16, "num_landmarks": 4},
    "Funnel": {
        "vocab_size": 99,
        "d_model": 32,
        "n_head": 4,
        "d_head": 8,
        "d_inner": 64,
        "block_sizes": [1, 1],
    },
    "XLNet": {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
    "Longformer": {**SMALL, "attention_window": 8},
    "BigBird": {**SMALL, "attention_type": "original_full"},
    "Esm": {**SMALL, "mask_token_id": 3},
    "ModernBert": {**SMALL, "global_attn_every_n_layers": 2},
    "Ernie": SMALL,
    "RemBert": {**SMALL, "input_embedding_size": 16},
    "LayoutLM": SMALL,
    "Canine": SMALL,
    "MegatronBert": SMALL,
    "IBert": SMALL,
    "Splinter": SMALL,
}

DECODERS: dict[str, dict[str, Any]] = {
    "GPT2": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "OPT": {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "Llama": _KV,
    "Mistral": _KV,
    "Gemma": _KV,
    "Gemma2": _KV,
    "Gemma3Text": _KV,
    "Qwen2": _KV,
    "Qwen3": _KV,
    "Phi": SMALL,
    "Phi3": _KV,
    "StableLm": _KV,
    "GPTNeo": {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 64,
        "window_size": 8,
    },
    "GPTNeoX": SMALL,
    "GPTJ": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
    "CodeGen": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
    "Falcon": SMALL,
    "Bloom": {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Mpt": {"vocab_size": 99, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "Olmo": _KV,
    "Olmo2": _KV,
    "Cohere": _KV,
    "Granite": _KV,
    "Starcoder2": _KV,
    "Persimmon": SMALL,
    "Glm": _KV,
    "Mixtral": _EXPERTS,
    "Qwen2Moe": {**_EXPERTS, "shared_expert_intermediate_size": 32},
    "Olmoe": _EXPERTS,
    "GPTBigCode": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "Mamba": {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "Mamba2": {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "state_size": 8,
        "num_heads": 8,
        "head_dim": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "Rwkv": {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32},
    "RecurrentGemma": {**_KV, "lru_width": 32},
    "BioGpt": SMALL,
    "Nemotron": _KV,
    "SmolLM3": _KV,
    "Helium": _KV,
    "OpenAIGPT": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "CTRL": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64, "n_positions": 64},
}

_SEQ = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "use_cache": False,
}
TRANSLATORS: dict[str, dict[str, Any]] = {
    "T5": {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    "MT5": {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    "Bart": _SEQ,
    "MBart": _SEQ,
    "Pegasus": _SEQ,
    "Marian": {**_SEQ, "pad_token_id": 0, "decoder_start_token_id": 0},
    "Blenderbot": _SEQ,
    "M2M100": _SEQ,
    "ProphetNet": {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
    },
}

_VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
    "attn_implementation": "eager",
}
VISION: dict[str, dict[str, Any]] = {
    "ViT": _VISION,
    "DeiT": _VISION,
    "Beit": _VISION,
    "Dinov2": _VISION,
    "ViTMSN": _VISION,
    "IJepa": _VISION,
    "Swin": {
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 16,
        "depths": [2, 2],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "Swinv2": {
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 16,
        "depths": [2, 2],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "ConvNext": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "ConvNextV2": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "Segformer": {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32]},
    "MobileViT": {
        "image_size": 64,
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
    },
    "MobileViTV2": {"image_size": 64},
    "MobileNetV1": {"image_size": 64},
    "MobileNetV2": {"image_size": 64},
    "ResNet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]},
    "RegNet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
    "PoolFormer": {},
    "Cvt": {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 3], "depth": [1, 2, 3]},
    "PvtV2": {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32], "num_attention_heads": [1, 2, 2, 4]},
    "Levit": {
        "image_size": 64,
        "hidden_sizes": [16, 32, 48],
        "num_attention_heads": [2, 4, 6],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
    },
    "FocalNet": {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1]},
    "Hiera": {"image_size": [64, 64], "embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 2, 4]},
    "EfficientNet": {"image_size": 64},
}

_AUDIO = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": [16, 16],
    "conv_stride": [4, 4],
    "conv_kernel": [8, 8],
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "attn_implementation": "eager",
}
AUDIO: dict[str, dict[str, Any]] = {
    "Wav2Vec2": _AUDIO,
    "Hubert": _AUDIO,
    "WavLM": _AUDIO,
    "SEW": {**_AUDIO, "squeeze_factor": 2},
    "UniSpeech": _AUDIO,
    "Data2VecAudio": {**_AUDIO, "num_conv_pos_embeddings": 3, "conv_pos_kernel_size": 5},
}


class _OfTokens(nn.Module):
    """Returns the first output, as the other wrappers do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, return_dict=False)[0]


class _OfImage(_OfTokens):
    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=pixel_values, return_dict=False)[0]


class _OfSound(_OfTokens):
    def forward(self, input_values: torch.Tensor) -> torch.Tensor:
        return self.model(input_values=input_values, return_dict=False)[0]


class _OfSentences(_OfTokens):
    def forward(self, input_ids: torch.Tensor, decoder_input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, return_dict=False)[0]


class _OfSpectrum(_OfTokens):
    def forward(self, input_features: torch.Tensor, decoder_input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(
            input_features=input_features, decoder_input_ids=decoder_input_ids, return_dict=False
        )[0]


class _OfTokensAndImage(_OfTokens):
    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, pixel_values=pixel_values, return_dict=False)[0]


def architectures() -> list[Architecture]:
    """All architectures of this module."""
    # transformers must define its operator before the translation rules do.
    importlib.import_module("transformers.integrations.moe")
    made = [
        Architecture(f"transformers/{name}", partial(_encoder, name, options))
        for group in (ENCODERS, DECODERS)
        for name, options in group.items()
    ]
    made += [
        Architecture(f"transformers/{name}", partial(_translator, name, options))
        for name, options in TRANSLATORS.items()
    ]
    made += [
        Architecture(f"transformers/{name}", partial(_vision, name, options))
        for name, options in VISION.items()
    ]
    made += [
        Architecture(f"transformers/{name}", partial(_sound, name, options))
        for name, options in AUDIO.items()
    ]
    return [
        *made,
        Architecture("transformers/Whisper", _whisper),
        Architecture("transformers/CLIP", partial(_contrastive, "CLIP")),
        Architecture("transformers/Siglip", partial(_contrastive, "Siglip")),
    ]


def _create(name: str, options: dict[str, Any]) -> nn.Module:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**options)
    model_class = getattr(transformers, f"{name}Model", None) or getattr(transformers, f"{name}ForCausalLM")
    return model_class(config).eval()


def _encoder(name: str, options: dict[str, Any]) -> tuple[nn.Module, Inputs]:
    return _OfTokens(_create(name, options)), tokens()


def _vision(name: str, options: dict[str, Any]) -> tuple[nn.Module, Inputs]:
    size = options.get("image_size", 64)
    return _OfImage(_create(name, options)), image(size[0] if isinstance(size, list) else size)


def _sound(name: str, options: dict[str, Any]) -> tuple[nn.Module, Inputs]:
    return _OfSound(_create(name, options)), (torch.randn(1, 800),)


def _translator(name: str, options: dict[str, Any]) -> tuple[nn.Module, Inputs]:
    return _OfSentences(_create(name, options)), (*tokens(), *tokens(8))


def _whisper() -> tuple[nn.Module, Inputs]:
    options = {
        **_SEQ,
        "num_mel_bins": 16,
        "max_source_positions": 20,
        "max_target_positions": 20,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }
    model = _OfSpectrum(_create("Whisper", options))
    return model, (torch.randn(1, 16, 40), *tokens(8))


def _contrastive(name: str) -> tuple[nn.Module, Inputs]:
    text = {**SMALL, "bos_token_id": 1, "eos_token_id": 2, "projection_dim": 16}
    model = _create(name, {"text_config": text, "vision_config": _VISION, "projection_dim": 16})
    return _OfTokensAndImage(model), (*tokens(), *image(32))
