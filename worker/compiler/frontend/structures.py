"""Structures of torch's values: from pytrees, and back from tensors to the values that a model takes."""

from __future__ import annotations

from collections import defaultdict, deque, namedtuple
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._pytree import TreeSpec

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
from worker.errors import JobError

MAX_DEPTH = 32

LeafPath = tuple[int | str, ...]
"""The path from a value to a leaf: positions in sequences, and the text of keys and fields."""


def leaf_paths(structure: TreeSpec) -> Iterator[LeafPath]:
    """The path of every leaf, in pytree order."""
    if structure.is_leaf():
        yield ()
        return
    keys: Sequence[int | str] = list(map(str, keys_of(structure))) or range(structure.num_children)
    for key, child in zip(keys, structure.children(), strict=True):
        yield from ((key, *path) for path in leaf_paths(child))


def structure_of(spec: TreeSpec, leaves: Iterator[Structure], depth: int = 0) -> Structure:
    """The structure of a pytree.

    Args:
        spec: the pytree's structure.
        leaves: the structure of each leaf, in pytree order.
        depth: the number of containers around this one.

    Raises:
        JobError: ``model-signature-unsupported``: containers are nested too deeply.
    """
    if spec.is_leaf():
        return next(leaves)
    if depth == MAX_DEPTH:
        detail = f"the model's arguments or results are nested more than {MAX_DEPTH} levels deep"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    keys, absent = keys_of(spec), _fields_of_none(spec)
    items = tuple(structure_of(child, leaves, depth + 1) for child in spec.children())
    return Container(
        container=_kind(spec.type, keys),
        keys=(*map(_key, keys), *absent),
        items=(*items, *(ConstantLeaf(constant=None) for _ in absent)),
    )


def _kind(kind: type, keys: Sequence[object]) -> ContainerKind:
    if kind is namedtuple:
        return ContainerKind.NAMED_TUPLE
    if issubclass(kind, dict):
        return ContainerKind.DICT
    if issubclass(kind, tuple) and keys:
        return ContainerKind.NAMED_TUPLE
    if issubclass(kind, list | deque):
        return ContainerKind.LIST
    return ContainerKind.OBJECT if keys else ContainerKind.TUPLE


def _fields_of_none(spec: TreeSpec) -> tuple[str, ...]:
    """The fields of a dataclass that hold None and so are not leaves: the second part of its context."""
    match spec.context:
        case [list(), list(absent)] if _fields(spec.context, spec.num_children):
            return tuple(map(str, absent))
    return ()


def _key(key: object) -> Key:
    return key if isinstance(key, bool | int | float | str) else str(key)


def keys_of(structure: TreeSpec) -> Sequence[Any]:
    """The key or field of each child; empty if they have neither."""
    names = _names(structure)
    return tuple(names) if len(names) == structure.num_children else ()


def _names(structure: TreeSpec) -> Sequence[object]:
    kind, context = structure.type, structure.context
    if kind is namedtuple:
        return context._fields
    if kind is defaultdict:
        return context[1]
    if issubclass(kind, dict):
        return context
    return _fields(context, structure.num_children) or getattr(kind, "__match_args__", ())


def _fields(context: object, count: int) -> Sequence[str]:
    """The fields of a registered class: its context, or the context's first element as for dataclasses."""
    given = context if isinstance(context, list | tuple) else ()
    for names in (given, *given[:1]):
        if isinstance(names, list | tuple) and len(names) == count and all(isinstance(n, str) for n in names):
            return names
    return ()


def as_constant(value: object) -> ConstantLeaf | None:
    """The leaf of a value that is not a tensor; None if it cannot be one."""
    is_plain = value is None or type(value) in (bool, int, float, str)
    return ConstantLeaf.of(value) if is_plain else None  # type: ignore[arg-type]


def build(structure: Structure, tensors: Mapping[str, object]) -> object:
    """The value that a structure describes. A named tuple is a tuple, as TorchScript takes it.

    Args:
        structure: the structure.
        tensors: the value of each tensor, by name.
    """
    match structure:
        case TensorLeaf(tensor=name):
            return tensors[name]
        case ConstantLeaf():
            return structure.value
        case Container(container=kind, keys=keys, items=items):
            values = [build(item, tensors) for item in items]
            match kind:
                case ContainerKind.LIST:
                    return values
                case ContainerKind.DICT:
                    return dict(zip(keys, values, strict=True))
                case ContainerKind.OBJECT:
                    return SimpleNamespace(**dict(zip(map(str, keys), values, strict=True)))
            return tuple(values)
    raise TypeError(f"{structure} is not a structure")


class Wrapper(torch.nn.Module):
    """Wraps a module, ``module``, to call it in another way."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module


def wrappers(module: torch.nn.Module) -> Iterator[Wrapper]:
    """The wrappers around a user's module, from the outside in."""
    while isinstance(module, Wrapper):
        yield module
        module = module.module


class WithArguments(Wrapper):
    """Calls a method of a module with arguments made of tensors, by name."""

    def __init__(
        self,
        module: torch.nn.Module,
        arguments: Sequence[ArgumentStructure],
        tensors: Sequence[str],
        method: str = "forward",
    ) -> None:
        super().__init__(module)
        self._method = method
        self._arguments = tuple(arguments)
        self._tensors = tuple(tensors)

    def around(self, module: torch.nn.Module) -> WithArguments:
        """The same for another module that takes the same arguments."""
        return WithArguments(module, self._arguments, self._tensors, self._method)

    def forward(self, *tensors: torch.Tensor) -> object:
        """Run the module on the tensors, in the order of their names."""
        named = dict(zip(self._tensors, tensors, strict=True))
        arguments = {
            argument.name: build(argument.structure, named)
            for argument in self._arguments
            if argument.structure is not None
        }
        return getattr(self.module, self._method)(**arguments)
