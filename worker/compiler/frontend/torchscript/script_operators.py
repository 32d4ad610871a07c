"""Calls the operator of a TorchScript node: in Python on plain values, by ``torch.ops`` on tensors."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from worker.compiler.frontend.torchscript.data_numbers import (
    DataNumber,
    compute,
    depends_on_data,
    kind_of,
    of_tensor,
    symbol_of,
    tensor_of,
    wrapped,
)
from worker.compiler.frontend.torchscript.data_places import READS, DataPlaces, item_at, on_grown, set_item_at
from worker.compiler.frontend.torchscript.known_values import KnownValues
from worker.compiler.frontend.torchscript.packed_sequences import on_packed
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


LAST = 2**63 - 1
"""The end of a slice without an end."""


def _convolution(*arguments: object) -> object:
    return torch.ops.aten.convolution.default(*arguments[:9])


def _where(condition: Any, *operands: object) -> object:
    return torch.where(condition.bool() if condition.dtype == torch.uint8 else condition, *operands)


OF_NUMBERS = ("aten::tensor", "aten::as_tensor")
"""Operators that make a tensor of numbers; ``torch.ops`` does not take lists in their place."""

# Operators that traces record in a form that torch.export does not support.
SUBSTITUTES: dict[str, Operator] = {"aten::_convolution": _convolution, "aten::where": _where}


class UnknownOperatorError(Exception):
    """A node calls an operator that neither this module nor ``torch.ops`` has."""


VALUES: dict[str, type | None] = {
    "aten::Int": int,
    "aten::Float": float,
    "aten::Bool": bool,
    "aten::IntImplicit": int,
    "aten::FloatImplicit": float,
    "aten::ScalarImplicit": None,
    "aten::item": None,
}
"""Operators that turn a tensor into a plain value, and its kind if that does not follow from the dtype."""


def call_operator(  # noqa: C901 - one guard for each kind of call
    kind: str,
    schema: str,
    values: list[object],
    known: KnownValues,
    places: DataPlaces,
    inside: bool,
) -> object:
    """Compute one node.

    Args:
        kind: the qualified name, such as ``aten::relu``.
        schema: the node's own schema, which names the overload.
        values: all arguments, in the schema's order.
        known: values of tensors, which this call adds to.
        places: reads at places that depend on data, which this call adds to.
        inside: whether the node is in a branch or a loop on data.

    Raises:
        UnknownOperatorError: the operator does not exist.
        PackedSequenceError: the operator needs torch's own form of a packed sequence.
    """

    def on_others(others: list[object]) -> object:
        return call_operator(kind, schema, others, known, places, inside)

    if (packed := on_packed(kind, values, known, on_others)) is not None:
        return packed[0]
    if (grown := on_grown(kind, values) if values else None) is not None:
        return grown[0]
    if kind.endswith("_") and kind[:-1] in ON_NUMBERS and kind_of(values[0]) is not None:
        kind = kind[:-1]  # a trace writes to the tensor that it made of a size
    of_data = any(isinstance(value, DataNumber) for value in values)
    if of_data and (result := _on_data(kind, schema, values)) is not None:
        return result[0]
    if kind in READS and (read := places.read(kind, values)) is not None:
        return read
    plain = _on_plain_values(kind, values)
    if plain is not None:
        return wrapped(kind, values, plain(*map(as_number, values)))
    if kind in VALUES and isinstance(values[0], torch.Tensor):
        if known.has(values[0]):
            return known.computed(QUERIES[kind], [known.of(values[0])], {})
        if depends_on_data(values[0]):
            return of_tensor(VALUES[kind] or _kind(values[0].dtype), values[0])
    if kind in QUERIES and values and isinstance(values[0], torch.Tensor):
        return QUERIES[kind](*map(as_number, values))
    if kind in OF_NUMBERS and not holds_tensor(values[0]):
        return _tensor_of_numbers(values[0], values[1], known, inside)
    if kind == "aten::slice" and _is_whole(values):
        return values[0]
    overload = _overload(kind, schema)
    if of_data:
        overload = _with_tensors(overload, values)
    positional, named = _arguments(kind, overload, values)
    result = SUBSTITUTES.get(kind, overload)(*positional, **named)
    known.follow(overload, positional, named, result, inside)
    _follow(overload, values, result, places)
    return result


def _is_whole(values: list[object]) -> bool:
    """Whether a slice is the whole axis, as in ``x[:, 0]``."""
    start, end, step = map(as_number, values[2:])
    return start in (None, 0) and (end is None or (isinstance(end, int) and end >= LAST)) and step == 1


def _tensor_of_numbers(items: object, code: object, known: KnownValues, inside: bool) -> torch.Tensor:
    """The tensor of a number or of nested lists of numbers."""
    if kind_of(items) is not None:
        made = _tensor(items, code)
        known.add(made, known.computed(torch.tensor, [as_number(items)], {"dtype": made.dtype}))
        return made
    if inside and isinstance(items, list):
        return _nested_tensor(items, code)
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


def _follow(
    overload: torch._ops.OpOverload, values: list[object], result: object, places: DataPlaces
) -> None:
    if overload._schema.is_mutable:
        places.written(values[0])
    if any(returned.alias_info is not None for returned in overload._schema.returns):
        places.view(values[0], result)


def _on_data(kind: str, schema: str, values: list[Any]) -> tuple[object] | None:
    """The result of a call that takes a number of data where ``torch.ops`` takes none, in a tuple."""
    if kind in ON_NUMBERS and all(value is None or kind_of(value) is not None for value in values):
        return (compute(kind, values, _returned(schema)),)
    items = values[0]
    if kind == "aten::__getitem__" and isinstance(items, list) and isinstance(values[1], DataNumber):
        return (item_at(items, values[1]),)
    if kind == "aten::_set_item" and isinstance(items, list) and isinstance(values[1], DataNumber):
        set_item_at(items, values[1], values[2])
        return (None,)
    if kind in ("aten::tensor", "aten::scalar_tensor", "aten::as_tensor") and kind_of(items) is not None:
        return (_tensor(items, values[1]).clone(),)
    if kind == "aten::full" and isinstance(values[1], DataNumber):
        dtype = _default_dtype(values[1]) if values[2] is None else DTYPES[values[2]]
        sizes = [symbol_of(size) for size in values[0]]
        return (tensor_of(values[1], dtype).expand(sizes).clone(),)
    return None


def _tensor(number: object, code: Any) -> torch.Tensor:
    return tensor_of(number, _default_dtype(number) if code is None else DTYPES[code])


def _nested_tensor(items: list[object], code: object) -> torch.Tensor:
    """A tensor of lists of numbers, made by operators: a branch or a loop has no constants of its own."""
    parts = [_nested_tensor(item, code) if isinstance(item, list) else _tensor(item, code) for item in items]
    return torch.stack(parts) if parts else torch.zeros(0)


def _default_dtype(number: object) -> torch.dtype:
    """The dtype of a tensor that torch makes from a number."""
    kind = kind_of(number)
    return torch.get_default_dtype() if kind is float else torch.int64 if kind is int else torch.bool


def _kind(dtype: torch.dtype) -> type:
    return bool if dtype == torch.bool else float if dtype.is_floating_point else int


def _returned(schema: str) -> type | None:
    """The kind of number that a schema returns, if it says so."""
    try:
        returns = str(torch._C.parse_schema(schema).returns[0].type)
    except RuntimeError:
        return None
    return {"int": int, "float": float, "bool": bool}.get(returns)


def _with_tensors(overload: torch._ops.OpOverload, values: list[object]) -> torch._ops.OpOverload:
    """The overload that takes a tensor for each number of data, or the same one if there is none."""
    wanted = [str(argument.type) for argument in overload._schema.arguments]
    packet = overload.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        found = [str(argument.type) for argument in other._schema.arguments]
        if len(found) == len(wanted) and all(map(_takes, found, wanted, values)):
            return other
    return overload


def _takes(found: str, wanted: str, value: object) -> bool:
    is_tensor = found in ("Tensor", "Optional[Tensor]")
    if isinstance(value, DataNumber):
        return is_tensor
    return found == wanted or (is_tensor and wanted in ("number", "Optional[number]"))


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
        base = str(argument.real_type)
        if isinstance(value, DataNumber) and base in ("Tensor", "Optional[Tensor]"):
            converted: object = _as_operand(value, values)
        else:
            converted = _convert(base, value, as_numbers)
        if argument.kwarg_only:
            named[argument.name] = converted
        else:
            positional.append(converted)
    return positional, named


def _as_operand(number: DataNumber, values: list[object]) -> torch.Tensor:
    """A number as a tensor that promotes the others as the number would."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors:
        return tensor_of(number, _default_dtype(number))
    return tensor_of(number, torch.result_type(tensors[0], number.kind(1)))


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
        return [symbol_of(item) for item in value]
    if isinstance(value, DataNumber):
        return value.symbol
    return _convert_code(base, value)


def _convert_code(base: str, value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        return torch.device(value) if base == "Device" and isinstance(value, str) else value
    if base == "ScalarType":
        return DTYPES[value]
    if base == "Layout":
        return LAYOUTS[value]
    return MEMORY_FORMATS[value] if base == "MemoryFormat" else value
