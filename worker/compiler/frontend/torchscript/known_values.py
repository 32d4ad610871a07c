"""Values of small tensors that a script computes from its constants, sizes and unchanged buffers alone.

A trace or a script may take a size, an index or a condition from such a tensor. ``torch.export`` sees only
its shape, so the interpreter computes the value beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

MAX_ELEMENTS = 4096
"""Larger tensors are not followed: sizes and indices come from small ones."""

MAKERS = (torch.ops.aten.arange, torch.ops.aten.linspace)
"""Operators that make tensors from numbers alone, which scripts turn into sizes, axes and indices."""

PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class KnownValues:
    """The known values of one run, by the tensors that ``torch.export`` sees in their place."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._is_reliable = True

    def add(self, seen: object, value: object) -> None:
        """Note the value of a tensor."""
        if not self._is_reliable or not isinstance(seen, torch.Tensor) or not isinstance(value, torch.Tensor):
            return
        if value.numel() <= MAX_ELEMENTS and value.layout is torch.strided:
            self._found[id(seen)] = (seen, value)

    def has(self, seen: object) -> bool:
        """Whether the value of a tensor is known."""
        return id(seen) in self._found

    def of(self, seen: object) -> object:
        """The value of a tensor if it is known, else the argument."""
        found = self._found.get(id(seen))
        return seen if found is None else found[1]

    def follow(
        self,
        overload: Any,
        positional: Sequence[object],
        named: dict[str, object],
        result: object,
        inside: bool,
    ) -> None:
        """Compute a call's value where all its arguments are known.

        A write drops the values that it changes; in a branch or a loop on data (``inside``), all values.
        """
        if torch.Tag.nondeterministic_seeded in overload.tags:
            return
        leaves = pytree.tree_leaves((positional, named))
        if overload._schema.is_mutable:
            if not inside:
                self._forget(_written(overload, positional, named))
            elif any(map(self.has, leaves)):
                self._found.clear()
                self._is_reliable = False
        elif all(self.has(leaf) or isinstance(leaf, PLAIN) for leaf in leaves):
            if not any(map(self.has, leaves)) and not _makes_numbers(overload, result):
                return
            values = self.computed(overload, *pytree.tree_map(self.of, (positional, named)))
            for one, value in zip(pytree.tree_leaves(result), pytree.tree_leaves(values), strict=True):
                self.add(one, value)

    def _forget(self, written: Sequence[object]) -> None:
        """Forget the values of tensors that share memory with written ones."""
        strided = [one for one in written if isinstance(one, torch.Tensor) and one.layout is torch.strided]
        changed = {_memory(one) for tensor in strided for one in (tensor, self.of(tensor))}
        self._found = {
            key: pair for key, pair in self._found.items() if changed.isdisjoint(map(_memory, pair))
        }

    @staticmethod
    def computed(function: Callable[..., Any], positional: Sequence[object], named: dict[str, object]) -> Any:
        """Call a function on real tensors while ``torch.export`` traces."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            return function(*positional, **named)


def _written(overload: Any, positional: Sequence[object], named: dict[str, object]) -> list[object]:
    """The arguments that an operator writes."""
    return [
        leaf
        for place, argument in enumerate(overload._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        for leaf in pytree.tree_leaves(
            positional[place] if place < len(positional) else named.get(argument.name)
        )
    ]


def _makes_numbers(overload: Any, result: object) -> bool:
    """Whether an operator without tensors makes a few numbers, as indices and axes are made."""
    return (
        overload.overloadpacket in MAKERS
        and isinstance(result, torch.Tensor)
        and result.numel() <= MAX_ELEMENTS
    )


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)
