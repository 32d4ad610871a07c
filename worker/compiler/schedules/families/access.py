"""How a read moves through memory as an axis advances."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.sym import Analyzer

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Axis, guess, uses


def step_along(load: Any, axis: Axis) -> int | None:
    """How many elements further on in memory a read is for the axis's next place; None where that varies."""
    step = 0
    stride: int | None = 1
    for index, size in reversed(list(zip(load.indices, load.source.shape, strict=True))):
        if uses(index, axis):
            ahead = nest.substitute(index, {axis.var: axis.var + 1})
            apart = _difference(ahead, index)
            if apart is None or stride is None:
                return None
            step += apart * stride
        if stride is not None:
            stride = stride * int(size) if isinstance(size, tirx.IntImm) else None
    return step


def stride_bytes(load: Any, axis: Axis) -> int:
    """How far apart the places lie that the axis names, as far as the shape tells."""
    stride = 1
    for index, size in reversed(list(zip(load.indices, load.source.shape, strict=True))):
        if uses(index, axis):
            break
        stride *= guess(size)
    return stride * int(tvm.DataType(str(load.source.dtype)).bits) // 8


def _difference(one: Any, other: Any) -> int | None:
    apart = Analyzer().simplify(one - other)
    return int(apart) if isinstance(apart, tirx.IntImm) else None
