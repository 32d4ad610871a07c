"""Integer keys that sort as torch sorts the elements of a tensor.

TVM compares floats with ``<``, which is false for NaN both ways. torch sorts NaN above all numbers and treats
both zeros as equal.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from worker.compiler.translation.emitter import Emitter, dtype_of

WIDE = dict.fromkeys(("bfloat16", "float16"), "float32") | dict.fromkeys(
    ("bool", "int8", "int16", "uint8", "uint16"), "int32"
)
"""The wider dtype that provides the keys of a narrow one."""
BITS_OF_INFINITY = {"float32": 0x7F800000, "float64": 0x7FF0000000000000}
_BITS_OF_NAN = {"float32": 0x7FC00000, "float64": 0x7FF8000000000000}
"""The NaN that keys stand for. With more bits set, it would overflow when TVM rounds it to bfloat16."""


def key_of(value: Any, dtype: str, nan_is_highest: bool = True) -> Any:
    """A float's magnitude bits, negated if its sign bit is set. Only NaN lies beyond infinity."""
    infinity = BITS_OF_INFINITY.get(dtype)
    if infinity is None:
        return value
    integer = dtype.replace("float", "int")
    highest = tirx.max_value(integer)
    bits = tirx.reinterpret(integer, value)
    magnitude = bits & highest
    number = tirx.Select(bits < 0, -magnitude, magnitude)
    of_nan = tirx.const(_BITS_OF_NAN[dtype] if nan_is_highest else -_BITS_OF_NAN[dtype], integer)
    return tirx.Select(magnitude > tirx.const(infinity, integer), of_nan, number)


def keys(emit: Emitter, data: relax.Expr, nan_is_highest: bool) -> relax.Expr:
    """The keys of a tensor's elements. Integers are their own keys."""
    wide = WIDE.get(dtype_of(data), dtype_of(data))
    widened = emit.cast(data, wide)
    if wide not in BITS_OF_INFINITY:
        return widened

    def compute(tensor: te.Tensor) -> te.Tensor:
        return te.compute(tensor.shape, lambda *at: key_of(tensor(*at), wide, nan_is_highest), name="keys")

    return emit.tensor_expression(compute, widened)


def from_keys(emit: Emitter, found: relax.Expr, dtype: str) -> relax.Expr:
    """The values of a dtype that keys stand for."""
    wide = WIDE.get(dtype, dtype)
    if wide not in BITS_OF_INFINITY:
        return emit.cast(found, dtype)
    lowest = tirx.min_value(wide.replace("float", "int"))

    def number(key: Any) -> Any:
        return tirx.reinterpret(wide, tirx.Select(key < 0, -key | lowest, key))

    def compute(tensor: te.Tensor) -> te.Tensor:
        return te.compute(tensor.shape, lambda *at: number(tensor(*at)), name="numbers")

    return emit.cast(emit.tensor_expression(compute, found), dtype)
