"""Values of a script, lists and dictionaries included, as the flat tensors of a branch or a loop.

A pattern has the structure of a value. Its leaves are tensors and numbers of data, whose types count, and
constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from worker.compiler.frontend.torchscript.data_numbers import (
    KIND_DTYPES,
    DataNumber,
    kind_of,
    tensor_of,
)
from worker.compiler.frontend.torchscript.plain_values import ScalarConstant, as_number
from worker.compiler.frontend.torchscript.primitives import UNINITIALIZED


class ControlFlowError(Exception):
    """A branch or a loop on data does what no branch or loop of tensors can."""


class Grown:
    """The items that the steps of a loop appended to a list: rows of one tensor.

    It stands in the list in place of the items.
    """

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows


def rebuilt(value: Any, leaf: Callable[[Any], Any], memo: dict[int, Any]) -> Any:
    """A copy with every leaf replaced. A list that is in two places is one list in the copy, too."""
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, list):
        items: list[Any] = []
        memo[id(value)] = items
        items.extend(rebuilt(item, leaf, memo) for item in value)
        return items
    if isinstance(value, dict):
        table: dict[Any, Any] = {}
        memo[id(value)] = table
        table.update((key, rebuilt(item, leaf, memo)) for key, item in value.items())
        return table
    if isinstance(value, tuple):
        return tuple(rebuilt(item, leaf, memo) for item in value)
    return Grown(leaf(value.rows)) if isinstance(value, Grown) else leaf(value)


def leaves(value: Any) -> Iterator[Any]:
    """The leaves in order."""
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value.rows if isinstance(value, Grown) else value


def varies(leaf: object) -> bool:
    """Whether a leaf is a tensor or a number that only a run knows."""
    return isinstance(leaf, torch.Tensor | DataNumber | torch.SymInt | torch.SymFloat | torch.SymBool)


def are_same(left: Any, right: Any) -> bool:
    """Whether two values hold the same tensors and equal constants in the same structure."""
    if isinstance(left, list | tuple) and type(left) is type(right):
        return len(left) == len(right) and all(map(are_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(map(are_same, left.values(), right.values()))
    return left is right or (not varies(left) and not varies(right) and _are_equal(left, right))


def _are_equal(left: object, right: object) -> bool:
    left, right = as_number(left), as_number(right)
    return type(left) is type(right) and bool(left == right)


def unified(left: Any, right: Any, name: str) -> Any:
    """The pattern of a value that is one or the other.

    Raises:
        ControlFlowError: no pattern is both's. The message calls the value by ``name``.
    """
    if right is UNINITIALIZED:
        return left
    if left is UNINITIALIZED:
        return right
    if isinstance(left, list | tuple) and type(left) is type(right):
        if len(left) != len(right):
            message = f"the list '{name}' has {len(left)} items or {len(right)}: give it one length"
            raise ControlFlowError(message)
        return type(left)(unified(*pair, name) for pair in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict) and list(left) == list(right):
        return {key: unified(left[key], right[key], name) for key in left}
    if are_same(left, right):
        return left
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return _unified_tensor(left, right, name)
    kinds = kind_of(left), kind_of(right)
    if None in kinds or (kinds[0] is not kinds[1] and bool in kinds):
        raise ControlFlowError(f"'{name}' is {_said(left)} or {_said(right)}")
    return stand_in_number(float if float in kinds else kinds[0] or int)


def stand_in_number(kind: type) -> DataNumber:
    """A number of a kind, without a value."""
    empty = DataNumber(kind, lambda: torch.empty((), dtype=KIND_DTYPES[kind]), lambda: empty.tensor.item())
    return empty


def number_in(kind: type, tensor: torch.Tensor) -> DataNumber:
    """The number that a tensor of rank 0 holds, which nothing writes."""
    return DataNumber(kind, lambda: tensor, lambda: tensor.item())


def _unified_tensor(left: Any, right: Any, name: str) -> torch.Tensor:
    pair = [value.tensor() if isinstance(value, ScalarConstant) else value for value in (left, right)]
    if not all(isinstance(value, torch.Tensor) for value in pair):
        raise ControlFlowError(f"'{name}' is {_said(left)} or {_said(right)}")
    first, second = pair
    sizes = zip(first.shape, second.shape, strict=False)
    if (
        first.dtype != second.dtype
        or first.dim() != second.dim()
        or not all(statically_known_true(one == other) for one, other in sizes)
    ):
        raise ControlFlowError(f"'{name}' is {_said(first)} or {_said(second)}: give it one shape and dtype")
    return first


def _said(value: object) -> str:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a {dtype} tensor of shape [{', '.join(map(str, value.shape))}]"
    kind = kind_of(value)
    if kind is not None:
        return f"a number ({kind.__name__})"
    return str(value)[:40] if isinstance(value, str | None) else f"a {type(value).__name__}"


def flat(value: Any, pattern: Any) -> list[torch.Tensor]:
    """The tensors of a value that vary in its pattern. Uninitialized ones are zeros."""
    if isinstance(pattern, list | tuple | dict):
        keys = pattern if isinstance(pattern, dict) else range(len(pattern))
        missing = value is UNINITIALIZED
        return [tensor for key in keys for tensor in flat(value if missing else value[key], pattern[key])]
    if isinstance(pattern, torch.Tensor):
        if value is UNINITIALIZED:
            return [torch.zeros(pattern.shape, dtype=pattern.dtype)]
        return [value.tensor() if isinstance(value, ScalarConstant) else value]
    if varies(pattern):
        kind = kind_of(pattern)
        assert kind is not None
        return [tensor_of(kind(0) if value is UNINITIALIZED else value, KIND_DTYPES[kind])]
    return []


def unflat(pattern: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """A value of a pattern, with its tensors and numbers taken from ``tensors`` in order."""

    def leaf(kept: Any) -> Any:
        if isinstance(kept, torch.Tensor):
            return next(tensors)
        kind = kind_of(kept) if varies(kept) else None
        return kept if kind is None else number_in(kind, next(tensors))

    return rebuilt(pattern, leaf, {})


def unaliased(results: Sequence[torch.Tensor], given: Sequence[object]) -> list[torch.Tensor]:
    """The results as contiguous tensors that share no memory with each other or with what was given."""
    taken = {_storage(value) for value in given if isinstance(value, torch.Tensor)}
    found = []
    for result in results:
        own = result.contiguous()
        if _storage(own) in taken:
            own = own.clone()
        taken.add(_storage(own))
        found.append(own)
    return found


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class Operands:
    """The tensors and numbers in values, which a branch or a loop takes as operands.

    Attributes:
        found: each of them once.
    """

    def __init__(self, values: Any) -> None:
        self._values = values
        unique = {id(leaf): leaf for leaf in leaves(values) if varies(leaf)}
        self.found = list(unique.values())
        self._places = {key: place for place, key in enumerate(unique)}

    def given(self) -> list[Any]:
        """The operands as torch takes them."""
        return [value.tensor if isinstance(value, DataNumber) else _plain(value) for value in self.found]

    def values(self, given: Sequence[Any]) -> Any:
        """The values, made of other operands."""
        inner = [
            number_in(kind_of(value) or int, new)
            if isinstance(value, DataNumber | torch.SymBool) and isinstance(new, torch.Tensor)
            else new
            for value, new in zip(self.found, given, strict=True)
        ]

        def leaf(value: Any) -> Any:
            place = self._places.get(id(value))
            return value if place is None else inner[place]

        return rebuilt(self._values, leaf, {})


def _plain(value: Any) -> Any:
    """SymInts are operands of their own; other symbols become tensors."""
    return tensor_of(value) if isinstance(value, torch.SymBool | torch.SymFloat) else value
