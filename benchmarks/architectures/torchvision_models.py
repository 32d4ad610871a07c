"""Architectures of torchvision that don't use its compiled operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.architectures.entry import Architecture, Inputs, image
from bessemer.detection import Detector
from worker.compiler.frontend import torchvision_operators  # noqa: F401 - defines operators

CLASSIFIERS = {
    "alexnet": 96,
    "vgg11_bn": 64,
    "resnet18": 64,
    "resnet50": 64,
    "resnext50_32x4d": 64,
    "wide_resnet50_2": 64,
    "densenet121": 64,
    "inception_v3": 128,
    "googlenet": 64,
    "shufflenet_v2_x0_5": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "mobilenet_v3_large": 64,
    "mnasnet0_5": 64,
    "squeezenet1_1": 64,
    "efficientnet_b0": 64,
    "efficientnet_v2_s": 64,
    "regnet_y_400mf": 64,
    "regnet_x_400mf": 64,
    "convnext_tiny": 64,
    "swin_t": 64,
    "swin_v2_t": 64,
}
"""Models with the image size."""

SEGMENTERS = {"fcn_resnet50": 64, "deeplabv3_mobilenet_v3_large": 64, "lraspp_mobilenet_v3_large": 64}
VIDEO = {"r3d_18": 32, "mc3_18": 32, "r2plus1d_18": 32, "s3d": 224, "swin3d_t": 32}

DETECTORS = {
    "ssd300_vgg16": (300, 300),
    "ssdlite320_mobilenet_v3_large": (320, 320),
    "retinanet_resnet50_fpn": (128, 128),
    "fasterrcnn_mobilenet_v3_large_320_fpn": (128, 160),
}
"""Models with the height and width of the image."""

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
    "pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward(Tensor grad) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> "
    "(Tensor, Tensor)",
    "_roi_pool_backward(Tensor grad) -> Tensor",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
    "pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward(Tensor grad) -> Tensor",
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
    "pooled_width) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward(Tensor grad) -> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
    "_deform_conv2d_backward(Tensor grad) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
)
"""Schemas that torchvision needs at import if it was built for another torch; nothing calls them."""

_library: list[torch.library.Library] = []


def declare_operators() -> None:
    """Make torchvision importable without its compiled part."""
    if not _library:
        _library.append(torch.library.Library("torchvision", "FRAGMENT"))
        for schema in _OPERATORS:
            if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
                _library[0].define(schema)


def architectures() -> list[Architecture]:
    """All architectures of this module."""
    declare_operators()
    from torchvision import models

    made = [
        Architecture(f"torchvision/{name}", partial(_classifier, models, name, size))
        for name, size in CLASSIFIERS.items()
    ]
    made += [
        Architecture(f"torchvision/{make.__name__.strip('_')}", partial(make, models))
        for make in (_narrow_vit, _narrow_swin, _narrow_densenet, _narrow_shufflenet, _narrow_efficientnet)
    ]
    made.append(Architecture("torchvision/maxvit", partial(_maxvit, models)))
    made += [
        Architecture(f"torchvision/{name}", partial(_segmenter, models.segmentation, name, size))
        for name, size in SEGMENTERS.items()
    ]
    made += [
        Architecture(f"torchvision/{name}", partial(_video, models.video, name, size))
        for name, size in VIDEO.items()
    ]
    made.append(Architecture("torchvision/mvit_v2_s", partial(_mvit, models.video)))
    made += [
        Architecture(f"torchvision/{name}", partial(_detector, models.detection, name, sizes), is_alive=True)
        for name, sizes in DETECTORS.items()
    ]
    made.append(Architecture("torchvision/raft_small", partial(_raft, models.optical_flow)))
    return made


def _classifier(models: Any, name: str, size: int) -> tuple[nn.Module, Inputs]:
    options = {"init_weights": True} if name in ("inception_v3", "googlenet") else {}
    return getattr(models, name)(weights=None, **options).eval(), image(size)


def _narrow_swin(models: Any) -> tuple[nn.Module, Inputs]:
    model = models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0)
    return model.eval(), image(64)


def _narrow_densenet(models: Any) -> tuple[nn.Module, Inputs]:
    return models.DenseNet(8, (2, 2, 2, 2), 16).eval(), image(64)


def _narrow_shufflenet(models: Any) -> tuple[nn.Module, Inputs]:
    return models.ShuffleNetV2([2, 2, 2], [16, 32, 48, 64, 96]).eval(), image(64)


def _narrow_efficientnet(models: Any) -> tuple[nn.Module, Inputs]:
    block = models.efficientnet.MBConvConfig
    stages = [block(1, 3, 1, 16, 16, 1), block(6, 3, 2, 16, 24, 2), block(6, 5, 2, 24, 40, 2)]
    model = models.EfficientNet(stages, dropout=0.0, stochastic_depth_prob=0.0, last_channel=64)
    return model.eval(), image(64)


def _narrow_vit(models: Any) -> tuple[nn.Module, Inputs]:
    model = models.VisionTransformer(
        image_size=64, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128
    )
    nn.init.normal_(model.heads.head.weight)
    return model.eval(), image(64)


def _maxvit(models: Any) -> tuple[nn.Module, Inputs]:
    model = models.MaxVit(
        input_size=(64, 64),
        stem_channels=16,
        partition_size=2,
        block_channels=[16, 32],
        block_layers=[1, 1],
        head_dim=8,
        stochastic_depth_prob=0.0,
    )
    return model.eval(), image(64)


def _segmenter(models: Any, name: str, size: int) -> tuple[nn.Module, Inputs]:
    return getattr(models, name)(weights=None, weights_backbone=None).eval(), image(size)


def _detector(models: Any, name: str, sizes: tuple[int, int]) -> tuple[nn.Module, Inputs]:
    """A detector whose scores differ: random weights alone give every box the same."""
    resized = {} if name.startswith("ssd") else {"min_size": min(sizes), "max_size": max(sizes)}
    model = getattr(models, name)(weights=None, weights_backbone=None, num_classes=5, **resized)
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    with torch.no_grad():
        model.backbone.train()(torch.randn(4, 3, *sizes))
    for place, parameter in model.named_parameters():
        if norms and parameter.ndim > 1 and any(head in place for head in ("cls_", "classification_head")):
            nn.init.normal_(parameter, std=3 / parameter[0].numel() ** 0.5)
    return Detector(model), (torch.rand(3, *sizes),)


def _video(models: Any, name: str, size: int) -> tuple[nn.Module, Inputs]:
    frames = 16 if name == "s3d" else 4
    return getattr(models, name)(weights=None).eval(), (torch.randn(1, 3, frames, size, size),)


def _mvit(models: Any) -> tuple[nn.Module, Inputs]:
    return models.mvit_v2_s(weights=None).eval(), (torch.randn(1, 3, 16, 224, 224),)


class _LastFlow(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return self.model(first, second, num_flow_updates=1)[-1]


def _raft(models: Any) -> tuple[nn.Module, Inputs]:
    return _LastFlow(models.raft_small(weights=None)).eval(), (*image(128), *image(128))
