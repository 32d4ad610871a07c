"""Non-maximum suppression."""

from __future__ import annotations

from tvm import relax

from bessemer.detection import BATCHED_NMS
from worker.compiler.schedules.nest import INDEX
from worker.compiler.translation.compaction import leading
from worker.compiler.translation.emitter import Emitter, dtype_of, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Rules, rules_of
from worker.compiler.translation.suppression import write_suppression

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
    results = [((bound,), INDEX), ((1,), INDEX), ((bound,), "int8")]
    kept, count, _ = emit.call_loops(function, "suppress", operands, results)
    return leading(emit, kept, emit.size_from(count))


RULES: Rules = rules_of(
    {
        "torchvision.nms.default": _nms,
        f"{BATCHED_NMS.replace('::', '.')}.default": _suppressed,
    }
)
