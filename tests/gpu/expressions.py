"""TIR expressions: each becomes a function from the active lanes to a value."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
from tvm import ir

from tests.gpu.faults import Fault, KernelFault
from tests.gpu.lanes import Lanes, Value, is_varying, spread
from tests.gpu.memory import numpy_dtype

Evaluate = Callable[[Lanes], Value]


def element_type(type_name: str) -> tuple[np.dtype, int]:
    """The NumPy type and the number of elements of a type such as ``float16x4``."""
    name, _, lanes = type_name.partition("x")
    return numpy_dtype(name), int(lanes or 1)


def type_of(node: Any) -> tuple[np.dtype, int]:
    return element_type(str(node.ty.dtype))


def number(value: Any, dtype: np.dtype) -> Value:
    """A uniform value: integers and truth values are Python's, others NumPy's."""
    if dtype.kind in "biu":
        return int(value) if dtype.kind != "b" else bool(value)
    return dtype.type(value)


def settle(value: Value, dtype: np.dtype) -> Value:
    """The result of an operator in the type that TIR gives it."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == dtype else value.astype(dtype)
    if dtype.kind in "iu":
        result = int(value)
        info = np.iinfo(dtype)
        if not info.min <= result <= info.max:
            return int(np.array(result & (2**info.bits - 1), f"u{dtype.itemsize}").astype(dtype))
        return result
    return number(value, dtype)


def cast(value: Value, dtype: np.dtype) -> Value:
    """``Cast``: like ``settle``, but numbers with a fraction are cut off and infinities do not warn."""
    if isinstance(value, np.ndarray):
        return value.astype(dtype)
    if dtype.kind in "iu" and not isinstance(value, int):
        return int(value)
    return settle(value, dtype)


def _nonzero(divisor: Value) -> None:
    if not np.all(divisor):
        raise KernelFault(Fault.DIVISION, "the divisor is zero")


def _truncated_quotient(a: Value, b: Value) -> Value:
    return (a - np.fmod(a, b)) // b


def divide(a: Value, b: Value, dtype: np.dtype) -> Value:
    """``Div``: toward zero for integers."""
    if dtype.kind not in "iu":
        return np.divide(a, b)
    _nonzero(b)
    return _truncated_quotient(a, b)


def remainder(a: Value, b: Value, dtype: np.dtype) -> Value:
    """``Mod``: the sign of the dividend."""
    if dtype.kind in "iu":
        _nonzero(b)
    return np.fmod(a, b)


def floor_divide(a: Value, b: Value, dtype: np.dtype) -> Value:
    if dtype.kind in "iu":
        _nonzero(b)
    return a // b


def floor_remainder(a: Value, b: Value, dtype: np.dtype) -> Value:
    if dtype.kind in "iu":
        _nonzero(b)
    return a % b


def minimum(a: Value, b: Value, dtype: np.dtype) -> Value:
    """``Min`` is ``fminf`` for floats, which prefers a number to NaN."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.fmin(a, b)


def maximum(a: Value, b: Value, dtype: np.dtype) -> Value:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.fmax(a, b)


def _plain(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value, np.dtype], Value]:
    return lambda a, b, _: function(a, b)


BINARY: dict[str, Callable[[Value, Value, np.dtype], Value]] = {
    "Add": _plain(operator.add),
    "Sub": _plain(operator.sub),
    "Mul": _plain(operator.mul),
    "Div": divide,
    "Mod": remainder,
    "FloorDiv": floor_divide,
    "FloorMod": floor_remainder,
    "Min": minimum,
    "Max": maximum,
    "EQ": _plain(operator.eq),
    "NE": _plain(operator.ne),
    "LT": _plain(operator.lt),
    "LE": _plain(operator.le),
    "GT": _plain(operator.gt),
    "GE": _plain(operator.ge),
    "BitwiseAnd": _plain(operator.and_),
    "BitwiseOr": _plain(operator.or_),
    "BitwiseXor": _plain(operator.xor),
    "LShift": _plain(operator.lshift),
    "RShift": _plain(operator.rshift),
}


def _with_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Value], Value]:
    def call(value: Value) -> Value:
        return function(torch.from_numpy(np.array(value, np.float64))).numpy()

    return call


def _sigmoid(value: Value) -> Value:
    return 1 / (1 + np.exp(-value))


def _leading_zeros(value: Value) -> Value:
    """Of 32 bits."""
    return 31 - np.floor(np.log2(np.asarray(value, np.float64) + 0.5)).astype(np.int32)


UNARY: dict[str, Callable[[Value], Value]] = {
    **{
        name: getattr(np, name)
        for name in (
            *(
                "exp",
                "exp2",
                "log",
                "log2",
                "log10",
                "log1p",
                "sqrt",
                "sin",
                "cos",
                "tan",
                "sinh",
                "cosh",
                "tanh",
            ),
            *("floor", "ceil", "trunc", "isnan", "isinf", "isfinite"),
        )
    },
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _with_torch(torch.erf),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "fabs": np.abs,
    "abs": np.abs,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "nearbyint": np.rint,
    "popcount": np.bitwise_count,
    "clz": _leading_zeros,
    "bitwise_not": np.invert,
    "likely": lambda x: x,
}


CALLS_OF_TWO: dict[str, Callable[[Value, Value], Value]] = {
    "pow": np.power,
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "ldexp": np.ldexp,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "shift_left": operator.lshift,
    "shift_right": operator.rshift,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}

EXTERNAL = {"erff": "erf", "erf": "erf", "__expf": "exp", "expf": "exp", "fabsf": "fabs", "tanhf": "tanh"}


def reinterpret(value: Value, source: np.dtype, target: np.dtype) -> Value:
    """The bits of a value as another type of the same size."""
    array = np.array(value, source)
    result = np.ascontiguousarray(array).view(target)
    return result if isinstance(value, np.ndarray) else number(result.reshape(-1)[0], target)


def branch(lanes: Lanes, condition: Value, one: Evaluate, other: Evaluate, dtype: np.dtype) -> Value:
    """``c ? a : b``: each lane evaluates one side only."""
    if isinstance(condition, np.ndarray) and condition.ndim == 2:
        return np.where(condition, one(lanes), other(lanes))
    if not is_varying(condition):
        return one(lanes) if condition else other(lanes)
    if condition.all():
        return one(lanes)
    if not condition.any():
        return other(lanes)
    yes, no = lanes.where(condition), lanes.where(~condition)
    chosen, rest = spread(one(yes), yes.count), spread(other(no), no.count)
    result = np.empty((lanes.count, *chosen.shape[1:]), dtype)
    result[yes.picked] = chosen
    result[no.picked] = rest
    return result


def both(lanes: Lanes, one: Evaluate, other: Evaluate, stop: bool) -> Value:
    """``and`` (stop at false) and ``or`` (stop at true): decided lanes skip the second part."""
    first = one(lanes)
    if not is_varying(first):
        return bool(first) if bool(first) == stop else other(lanes)
    undecided = first != stop
    if undecided.all():
        return other(lanes)
    if not undecided.any():
        return first
    rest = lanes.where(undecided)
    result = first.copy()
    result[rest.picked] = other(rest)
    return result


def constant(node: Any) -> Evaluate:
    dtype, _ = type_of(node)
    value = number(node.value, dtype)
    return lambda _: value


def limit(name: str, dtype: np.dtype) -> Value:
    """``infinity``, ``max_value`` or ``min_value`` of a type."""
    if name == "infinity":
        return number(math.inf, dtype)
    info = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)
    return number(info.max if name == "max_value" else info.min, dtype)


def call_name(node: Any) -> str:
    """What a call calls, without TVM's prefixes."""
    return str(getattr(node.op, "name", node.op)).removeprefix("tirx.").removeprefix("prim.")


def is_call(node: Any, name: str) -> bool:
    return isinstance(node, ir.Call) and call_name(node) == name
