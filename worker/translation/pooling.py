"""Pooling to a given size, and interpolation."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax, topi

from worker.translation.emitter import Emitter, shape_of
from worker.translation.rule import Decomposition, Rules, Translate, rules_of

_POOLS = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}
_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _adaptive_max(rank: int) -> Translate:
    """The values; nobody's eyes see the places but a later unpooling's, which is refused."""

    def translate(emit: Emitter, data: relax.Expr, sizes: list[int]) -> tuple[Any, None]:
        unbatched = len(shape_of(data)) == rank + 1
        batched = emit(relax.op.expand_dims(data, 0)) if unbatched else data
        pooled = emit.tensor_expression(_POOLS[rank], batched, tuple(sizes), "max", _LAYOUTS[rank])
        return (emit(relax.op.squeeze(pooled, [0])) if unbatched else pooled), None

    return translate


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
