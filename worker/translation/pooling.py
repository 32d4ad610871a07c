"""Pooling to a given size, and interpolation."""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from tvm import relax, te, tirx

from worker.translation.emitter import Emitter, fixed, shape_of
from worker.translation.rule import Decomposition, Rules, Translate, rules_of


def _adaptive_max(rank: int) -> Translate:
    """The values; nobody's eyes see the places but a later unpooling's, which is refused."""

    def translate(emit: Emitter, data: relax.Expr, sizes: list[int]) -> tuple[Any, None]:
        unbatched = len(shape_of(data)) == rank + 1
        batched = emit(relax.op.expand_dims(data, 0)) if unbatched else data
        given = fixed(shape_of(batched)[2:], "pooling")
        pooled = emit.tensor_expression(_adaptive_max_pool, batched, given, sizes)
        return (emit(relax.op.squeeze(pooled, [0])) if unbatched else pooled), None

    return translate


def _adaptive_max_pool(x: te.Tensor, given: tuple[int, ...], wanted: list[int]) -> te.Tensor:
    """The largest from ``floor(i * given / wanted)`` to before ``ceil((i + 1) * given / wanted)``.

    All windows have the length of the longest; shorter ones meet their last element again.
    """
    pairs = list(zip(given, wanted, strict=True))
    lengths = [max(_end(i, *pair) - _start(i, *pair) for i in range(pair[1])) for pair in pairs]
    taps = [te.reduce_axis((0, length), "tap") for length in lengths]
    largest = te.comm_reducer(lambda one, other: tirx.max(one, other), _least)

    def element(n: Any, c: Any, *place: Any) -> Any:
        at = [_within(i, tap, *pair) for i, tap, pair in zip(place, taps, pairs, strict=True)]
        return largest(x(n, c, *at), axis=taps)

    return te.compute([*x.shape[:2], *wanted], element, name="adaptive_max_pool")


def _least(dtype: str) -> Any:
    """What no element is below; TVM's own maximum starts above negative infinity."""
    return tirx.const(-inf, dtype) if "float" in dtype else tirx.min_value(dtype)


def _within(place: Any, tap: Any, given: int, wanted: int) -> Any:
    if given % wanted == 0:
        return place * (given // wanted) + tap
    return tirx.Min(_start(place, given, wanted) + tap, _end(place, given, wanted) - 1)


def _start(place: Any, given: int, wanted: int) -> Any:
    return place * given // wanted


def _end(place: Any, given: int, wanted: int) -> Any:
    return ((place + 1) * given + (wanted - 1)) // wanted


def _from_torch(operator: torch._ops.OpOverload) -> Decomposition:
    """torch's own decomposition, which ``torch.export`` leaves out."""
    return Decomposition(str(operator), torch._decomp.decomposition_table[operator])


RULES: Rules = (
    *rules_of(
        {
            "aten.adaptive_max_pool1d.default": _adaptive_max(1),
            "aten.adaptive_max_pool2d.default": _adaptive_max(2),
            "aten.adaptive_max_pool3d.default": _adaptive_max(3),
        }
    ),
    _from_torch(torch.ops.aten.upsample_bilinear2d.default),
    _from_torch(torch.ops.aten.grid_sampler_2d.default),
)
