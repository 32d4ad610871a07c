"""Softmax, and batch, group and layer normalization. Narrow floats are computed in float32, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from tvm import relax

from worker.compiler.translation.dtypes import dtype_name, wide
from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, fixed, shape_of
from worker.compiler.translation.rule import Decomposition, Rules, Translate, rules_of

_NORMED = ("float32", "float16")


def _exponentials(operation: Callable[[relax.Expr, int], relax.Expr]) -> Translate:
    def translate(emit: Emitter, data: relax.Expr, axis: int, to_float: bool) -> relax.Expr:
        """A tensor of rank 0 is computed with one axis."""
        shape = shape_of(data)
        rows = data if shape else emit(relax.op.reshape(data, (1,)))
        found = emit(operation(emit.cast(rows, wide(dtype_of(data))), axis_of(axis, len(shape))))
        return emit.cast(found if shape else emit(relax.op.reshape(found, ())), emit.dtype)

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
) -> tuple[Any, ...]:
    """Relax's group norm does not support bfloat16."""
    own = dtype_of(data)
    dtype = wide(own) if own == "bfloat16" else own
    gamma = emit.full((channels,), 1.0, dtype) if weight is None else emit.cast(weight, dtype)
    beta = emit.full((channels,), 0.0, dtype) if bias is None else emit.cast(bias, dtype)
    axes = list(range(2, len(shape_of(data))))
    normed = relax.op.nn.group_norm(
        emit.cast(data, dtype), gamma, beta, num_groups=groups, channel_axis=1, axes=axes, epsilon=epsilon
    )
    rows = (batch, groups, channels // groups * elements)
    return emit.cast(emit(normed), own), *_statistics(emit, data, epsilon, rows, 1)


def _layer_norm(
    emit: Emitter,
    data: relax.Expr,
    sizes: list[int],
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    epsilon: float,
) -> tuple[Any, ...]:
    """Relax's layer norm supports two dtypes; for others the norm is written out."""
    dtype = dtype_of(data)
    gamma = emit.full(tuple(sizes), 1.0, dtype) if weight is None else weight
    beta = emit.full(tuple(sizes), 0.0, dtype) if bias is None else bias
    axes = list(range(-len(sizes), 0))
    statistics = _statistics(emit, data, epsilon, shape_of(data), len(sizes))
    if dtype in _NORMED:
        return emit(relax.op.nn.layer_norm(data, gamma, beta, axes=axes, epsilon=epsilon)), *statistics
    values, scales, shifts = (emit.cast(part, wide(dtype)) for part in (data, gamma, beta))
    centered = emit(values - emit(relax.op.mean(values, axes, keepdims=True)))
    variance = emit(relax.op.mean(emit(centered * centered), axes, keepdims=True))
    deviation = emit(relax.op.sqrt(emit(variance + relax.const(epsilon, wide(dtype)))))
    normed = emit(emit(emit(centered / deviation) * scales) + shifts)
    return emit.cast(normed, dtype), *statistics


def _statistics(
    emit: Emitter, data: relax.Expr, epsilon: float, rows: tuple[Any, ...], count: int
) -> tuple[Any, Any]:
    """Mean and inverse deviation over the last axes, if the program reads them, as for gradients."""
    if not (emit.reads(1) or emit.reads(2)):
        return None, None
    dtype, axes = wide(dtype_of(data)), list(range(-count, 0))
    values = emit(relax.op.reshape(emit.cast(data, dtype), rows))
    mean = emit(relax.op.mean(values, axes, keepdims=True))
    variance = emit(relax.op.variance(values, axes, keepdims=True))
    inverse = emit(relax.op.rsqrt(emit(variance + relax.const(epsilon, dtype))))
    shapes = [result.shape for result in emit.results[1:]]
    dtypes = [dtype_name(result.dtype) for result in emit.results[1:]]
    mean, inverse = (
        emit(relax.op.reshape(emit.cast(one, dtype), fixed(tuple(shape), "statistics of a norm")))
        for one, dtype, shape in zip((mean, inverse), dtypes, shapes, strict=True)
    )
    return mean, inverse


_aten = torch.ops.aten


def _norm_of_batch(
    data: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Data normalized by the batch's own statistics; also its mean, variance and inverse deviation."""
    axes = [axis for axis in range(data.dim()) if axis != 1]
    shape = [-1 if axis == 1 else 1 for axis in range(data.dim())]
    variance, mean = torch.var_mean(data, axes, correction=0)
    inverse = (variance + epsilon).rsqrt()
    normed = (data - mean.reshape(shape)) * inverse.reshape(shape)
    if weight is not None:
        normed = normed * weight.reshape(shape)
    if bias is not None:
        normed = normed + bias.reshape(shape)
    return normed, mean, variance, inverse


def _batch_norm(
    data: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    """With the batch's statistics: TVM's converter always uses the running ones."""
    if not training:
        return _aten._native_batch_norm_legit_no_training(
            data, weight, bias, mean, variance, momentum, epsilon
        )
    normed, own_mean, _, inverse = _norm_of_batch(data, weight, bias, epsilon)
    return normed, own_mean, inverse


def _mixed_batch_norm(
    data: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    epsilon: float,
) -> Any:
    """With statistics wider than the data, as under autocast. Relax needs one dtype."""
    if data.dtype == mean.dtype:
        return NotImplemented
    normed, *statistics = _aten._native_batch_norm_legit_no_training(
        data.to(mean.dtype), weight, bias, mean, variance, momentum, epsilon
    )
    return normed.to(data.dtype), *statistics


def _batch_norm_without(
    data: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    """Batch norm without running statistics."""
    return _batch_norm(data, weight, bias, None, None, True, momentum, epsilon)


def _batch_norm_and_statistics(
    data: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    """Batch norm that also returns the updated running statistics."""
    if not training:
        return NotImplemented
    normed, own_mean, own_variance, inverse = _norm_of_batch(data, weight, bias, epsilon)
    count = data.numel() // data.shape[1]
    unbiased = own_variance * (count / max(count - 1, 1))
    moved = (
        running + momentum * (own - running) for running, own in ((mean, own_mean), (variance, unbiased))
    )
    return (normed, own_mean, inverse, *moved)


_TRANSLATIONS: dict[str, Translate] = {
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten._softmax.default": _exponentials(relax.op.nn.softmax),
    "aten._log_softmax.default": _exponentials(relax.op.nn.log_softmax),
}

RULES: Rules = (
    *rules_of(_TRANSLATIONS),
    Decomposition("aten.native_batch_norm.default", _batch_norm),
    Decomposition("aten._native_batch_norm_legit_no_training.default", _mixed_batch_norm),
    Decomposition("aten._native_batch_norm_legit.default", _batch_norm),
    Decomposition("aten._native_batch_norm_legit.no_stats", _batch_norm_without),
    Decomposition("aten._native_batch_norm_legit_functional.default", _batch_norm_and_statistics),
)
