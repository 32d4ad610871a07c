"""Softmax, of narrow floats in float32 as torch does; norms of groups of channels and of last dimensions."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from worker.translation.dtypes import wide
from worker.translation.emitter import Emitter, axis_of, dtype_of, shape_of
from worker.translation.rule import Rules, Translate, rules_of

_NORMED = ("float32", "float16")


def _exponentials(operation: Callable[[relax.Expr, int], relax.Expr]) -> Translate:
    def translate(emit: Emitter, data: relax.Expr, axis: int, to_float: bool) -> relax.Expr:
        axis = axis_of(axis, len(shape_of(data)))
        return emit.cast(emit(operation(emit.cast(data, wide(dtype_of(data))), axis)), emit.dtype)

    return translate


def _group_norm(
    emit: Emitter,
    data: relax.Expr,
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    batch: int,
    channels: int,
    elements: int,
    groups: int,
    epsilon: float,
) -> tuple[relax.Expr, None, None]:
    """The mean and the deviation, which only gradients need, are left out."""
    dtype = dtype_of(data)
    gamma = emit.full((channels,), 1.0, dtype) if weight is None else weight
    beta = emit.full((channels,), 0.0, dtype) if bias is None else bias
    axes = list(range(2, len(shape_of(data))))
    normed = relax.op.nn.group_norm(
        data, gamma, beta, num_groups=groups, channel_axis=1, axes=axes, epsilon=epsilon
    )
    return emit(normed), None, None


def _layer_norm(
    emit: Emitter,
    data: relax.Expr,
    sizes: list[int],
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    epsilon: float,
) -> tuple[relax.Expr, None, None]:
    """Relax's norm knows two dtypes; of others it is written out. What only gradients need is left out."""
    dtype = dtype_of(data)
    gamma = emit.full(tuple(sizes), 1.0, dtype) if weight is None else weight
    beta = emit.full(tuple(sizes), 0.0, dtype) if bias is None else bias
    axes = list(range(-len(sizes), 0))
    if dtype in _NORMED:
        return emit(relax.op.nn.layer_norm(data, gamma, beta, axes=axes, epsilon=epsilon)), None, None
    values, scales, shifts = (emit.cast(part, wide(dtype)) for part in (data, gamma, beta))
    centered = emit(values - emit(relax.op.mean(values, axes, keepdims=True)))
    variance = emit(relax.op.mean(emit(centered * centered), axes, keepdims=True))
    deviation = emit(relax.op.sqrt(emit(variance + relax.const(epsilon, wide(dtype)))))
    normed = emit(emit(emit(centered / deviation) * scales) + shifts)
    return emit.cast(normed, dtype), None, None


RULES: Rules = rules_of(
    {
        "aten.native_layer_norm.default": _layer_norm,
        "aten.native_group_norm.default": _group_norm,
        "aten._softmax.default": _exponentials(relax.op.nn.softmax),
        "aten._log_softmax.default": _exponentials(relax.op.nn.log_softmax),
    }
)
