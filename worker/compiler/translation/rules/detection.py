"""Operators of torchvision's detection models, and their definitions where torchvision is not installed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from tvm import relax

from bessemer.detection import BATCHED_NMS, suppress
from worker.compiler.schedules.nest import INDEX
from worker.compiler.translation.compaction import leading
from worker.compiler.translation.emitter import Emitter, dtype_of, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Rules, rules_of
from worker.compiler.translation.suppression import SIDES, write_suppression

_COMPUTED = ("float32", "float64")


def _nms(emit: Emitter, boxes: relax.Expr, scores: relax.Expr, threshold: float) -> relax.Expr:
    return _suppressed(emit, boxes, scores, None, threshold)


def _suppressed(
    emit: Emitter, boxes: relax.Expr, scores: relax.Expr, groups: relax.Expr | None, threshold: float
) -> relax.Expr:
    """The places of the boxes that stay, by descending score."""
    dtype = dtype_of(boxes)
    if dtype not in _COMPUTED:
        raise UntranslatableError(f"suppression of {dtype} boxes: cast them to float32")
    bound = shape_of(boxes)[0]
    order = emit(relax.op.argsort(scores, 0, True, INDEX))
    ordered = emit(relax.op.permute_dims(emit(relax.op.take(boxes, order, axis=0, mode="clip")), [1, 0]))
    operands = [ordered, order]
    if groups is not None:
        operands.append(emit(relax.op.take(emit.cast(groups, INDEX), order, axis=0, mode="clip")))
    function = write_suppression(bound, dtype, threshold, groups is not None)
    kinds = [relax.TensorType((size,), kind) for size, kind in ((bound, INDEX), (1, INDEX), (bound, "int8"))]
    found = emit.call_loops(function, "suppress", operands, kinds)
    kept, count = (emit(relax.TupleGetItem(found, item)) for item in (0, 1))
    return leading(emit, kept, emit.size_from(count))


def _nms_of_torch(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    return suppress(boxes, scores, None, iou_threshold)


def _number_of_kept(boxes: Tensor, *_: Any) -> Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _define() -> torch.library.Library:
    """Define torchvision's operators unless that package did, so that a file that calls them loads."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "nms"):
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", _nms_of_torch, "CPU")
        torch.library.register_fake("torchvision::nms", _number_of_kept, lib=library)
    return library


_LIBRARY = _define()
"""Keeps the operators defined: torch removes them with their library."""

RULES: Rules = rules_of(
    {
        "torchvision.nms.default": _nms,
        f"{BATCHED_NMS.replace('::', '.')}.default": _suppressed,
    }
)
