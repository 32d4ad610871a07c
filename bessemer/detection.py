"""Export torchvision's detection models, which take an image and return the boxes that they find.

``torch.export`` refuses these models as they are, because they choose their code by the number of boxes.
``Detector`` wraps one so that its forward has one path::

    from bessemer.detection import Detector

    model = torchvision.models.detection.retinanet_resnet50_fpn(weights="DEFAULT")
    client.submit(Detector(model), inputs={"image": photo})
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

BATCHED_NMS = "bessemer::batched_nms"

__all__ = ["BATCHED_NMS", "Detector", "batched_nms", "suppress"]


class Detector(nn.Module):
    """A detection model of torchvision as a function of one image.

    ``forward`` takes an image of shape ``[3, height, width]`` with values from 0 to 1. The result's
    ``boxes``, ``scores`` and ``labels`` are those of the model, in its order.
    """

    def __init__(self, model: nn.Module) -> None:
        """Wrap a model such as ``torchvision.models.detection.ssd300_vgg16()``."""
        super().__init__()
        self.model = model.eval()

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Find the boxes of an image."""
        with _one_path():
            (found,) = self.model([image])
        return {name: found[name] for name in ("boxes", "scores", "labels")}


def batched_nms(boxes: Tensor, scores: Tensor, groups: Tensor, iou_threshold: float) -> Tensor:
    """``torchvision.ops.batched_nms`` as one operator: a box suppresses only boxes of its own group."""
    found: Tensor = torch.ops.bessemer.batched_nms(boxes, scores, groups, iou_threshold)
    return found


@contextmanager
def _one_path() -> Iterator[None]:
    """Replace the functions of torchvision that branch on the number of boxes."""
    from torchvision.models.detection import _utils
    from torchvision.ops import boxes, poolers

    with ExitStack() as stack:
        for owner, name, function in (
            (boxes, "batched_nms", batched_nms),
            (_utils, "_topk_min", _smaller),
            (_utils.BoxCoder, "decode", _decode),
            (poolers, "_multiscale_roi_align", _align),
        ):
            stack.enter_context(patch.object(owner, name, function))
        yield


def _smaller(data: Tensor, count: int, axis: int) -> Any:
    return torch.sym_min(count, data.size(axis))


def _decode(coder: Any, codes: Tensor, boxes: list[Tensor]) -> Tensor:
    decoded = coder.decode_single(codes, torch.cat(boxes))
    return decoded.reshape(decoded.shape[0], decoded.shape[1] // 4, 4)


def _align(
    features: list[Tensor],
    boxes: list[Tensor],
    output_size: tuple[int, int],
    sampling_ratio: int,
    scales: list[float],
    mapper: Any,
) -> Tensor:
    """Cut each box out of the feature map of its level."""
    from torchvision.ops import poolers, roi_align

    rois = poolers._convert_to_roi_format(boxes)
    if len(features) == 1:
        return roi_align(features[0], rois, output_size, scales[0], sampling_ratio)
    levels = mapper(boxes)
    result = features[0].new_zeros((rois.shape[0], features[0].shape[1], *output_size))
    for level, (feature, scale) in enumerate(zip(features, scales, strict=True)):
        places = torch.where(levels == level)[0]
        aligned = roi_align(feature, rois[places], output_size, scale, sampling_ratio)
        result = result.index_put((places,), aligned)
    return result


def suppress(boxes: Tensor, scores: Tensor, groups: Tensor | None, iou_threshold: float) -> Tensor:
    """The indices of the boxes that stay, by descending score: the reference for both operators."""
    order = scores.argsort(descending=True, stable=True)
    left, top, right, bottom = boxes[order].unbind(1)
    areas = (right - left) * (bottom - top)
    ordered = None if groups is None else groups[order]
    suppressed = torch.zeros_like(order, dtype=torch.bool)
    for place in range(len(order)):
        if suppressed[place]:
            continue
        width = torch.minimum(right, right[place]) - torch.maximum(left, left[place])
        height = torch.minimum(bottom, bottom[place]) - torch.maximum(top, top[place])
        shared = width.clamp(min=0) * height.clamp(min=0)
        hit = (shared / (areas[place] + areas - shared)).double() > iou_threshold
        hit[: place + 1] = False
        suppressed |= hit if ordered is None else hit & (ordered == ordered[place])
    return order[~suppressed]


def _number_of_kept(boxes: Tensor, *_: Any) -> Tensor:
    """A result of unknown size, for torch's symbolic shapes."""
    number = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(number, dtype=torch.int64)


def _define() -> torch.library.Library:
    library = torch.library.Library("bessemer", "FRAGMENT")
    library.define(
        "batched_nms(Tensor boxes, Tensor scores, Tensor groups, float iou_threshold) -> Tensor",
        tags=(torch.Tag.dynamic_output_shape,),
    )
    library.impl("batched_nms", suppress, "CPU")
    torch.library.register_fake(BATCHED_NMS, _number_of_kept, lib=library)
    return library


_LIBRARY = _define()
"""Keeps the operator defined: torch removes it with its library."""
