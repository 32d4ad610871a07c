"""A module that computes in float64, to tell rounding from mistakes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import tvm

_FLOAT_TYPE = re.compile(r'("type":"ir\.PrimType","data":\{"span":\d+,"dtype":")(float32|float16|bfloat16)"')


def widened(module: tvm.IRModule) -> tvm.IRModule:
    """The module with float64 in place of every floating-point type.

    Raises:
        Exception: any error of TVM, such as for a module with constants of another type.
    """
    text = _FLOAT_TYPE.sub(r'\1float64"', tvm.ir.save_json(module))
    return tvm.relax.transform.Normalize()(tvm.ir.load_json(text))


def widened_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, in float64 if it holds floating-point numbers."""
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype(np.float64) if is_float else array
