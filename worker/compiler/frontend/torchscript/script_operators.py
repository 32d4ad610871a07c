"""Calls the operator of a TorchScript node: in Python on plain values, by ``torch.ops`` on tensors."""

from collections.abc import Callable
from functools import cache

import torch
from torch.utils import _pytree as pytree

from worker.compiler.frontend.torchscript.known_values import KnownValues
from worker.compiler.frontend.torchscript.plain_values import (
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    ON_CONTAINERS,
    ON_NUMBERS,
    ScalarConstant,
    as_number,
    holds_tensor,
)

Operator = Callable[..., object]

# Overloads that accept a number for a Tensor of their schema.
TAKES_NUMBERS = {
    f"aten::{name}{suffix}" for name in ("add", "sub", "mul", "div", "floor_divide") for suffix in ("", "_")
}

# Queries of tensors. They give plain values, so that control flow on them is resolved during export.
QUERIES: dict[str, Callable[..., object]] = {
    "aten::dim": torch.Tensor.dim,
    "aten::size": lambda tensor, *axis: tensor.size(*axis) if axis else list(tensor.size()),
    "aten::sym_size": lambda tensor, axis: tensor.size(axis),
    "aten::stride": lambda tensor, *axis: tensor.stride(*axis) if axis else list(tensor.stride()),
    "aten::numel": torch.Tensor.numel,
    "aten::len": len,
    "aten::is_floating_point": torch.Tensor.is_floating_point,
    "aten::is_complex": torch.Tensor.is_complex,
    "aten::Int": int,
    "aten::Float": float,
    "aten::Bool": bool,
    "aten::IntImplicit": int,
    "aten::FloatImplicit": float,
    "aten::ScalarImplicit": torch.Tensor.item,
    "aten::item": torch.Tensor.item,
    "aten::is_contiguous": lambda tensor, *_: tensor.is_contiguous(),
}


def _convolution(*arguments: object) -> object:
    return torch.ops.aten.convolution.default(*arguments[:9])


OF_NUMBERS = ("aten::tensor", "aten::as_tensor", "aten::scalar_tensor")
"""Operators that make a tensor of numbers; ``torch.ops`` does not take lists in their place."""

# Operators that traces record in a form that torch.export does not support.
SUBSTITUTES: dict[str, Operator] = {"aten::_convolution": _convolution}


class UnknownOperatorError(Exception):
    """A node calls an operator that neither this module nor ``torch.ops`` has."""


VALUES = frozenset(
    {
        "aten::Int",
        "aten::Float",
        "aten::Bool",
        "aten::IntImplicit",
        "aten::FloatImplicit",
        "aten::ScalarImplicit",
        "aten::item",
    }
)
"""Operators that turn a tensor into plain values."""


def call_operator(kind: str, schema: str, values: list[object], known: KnownValues) -> object:
    """Compute one node.

    Args:
        kind: the qualified name, such as ``aten::relu``.
        schema: the node's own schema, which names the overload.
        values: all arguments, in the schema's order.
        known: values of tensors, which this call adds to.

    Raises:
        UnknownOperatorError: the operator does not exist.
    """
    plain = _on_plain_values(kind, values)
    if plain is not None:
        return plain(*map(as_number, values))
    if kind in VALUES and known.has(values[0]):
        return known.computed(QUERIES[kind], [known.of(values[0])], {})
    if kind in QUERIES and values and isinstance(values[0], torch.Tensor):
        return QUERIES[kind](*map(as_number, values))
    if kind in OF_NUMBERS and not holds_tensor(values[0]):
        return _tensor_of_numbers(values[0], values[1], known)
    overload = _overload(kind, schema)
    positional, named = _arguments(kind, overload, values)
    result = SUBSTITUTES.get(kind, overload)(*positional, **named)
    known.follow(overload, positional, named, result)
    return result


def _tensor_of_numbers(items: object, code: object, known: KnownValues) -> torch.Tensor:
    """The tensor of a number or of nested lists of numbers."""
    numbers = pytree.tree_map(as_number, items)
    dtype = None if code is None else DTYPES[code]  # type: ignore[call-overload]
    made = torch.tensor(numbers, dtype=dtype)
    if all(isinstance(number, int | float) for number in pytree.tree_leaves(numbers)):
        known.add(made, known.computed(torch.tensor, [numbers], {"dtype": dtype}))
    return made


def _on_plain_values(kind: str, values: list[object]) -> Operator | None:
    identity = kind in ("aten::__is__", "aten::__isnot__")
    if kind in ON_CONTAINERS and values and (identity or isinstance(values[0], list | dict | tuple | str)):
        return ON_CONTAINERS[kind]
    if kind in ON_NUMBERS and not any(map(holds_tensor, values)):
        return ON_NUMBERS[kind]
    return None


@cache
def _overload(kind: str, schema: str) -> torch._ops.OpOverload:
    namespace, _, name = kind.partition("::")
    try:
        overload = torch._C.parse_schema(schema).overload_name or "default"
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except (AttributeError, RuntimeError) as error:
        raise UnknownOperatorError(f"unknown operator {kind} ({schema})") from error


def _arguments(
    kind: str, overload: torch._ops.OpOverload, values: list[object]
) -> tuple[list[object], dict[str, object]]:
    as_numbers = kind in TAKES_NUMBERS and any(_is_floating(value) for value in values)
    positional: list[object] = []
    named: dict[str, object] = {}
    for argument, value in zip(overload._schema.arguments, values, strict=True):
        converted = _convert(str(argument.real_type), value, as_numbers)
        if argument.kwarg_only:
            named[argument.name] = converted
        else:
            positional.append(converted)
    return positional, named


def _is_floating(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _convert(type_name: str, value: object, as_numbers: bool) -> object:
    """Convert a value to the form that ``torch.ops`` takes for an argument type."""
    base = type_name.removeprefix("Optional[").removesuffix("]") if "Optional[" in type_name else type_name
    if isinstance(value, list) and "Tensor" in base:
        return [_convert("Tensor", item, as_numbers=False) for item in value]
    if isinstance(value, ScalarConstant):
        return value.tensor() if base == "Tensor" and not as_numbers else value.number
    if isinstance(value, bool | int | float | torch.SymInt | torch.SymFloat) and base == "Tensor":
        return value if as_numbers else torch.tensor(value)
    if isinstance(value, list):
        return [as_number(item) for item in value]
    return _convert_code(base, value)


def _convert_code(base: str, value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        return torch.device(value) if base == "Device" and isinstance(value, str) else value
    if base == "ScalarType":
        return DTYPES[value]
    if base == "Layout":
        return LAYOUTS[value]
    return MEMORY_FORMATS[value] if base == "MemoryFormat" else value
