"""Defines the operators of torchvision's detection models, so that a file that calls them loads.

Where torchvision is installed, it defines them itself. It cannot be imported after they are defined.
"""

from __future__ import annotations

import math
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from bessemer.detection import suppress as suppressed


def _nms_of_torch(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    return suppressed(boxes, scores, None, iou_threshold)


def _number_of_kept(boxes: Tensor, *_: Any) -> Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _roi_align_of_torch(
    data: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Average samples between pixels: a product with one matrix of weights for rows, one for columns."""
    found = [data.new_zeros((0, data.shape[1], pooled_height, pooled_width))]
    for number, *sides in rois.tolist():
        left, top, right, bottom = (side * spatial_scale - 0.5 * aligned for side in sides)
        rows = _weights(top, bottom, data.shape[2], pooled_height, sampling_ratio, aligned).to(data)
        columns = _weights(left, right, data.shape[3], pooled_width, sampling_ratio, aligned).to(data)
        found.append((rows @ data[int(number)] @ columns.T).unsqueeze(0))
    return torch.cat(found)


def _weights(first: float, last: float, size: int, bins: int, samples: int, aligned: bool) -> Tensor:
    """The share of each pixel of an axis in each bin."""
    length = last - first if aligned else max(last - first, 1.0)
    samples = samples if samples > 0 else max(math.ceil(length / bins), 1)
    at = first + (torch.arange(bins * samples, dtype=torch.float64) + 0.5) * (length / bins / samples)
    inside = (at >= -1) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor().long()
    high = (low + 1).clamp(max=size - 1)
    weights = torch.zeros(len(at), size, dtype=torch.float64)
    places = torch.arange(len(at))
    weights.index_put_((places, low), (low + 1 - at) * inside, accumulate=True)
    weights.index_put_((places, high), (at - low) * inside, accumulate=True)
    return weights.reshape(bins, samples, size).mean(1)


def _roi_align_shape(
    data: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, *_: Any
) -> Tensor:
    return data.new_empty((rois.shape[0], data.shape[1], pooled_height, pooled_width))


def _define() -> torch.library.Library:
    if find_spec("torchvision") is not None:
        with suppress(ImportError, RuntimeError):  # its compiled part may lack this version of torch
            import_module("torchvision")
    library = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "nms"):
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", _nms_of_torch, "CPU")
        torch.library.register_fake("torchvision::nms", _number_of_kept, lib=library)
    if not hasattr(torch.ops.torchvision, "roi_align"):
        library.define(
            "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
            "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"
        )
        library.impl("roi_align", _roi_align_of_torch, "CPU")
        torch.library.register_fake("torchvision::roi_align", _roi_align_shape, lib=library)
    return library


_LIBRARY = _define()
"""Keeps the operators defined: torch removes them with their library."""
