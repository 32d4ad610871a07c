"""torch's dtypes and type promotion, with TVM's dtype names."""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from worker.compiler.translation.errors import UntranslatableError

NARROW_FLOATS = frozenset({"float16", "bfloat16"})


def dtype_name(dtype: torch.dtype) -> str:
    """TVM's name of a torch dtype.

    Raises:
        UntranslatableError: for a complex or quantized dtype.
    """
    name = str(dtype).removeprefix("torch.")
    if not name.startswith(("bool", "int", "uint", "float", "bfloat")):
        raise UntranslatableError(f"tensors of {name}")
    return name


def wide(dtype: str) -> str:
    """The dtype in which torch sums values of ``dtype``."""
    return "float32" if dtype in NARROW_FLOATS else dtype


def is_floating(dtype: str) -> bool:
    """Whether a dtype is a floating-point type."""
    return "float" in dtype


def is_number(value: Any) -> bool:
    """Whether a value is a Python number."""
    return isinstance(value, bool | int | float)


def wrapped(value: Any, dtype: str) -> Any:
    """A number in the range of a dtype, into which torch wraps integers."""
    if type(value) is not int or is_floating(dtype) or dtype == "bool":
        return value
    limits = torch.iinfo(getattr(torch, dtype))
    return (value - limits.min) % (1 << limits.bits) + limits.min


def common_dtype(values: list[Any]) -> str:
    """The dtype to which torch promotes tensors and numbers together."""
    found = elementwise_dtypes(*values, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    return dtype_name(found[1])


def smallest(dtype: str) -> float | int | bool:
    """The smallest value of a dtype, the initial value of a maximum."""
    return _limits(dtype)[0]


def largest(dtype: str) -> float | int | bool:
    """The largest value of a dtype, the initial value of a minimum."""
    return _limits(dtype)[1]


def _limits(dtype: str) -> tuple[Any, Any]:
    if is_floating(dtype):
        return float("-inf"), float("inf")
    if dtype == "bool":
        return False, True
    limits = torch.iinfo(getattr(torch, dtype))
    return limits.min, limits.max
