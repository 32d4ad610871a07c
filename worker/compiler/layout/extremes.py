"""Largest and smallest of several numbers from infinity on: TVM starts from the last finite number."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from tvm import te, tirx

Reduce = Callable[..., Any]


def extreme(is_largest: bool, dtype: str) -> Reduce:
    """The reduction to the largest, or the smallest, number of a dtype; an infinity counts as one."""
    compare = tirx.max if is_largest else tirx.min
    return te.comm_reducer(lambda one, other: compare(one, other), lambda _dtype: first(is_largest, dtype))


def first(is_largest: bool, dtype: str) -> Any:
    """What no number is below, where the largest is looked for, or above."""
    if "float" in dtype:
        return tirx.const(-inf if is_largest else inf, dtype)
    return tirx.min_value(dtype) if is_largest else tirx.max_value(dtype)
