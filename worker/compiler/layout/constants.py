"""Constant tensors as arrays, without copies: parameters are most of a model's bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst

Array = NDArray[Any]


def array_of(constant: GenericConst) -> Array:
    """The elements of a constant, in place; a copy for types that numpy lacks, such as bfloat16."""
    try:
        return np.from_dlpack(constant.value)
    except (BufferError, RuntimeError, TypeError):
        return constant.value.numpy()


def numpy_of(expression: relax.Expr) -> Array | None:
    """A copy of a constant's elements; None for other expressions, and for dtypes that numpy lacks."""
    if not isinstance(expression, GenericConst) or "bfloat" in str(expression.value.dtype):
        return None
    return expression.value.numpy()


def constant_of(values: Array) -> GenericConst:
    """A constant with the elements and the dtype of an array, copied once; types that numpy lacks, twice.

    torch copies transposed arrays three times as fast as numpy, but does not accept negative strides.
    """
    values = np.asarray(values)  # numpy computes scalars from arrays without dimensions
    if values.dtype.isbuiltin != 1:
        return relax.const(values, str(values.dtype))
    tensor = tvm.runtime.empty(values.shape, str(values.dtype))
    is_reversed = any(stride < 0 for stride in values.strides)
    torch.from_dlpack(tensor).copy_(torch.from_dlpack(values.copy() if is_reversed else values))
    return relax.const(tensor)
