"""Values other than tensors in a TorchScript graph, and Python implementations of operators on them.

A trace records sizes and numbers as tensors of rank 0 (``prim::NumToTensor``, constants). Here they stay
plain numbers, so that ``torch.export`` sees shapes instead of data. Dynamic sizes stay symbols.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch

Number = int | float | bool
NUMBER_DTYPES = (torch.int64, torch.float64, torch.bool)


@dataclass(frozen=True, eq=False)
class ScalarConstant:
    """A constant tensor of rank 0, usable as a number and as its registered buffer."""

    number: Number
    tensor: Callable[[], torch.Tensor]


def as_number(value: object) -> object:
    """The number of a scalar constant; other values are returned unchanged."""
    return value.number if isinstance(value, ScalarConstant) else value


def holds_tensor(value: object) -> bool:
    """Whether a value is a tensor or contains one."""
    if isinstance(value, list | tuple):
        return any(holds_tensor(item) for item in value)
    if isinstance(value, dict):
        return any(holds_tensor(item) for item in value.values())
    return isinstance(value, torch.Tensor)


# By the number of c10::ScalarType.
_DTYPE_NAMES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 "
    "qint32 bfloat16"
)
DTYPES: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in _DTYPE_NAMES.split())
DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
LAYOUTS = (torch.strided, torch.sparse_coo)
MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


def _add(left: object, right: object, alpha: Number = 1) -> object:
    return left + right if alpha == 1 else left + right * alpha  # type: ignore[operator]


def _sub(left: Number, right: Number, alpha: Number = 1) -> Number:
    return left - right * alpha


def _div(left: Number, right: Number, rounding_mode: str | None = None) -> Number:
    if rounding_mode == "floor":
        return left // right
    return math.trunc(left / right) if rounding_mode == "trunc" else left / right


def _to(value: Number, first: int | str | None = None, *others: object) -> Number:
    """``Tensor.to``, whose dtype is the first argument, or the second after a device."""
    dtype = others[0] if isinstance(first, str) and others else first
    if not isinstance(dtype, int):
        return value
    kind = DTYPES[dtype]
    if kind == torch.bool:
        return bool(value)
    return torch.sym_float(value) if kind.is_floating_point else torch.sym_int(value)


def _clamp(value: Number, low: Number | None, high: Number | None) -> Number:
    above = value if low is None else max(value, low)
    return above if high is None else min(above, high)


def _slice(items: list[object], start: int | None, end: int | None, step: int = 1) -> list[object]:
    return items[start:end:step]


def _set_item(items: list[object] | dict[object, object], key: object, value: object) -> None:
    items[key] = value  # type: ignore[call-overload]


def _delete(items: list[object] | dict[object, object], key: object) -> None:
    del items[key]  # type: ignore[arg-type]


# Operators on values without tensors.
ON_NUMBERS: dict[str, Callable[..., object]] = {
    "aten::add": _add,
    "aten::sub": _sub,
    "aten::rsub": lambda left, right, alpha=1: right - left * alpha,
    "aten::mul": operator.mul,
    "aten::div": _div,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::pow": operator.pow,
    "aten::neg": operator.neg,
    "aten::abs": abs,
    "aten::ceil": math.ceil,
    "aten::floor": math.floor,
    "aten::round": round,
    "aten::sqrt": math.sqrt,
    "aten::exp": math.exp,
    "aten::log": math.log,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__not__": operator.not_,
    "aten::__lshift__": operator.lshift,
    "aten::__rshift__": operator.rshift,
    "aten::bitwise_and": operator.and_,
    "aten::bitwise_or": operator.or_,
    "aten::bitwise_xor": operator.xor,
    "aten::logical_and": lambda left, right: bool(left) and bool(right),
    "aten::logical_or": lambda left, right: bool(left) or bool(right),
    "aten::logical_not": operator.not_,
    "aten::bitwise_not": operator.invert,
    "aten::divmod": divmod,
    "aten::true_divide": operator.truediv,
    "aten::reciprocal": lambda value: 1 / value,
    "aten::square": lambda value: value * value,
    "aten::clamp": lambda value, low=None, high=None: _clamp(value, low, high),
    "aten::clone": lambda value, *_: value,
    "aten::alias": lambda value: value,
    "aten::lift_fresh": lambda value: value,
    "aten::trunc": math.trunc,
    "aten::maximum": max,
    "aten::minimum": min,
    "aten::Int": torch.sym_int,
    "aten::Float": torch.sym_float,
    "aten::Bool": bool,
    "aten::str": str,
    "aten::format": str.format,
    "aten::item": lambda value: value,
    "aten::ScalarImplicit": lambda value: value,
    "aten::IntImplicit": torch.sym_int,
    "aten::FloatImplicit": torch.sym_float,
    "aten::to": _to,
    "aten::detach": lambda value: value,
    "aten::contiguous": lambda value, *_: value,
    "prim::min": min,
    "prim::max": max,
    "prim::abs": abs,
    "aten::sum": sum,
    "aten::__range_length": lambda low, high, step: len(range(low, high, step)),
    "aten::__derive_index": lambda index, start, step: start + index * step,
}

# Operators on containers of any values, and identity.
ON_CONTAINERS: dict[str, Callable[..., object]] = {
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::len": len,
    "aten::__getitem__": operator.getitem,
    "aten::_set_item": _set_item,
    "aten::Delete": _delete,
    "aten::append": lambda items, item: [items.append(item), items][1],
    "aten::extend": lambda items, more: items.extend(more),
    "aten::insert": lambda items, index, item: items.insert(index, item),
    "aten::pop": lambda items, *key: items.pop(*key),
    "aten::clear": lambda items: items.clear(),
    "aten::reverse": lambda items: items.reverse(),
    "aten::copy": lambda items: items.copy(),
    "aten::list": list,
    "aten::dict": dict,
    "aten::slice": _slice,
    "aten::add": operator.add,
    "aten::add_": operator.iadd,
    "aten::mul": operator.mul,
    "aten::keys": lambda items: list(items.keys()),
    "aten::values": lambda items: list(items.values()),
    "aten::items": lambda items: list(items.items()),
    "aten::get": lambda items, *rest: items.get(*rest),
    "aten::setdefault": lambda items, key, value: items.setdefault(key, value),
    "aten::update": lambda items, more: items.update(more),
    "aten::popitem": lambda items: items.popitem(),
    "aten::remove": lambda items, item: items.remove(item),
    "aten::count": lambda items, item: items.count(item),
    "aten::sort": lambda items, reverse=False: items.sort(reverse=reverse),
    "aten::sorted": sorted,
    "aten::__contains__": lambda items, item: item in items,
    "aten::index": lambda items, item: items.index(item),
    "aten::sum": sum,
    "prim::min": min,
    "prim::max": max,
}
