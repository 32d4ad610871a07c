"""Reductions to the largest or smallest number that start from infinity; TVM's start from a finite one."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from tvm import te, tirx

Reduce = Callable[..., Any]


def extreme(is_largest: bool, dtype: str) -> Reduce:
    """The reduction to the largest or smallest number, infinities included."""
    compare = tirx.max if is_largest else tirx.min
    return te.comm_reducer(lambda one, other: compare(one, other), lambda _dtype: first(is_largest, dtype))


def first(is_largest: bool, dtype: str) -> Any:
    """The value that the reduction starts from: no number is smaller, or none is larger."""
    if "float" in dtype:
        return tirx.const(-inf if is_largest else inf, dtype)
    return tirx.min_value(dtype) if is_largest else tirx.max_value(dtype)
