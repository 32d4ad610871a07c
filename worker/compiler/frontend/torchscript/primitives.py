"""TorchScript's ``prim`` nodes, one function each.

A primitive takes the step and the values of its inputs, and returns the values of its outputs. Primitives
that run blocks or read attributes are methods of the interpreter.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from worker.compiler.frontend.torchscript.data_numbers import kind_of
from worker.compiler.frontend.torchscript.plain_values import DTYPE_CODES, LAYOUTS, ScalarConstant, as_number
from worker.compiler.frontend.torchscript.script_graph import Step

Values = Sequence[object]
Primitive = Callable[[Step, list[object]], Values]


class ScriptRaisedError(Exception):
    """The model raised an exception; the message is the model's."""


def _single(compute: Callable[..., object]) -> Primitive:
    return lambda step, values: [compute(*values)]


def _dict_construct(step: Step, values: list[object]) -> Values:
    return [dict(zip(map(as_number, values[::2]), values[1::2], strict=True))]


def _list_construct(step: Step, values: list[object]) -> Values:
    return [list(values)]


def _tuple_construct(step: Step, values: list[object]) -> Values:
    return [tuple(values)]


def _unpack(step: Step, values: list[object]) -> Values:
    items = values[0]
    assert isinstance(items, list | tuple)
    if len(items) != len(step.outputs):
        raise ScriptRaisedError(f"expected {len(step.outputs)} values, found {len(items)}")
    return items


def _index(items: list[object] | tuple[object, ...], index: int) -> object:
    return items[index]


def _slice_tuple(step: Step, values: list[object]) -> Values:
    items = values[0]
    assert isinstance(items, tuple)
    return [items[slice(*step.span)]]


def _raise(step: Step, values: list[object]) -> Values:
    raise ScriptRaisedError(str(values[0]))


def _is_instance(step: Step, values: list[object]) -> Values:
    return [any(_is_of(values[0], kind) for kind in step.types)]


def _is_of(value: object, kind: Any) -> bool:
    """Whether a value is of a type of TorchScript. A plain number is not a tensor here."""
    match kind.kind():
        case "OptionalType" | "UnionType":
            return any(_is_of(value, each) for each in kind.containedTypes())
        case "NumberType":
            return kind_of(value) in (int, float)
        case "ListType" | "TupleType" | "DictType" as container if isinstance(value, list | tuple | dict):
            return isinstance(value, CONTAINERS[container]) and _contains_only(value, kind.containedTypes())
        case "ClassType" if isinstance(value, torch.ScriptObject):
            return bool(value._type().isSubtypeOf(kind))
    found = kind_of(value) or type(value)
    return issubclass(found, PYTHON_TYPES.get(kind.kind(), ())) and not (
        found is bool and kind.kind() == "IntType"
    )


def _contains_only(value: list[object] | tuple[object, ...] | dict[object, object], kinds: list[Any]) -> bool:
    if isinstance(value, tuple):
        return len(value) == len(kinds) and all(map(_is_of, value, kinds))
    if isinstance(value, dict):
        return all(_is_of(key, kinds[0]) and _is_of(item, kinds[1]) for key, item in value.items())
    return all(_is_of(item, kinds[0]) for item in value)


class _Uninitialized:
    """The type of ``UNINITIALIZED``."""


UNINITIALIZED = _Uninitialized()
"""The value of a variable on a path through the script that neither sets nor reads it."""


def _nothing(step: Step, values: list[object]) -> Values:
    return [None] * len(step.outputs)


def _to_number(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.item()
    return as_number(value)


PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "TensorType": (torch.Tensor, ScalarConstant),
    "NoneType": type(None),
    "IntType": int,
    "FloatType": float,
    "BoolType": bool,
    "StringType": str,
    "AnyListType": list,
    "AnyTupleType": tuple,
    "DeviceObjType": torch.device,
}
CONTAINERS: dict[str, type] = {"ListType": list, "TupleType": tuple, "DictType": dict}

PRIMITIVES: dict[str, Primitive] = {
    "prim::ListConstruct": _list_construct,
    "prim::TupleConstruct": _tuple_construct,
    "prim::DictConstruct": _dict_construct,
    "prim::ListUnpack": _unpack,
    "prim::TupleUnpack": _unpack,
    "prim::TupleIndex": _single(_index),
    "prim::TupleSlice": _slice_tuple,
    "prim::NumToTensor": _single(as_number),
    "prim::ImplicitTensorToNum": _single(_to_number),
    "prim::isinstance": _is_instance,
    "prim::unchecked_cast": _single(lambda value: value),
    "prim::unchecked_unwrap_optional": _single(lambda value: value),
    "aten::_unwrap_optional": _single(lambda value: value),
    "prim::data": _single(lambda tensor: tensor.detach()),
    "prim::Uninitialized": lambda step, values: [UNINITIALIZED] * len(step.outputs),
    "prim::Print": _nothing,
    "aten::warn": _nothing,
    "prim::RaiseException": _raise,
    "prim::device": _single(lambda tensor: tensor.device),
    "prim::dtype": _single(lambda tensor: DTYPE_CODES[tensor.dtype]),
    "prim::layout": _single(lambda tensor: LAYOUTS.index(tensor.layout)),
    "prim::type": _single(lambda device: device.type),
    "prim::is_cuda": _single(lambda tensor: tensor.is_cuda),
    "prim::is_cpu": _single(lambda tensor: tensor.is_cpu),
    "prim::is_sparse": _single(lambda tensor: tensor.is_sparse),
    "prim::is_quantized": _single(lambda tensor: tensor.is_quantized),
    "prim::requires_grad": _single(lambda tensor: tensor.requires_grad),
    "aten::device": _single(torch.device),
    "aten::is_grad_enabled": _single(lambda: False),
    "aten::is_scripting": _single(lambda: True),
    "prim::rangelist": _single(lambda count: list(range(count))),
}
