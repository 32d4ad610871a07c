"""Architectures of timm: one or two small models from nearly every family."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from benchmarks.architectures.entry import Architecture, Inputs, image

FIXED = {
    "botnet26t_256": 256,
    "bat_resnext26ts": 256,
    "eca_resnet33ts": 64,
    "convmixer_768_32": 64,
    "convnext_atto": 64,
    "convnext_atto_ols": 64,
    "cs3darknet_focus_s": 64,
    "cspresnet50": 64,
    "darknet53": 64,
    "densenet121": 64,
    "dla46_c": 64,
    "dpn48b": 64,
    "edgenext_xx_small": 64,
    "efficientnet_b0": 64,
    "efficientnet_lite0": 64,
    "mixnet_s": 64,
    "tinynet_e": 64,
    "fbnetc_100": 64,
    "efficientvit_b0": 64,
    "fasternet_t0": 64,
    "fastvit_t8": 64,
    "focalnet_tiny_srf": 64,
    "ghostnet_050": 64,
    "ghostnetv2_100": 64,
    "hardcorenas_a": 64,
    "hgnetv2_b0": 64,
    "hrnet_w18_small": 64,
    "inception_next_atto": 64,
    "inception_resnet_v2": 96,
    "inception_v4": 96,
    "lcnet_035": 64,
    "mambaout_femto": 64,
    "caformer_s18": 64,
    "poolformer_s12": 64,
    "mobilenetv3_small_050": 64,
    "mobilenetv4_conv_small": 64,
    "mobilenet_edgetpu_v2_xs": 64,
    "mobilevit_xxs": 64,
    "mobilevitv2_050": 64,
    "nf_resnet26": 64,
    "dm_nfnet_f0": 64,
    "pvt_v2_b0": 64,
    "rdnet_tiny": 64,
    "regnetx_002": 64,
    "regnety_002": 64,
    "repghostnet_050": 64,
    "repvit_m0_9": 64,
    "res2net50_14w_8s": 64,
    "resnest14d": 64,
    "resnet18": 64,
    "resnet10t": 64,
    "seresnet33ts": 64,
    "gcresnext26ts": 64,
    "ecaresnet26t": 64,
    "resnetv2_18": 64,
    "rexnet_100": 64,
    "selecsls42": 64,
    "legacy_seresnet18": 64,
    "skresnet18": 64,
    "starnet_s1": 64,
    "swiftformer_xs": 64,
    "tresnet_m": 64,
    "vgg11": 64,
    "vovnet39a": 64,
    "ese_vovnet19b_slim": 64,
    "xception41": 96,
    "pit_ti_224": 224,
    "repvgg_a0": 64,
    "mobileone_s0": 64,
    "efficientvit_m0": 224,
    "shvit_s1": 64,
    "efficientvim_m1": 64,
    "levit_128s": 224,
    "davit_tiny": 64,
    "efficientformer_l1": 224,
    "efficientformerv2_s0": 224,
}
"""Convolutional and hybrid networks, with the image size."""

SIZED = {
    "beit_base_patch16_224": 64,
    "cait_xxs24_224": 64,
    "coat_lite_tiny": 64,
    "convit_tiny": 64,
    "crossvit_tiny_240": 240,
    "deit_tiny_patch16_224": 64,
    "deit3_small_patch16_224": 64,
    "eva02_tiny_patch14_224": 56,
    "gcvit_xxtiny": 224,
    "hiera_tiny_224": 224,
    "coatnet_nano_rw_224": 224,
    "maxvit_pico_rw_256": 256,
    "mixer_s32_224": 64,
    "resmlp_12_224": 64,
    "gmlp_s16_224": 64,
    "mvitv2_tiny": 64,
    "nest_tiny": 224,
    "sequencer2d_s": 64,
    "swin_tiny_patch4_window7_224": 224,
    "swinv2_tiny_window8_256": 128,
    "swinv2_cr_tiny_224": 224,
    "tiny_vit_5m_224": 224,
    "tnt_s_patch16_224": 64,
    "twins_svt_small": 224,
    "visformer_tiny": 224,
    "vit_tiny_patch16_224": 64,
    "vit_tiny_r_s16_p8_224": 64,
    "vit_relpos_small_patch16_224": 64,
    "samvit_base_patch16_224": 64,
    "vitamin_small_224": 64,
    "volo_d1_224": 224,
    "xcit_nano_12_p16_224": 64,
    "vit_small_patch14_dinov2": 56,
}
"""Transformers, which are built for one image size."""


def architectures() -> list[Architecture]:
    """All architectures of this module."""
    import timm

    fixed = [Architecture(f"timm/{name}", partial(_make, timm, name, size)) for name, size in FIXED.items()]
    sized = [Architecture(f"timm/{name}", partial(_sized, timm, name, size)) for name, size in SIZED.items()]
    return fixed + sized


def _make(timm: Any, name: str, size: int) -> tuple[nn.Module, Inputs]:
    return timm.create_model(name).eval(), image(size)


def _sized(timm: Any, name: str, size: int) -> tuple[nn.Module, Inputs]:
    native = size >= 224
    return timm.create_model(name, **({} if native else {"img_size": size})).eval(), image(size)
