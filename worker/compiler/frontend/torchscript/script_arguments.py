"""The arguments of a script module's method, from its types and the names of a request's inputs.

The types say what each container is, and the names say what it contains: with inputs named ``images.0`` and
``images.1``, a ``List[Tensor]`` named ``images`` has two tensors. An optional value without a name is None.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from bessemer.contract.model import ConstantSpec
from bessemer.contract.problem import ErrorCode
from bessemer.contract.structure import (
    ArgumentStructure,
    ConstantLeaf,
    Container,
    ContainerKind,
    Key,
    Structure,
    TensorLeaf,
)
from worker.compiler.frontend.constants import Constants
from worker.compiler.frontend.structures import MAX_DEPTH, as_constant
from worker.errors import JobError

_TENSOR, _OPTIONAL, _LIST, _DICT, _TUPLE = "TensorType", "OptionalType", "ListType", "DictType", "TupleType"
_PLAIN = frozenset({"IntType", "FloatType", "BoolType", "StringType", "NumberType", "NoneType"})
_KEYS = {"IntType": int, "FloatType": float, "StringType": str}


@dataclass(frozen=True)
class ScriptArguments:
    """The arguments of a method.

    Attributes:
        arguments: in the order of the method. The structure is None where inputs must be named first, where
            a constant has no value yet, or where the method uses its own default.
        tensors: the names of the tensors, and whether a request must name each.
        constants: the values that are not tensors.
    """

    arguments: tuple[ArgumentStructure, ...]
    tensors: dict[str, bool]
    constants: tuple[ConstantSpec, ...]


def script_arguments(
    schema: torch.FunctionSchema, names: Collection[str], constants: Constants
) -> ScriptArguments:
    """Describe the arguments of a method.

    Args:
        schema: the method's schema.
        names: the names of the inputs; empty if they are not known yet.
        constants: the values of arguments that are not tensors.

    Raises:
        JobError: ``inputs-mismatch`` if the names do not fit the types, or ``model-signature-unsupported`` if
            an argument contains anything but tensors and plain values.
    """
    reader = _Reader(tuple(names), constants)
    arguments = tuple(map(reader.argument, schema.arguments[1:]))
    return ScriptArguments(arguments, reader.tensors, tuple(reader.plain))


def field_names(kind: Any) -> tuple[str, ...]:
    """The fields of a named tuple; empty for other tuples.

    Python cannot read them from the type. So a graph builds such a tuple, which becomes Python's.
    """
    graph = torch._C.Graph()
    node = graph.create("prim::TupleConstruct")
    for _ in kind.elements():
        node.addInput(graph.insertConstant(None))
    graph.insertNode(node)
    node.output().setType(kind)
    graph.registerOutput(node.output())
    made = torch._C._create_function_from_graph("make", graph)()
    return tuple(getattr(made, "_fields", ()))


@dataclass
class _Reader:
    """Reads types, and notes the tensors and plain values on its way."""

    names: tuple[str, ...]
    constants: Constants
    tensors: dict[str, bool] = field(default_factory=dict)
    plain: list[ConstantSpec] = field(default_factory=list)

    def argument(self, argument: Any) -> ArgumentStructure:
        """The structure of an argument."""
        name, kind, has_default = argument.name, _without_union(argument.type), argument.has_default_value()
        if not self._below(name) and _is_open(kind) and not self.names:
            self._note_open(name, kind, required=not has_default and kind.kind() != _OPTIONAL)
            structure = None
        elif not self._is_given(name) and has_default:
            self._note_optional(name, kind)
            structure = _default(argument.default_value)
        else:
            known = len(self.plain)
            structure = self._value(name, kind, 0)
            if any(each.required and each.name not in self.constants for each in self.plain[known:]):
                structure = None
        return ArgumentStructure(name=name, type=str(argument.type), structure=structure)

    def _value(self, name: str, kind: Any, depth: int) -> Structure:
        if depth == MAX_DEPTH:
            detail = f"'{name}' is nested more than {MAX_DEPTH} levels deep"
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
        kind = _without_union(kind)
        match kind.kind():
            case "TensorType":
                self.tensors[name] = True
                return TensorLeaf(tensor=name)
            case "OptionalType" if name in self.constants and self.constants[name] is None:
                return self._none(name, kind)
            case "OptionalType" if not self._is_given(name):
                self._note_optional(name, kind)
                return ConstantLeaf(constant=None)
            case "OptionalType" if kind.getElementType().kind() not in _PLAIN:
                return self._value(name, kind.getElementType(), depth)
            case "ListType":
                element = kind.getElementType()
                values = (
                    self._value(f"{name}.{n}", element, depth + 1) for n in range(self._length(name, kind))
                )
                return Container(container=ContainerKind.LIST, items=tuple(values))
            case "DictType":
                return self._dictionary(name, kind, depth)
            case "TupleType":
                return self._tuple(name, kind, depth)
        return self._plain(name, kind)

    def _length(self, name: str, kind: Any) -> int:
        firsts = {rest.partition(".")[0] for rest in self._below(name)}
        count = sum(map(str.isdecimal, firsts))
        if not count:
            raise _unnamed(name, kind, f"{name}.0, {name}.1, and so on")
        return count

    def _dictionary(self, name: str, kind: Any, depth: int) -> Structure:
        value, key_kind = kind.getValueType(), kind.getKeyType().kind()
        rests = self._below(name)
        texts = dict.fromkeys(rests if _is_leaf(value) else (rest.partition(".")[0] for rest in rests))
        if not texts:
            raise _unnamed(name, kind, f"{name}. and their keys")
        values = (self._value(f"{name}.{text}", value, depth + 1) for text in texts)
        keys = tuple(_key(name, text, key_kind) for text in texts)
        return Container(container=ContainerKind.DICT, keys=keys, items=tuple(values))

    def _tuple(self, name: str, kind: Any, depth: int) -> Structure:
        fields, elements = field_names(kind), kind.elements()
        values = (
            self._value(f"{name}.{place}", element, depth + 1)
            for place, element in zip(fields or range(len(elements)), elements, strict=True)
        )
        container = ContainerKind.NAMED_TUPLE if fields else ContainerKind.TUPLE
        return Container(container=container, keys=fields, items=tuple(values))

    def _none(self, name: str, kind: Any) -> Structure:
        self.plain.append(ConstantSpec(name=name, type=str(kind), required=False))
        return ConstantLeaf(constant=None)

    def _plain(self, name: str, kind: Any) -> Structure:
        inner = kind.getElementType() if kind.kind() == _OPTIONAL else kind
        if inner.kind() not in _PLAIN:
            detail = f"input '{name}' is a {kind}; only tensors, plain values and containers are supported"
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
        self.plain.append(ConstantSpec(name=name, type=str(kind), required=True))
        return ConstantLeaf(constant=self.constants.get(name))

    def _note_open(self, name: str, kind: Any, required: bool) -> None:
        """Note a container whose values are still to be named."""
        if _holds_tensors(kind):
            self.tensors[name] = required
        else:
            self.plain.append(ConstantSpec(name=name, type=str(kind), required=required))

    def _note_optional(self, name: str, kind: Any) -> None:
        """Note what a request may name, but does not."""
        inner = kind.getElementType() if kind.kind() == _OPTIONAL else kind
        if inner.kind() == _TENSOR:
            self.tensors[name] = False
        elif inner.kind() == _TUPLE:
            for place, element in zip(
                field_names(inner) or range(len(inner.elements())), inner.elements(), strict=True
            ):
                self._note_optional(f"{name}.{place}", element)
        elif inner.kind() not in (_LIST, _DICT):
            self.plain.append(ConstantSpec(name=name, type=str(kind), required=False))

    def _is_given(self, name: str) -> bool:
        return name in self.names or name in self.constants or bool(self._below(name))

    def _below(self, name: str) -> list[str]:
        """The remainders of the names that begin with a name and a dot."""
        prefix = f"{name}."
        given = (*self.names, *self.constants)
        return [each.removeprefix(prefix) for each in given if each.startswith(prefix)]


def _without_union(kind: Any) -> Any:
    """Tensor or Optional[Tensor] for a union with Tensor, as files hold tensors; else the type itself."""
    if kind.kind() != "UnionType":
        return kind
    members = kind.containedTypes()
    tensor = next((one for one in members if one.kind() == _TENSOR), None)
    is_optional = any(one.kind() == "NoneType" for one in members)
    return kind if tensor is None else torch._C.OptionalType(tensor) if is_optional else tensor


def _unnamed(name: str, kind: Any, names: str) -> JobError:
    return JobError(ErrorCode.INPUTS_MISMATCH, f"the argument '{name}' is a {kind}: name its values {names}")


def _key(name: str, text: str, kind: str) -> Key:
    try:
        return _KEYS.get(kind, str)(text)
    except ValueError as error:
        detail = f"'{name}.{text}' names the key '{text}', but the keys of '{name}' are numbers"
        raise JobError(ErrorCode.INPUTS_MISMATCH, detail) from error


def _is_leaf(kind: Any) -> bool:
    inner = kind.getElementType() if kind.kind() == _OPTIONAL else kind
    return inner.kind() not in (_LIST, _DICT, _TUPLE)


def _is_open(kind: Any) -> bool:
    """Whether only the names of inputs tell what a value contains."""
    return kind.kind() in (_LIST, _DICT) or any(map(_is_open, _contained(kind)))


def _holds_tensors(kind: Any) -> bool:
    return kind.kind() == _TENSOR or any(map(_holds_tensors, _contained(kind)))


def _contained(kind: Any) -> list[Any]:
    """The types in a container; a class may contain itself, so it counts as none."""
    is_container = kind.kind() in (_OPTIONAL, _LIST, _DICT, _TUPLE)
    return kind.containedTypes() if is_container else []


def _default(value: object) -> Structure | None:
    """The structure of a default; None if it contains anything but plain values."""
    if not isinstance(value, tuple):
        return as_constant(value)
    items = [_default(item) for item in value]
    kept = tuple(item for item in items if item is not None)
    return Container(container=ContainerKind.TUPLE, items=kept) if len(kept) == len(items) else None
