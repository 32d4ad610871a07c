"""Integers that are ordered as torch orders the elements of a tensor, for sorts.

TVM's runtime compares floats with ``<``, which is no order where one is NaN: whole rows come out unsorted. It
has no code for integers of less than 32 bits. In torch NaN is above all numbers, and both zeros are equal.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

_WIDE = {
    "bfloat16": "float32",
    "bool": "int32",
    "float16": "float32",
    "int16": "int32",
    "int8": "int32",
    "uint16": "int32",
    "uint8": "int32",
}
_BITS_OF_INFINITY = {"float32": 0x7F800000, "float64": 0x7FF0000000000000}


def sort_keys(bb: relax.BlockBuilder, data: relax.Expr) -> relax.Expr | None:
    """A tensor of keys, int32 or int64; None where the elements themselves are as good."""
    dtype = str(data.ty.dtype)
    if dtype not in _WIDE and dtype not in _BITS_OF_INFINITY:
        return None
    return bb.emit(bb.call_te(_keys, data, primfunc_name_hint="sort_keys"))


def _keys(data: te.Tensor) -> te.Tensor:
    wide = _WIDE.get(str(data.dtype), str(data.dtype))
    return te.compute(data.shape, lambda *place: _key(data[place].astype(wide), wide), name="keys")


def _key(value: Any, dtype: str) -> Any:
    """The bits of a float without its sign, negated where it has one: above infinity is NaN only."""
    infinity = _BITS_OF_INFINITY.get(dtype)
    if infinity is None:
        return value
    integer = dtype.replace("float", "int")
    highest = tirx.max_value(integer)
    bits = tirx.reinterpret(integer, value)
    magnitude = bits & highest
    number = tirx.Select(bits < 0, -magnitude, magnitude)
    return tirx.Select(magnitude > tirx.const(infinity, integer), highest, number)
