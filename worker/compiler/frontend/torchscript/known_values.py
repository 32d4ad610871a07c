"""Values of small tensors that a script computes from its constants and unchanged buffers alone.

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
        self, overload: Any, positional: Sequence[object], named: dict[str, object], result: object
    ) -> None:
        """Compute a call's value where all its tensors are known; a write makes everything unknown."""
        leaves = pytree.tree_leaves((positional, named))
        seen = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not any(map(self.has, seen)):
            return
        if torch.Tag.nondeterministic_seeded in overload.tags:
            return
        if overload._schema.is_mutable:
            self._found.clear()
            self._is_reliable = False
        elif all(self.has(leaf) or isinstance(leaf, PLAIN) for leaf in leaves):
            values = self.computed(overload, *pytree.tree_map(self.of, (positional, named)))
            for one, value in zip(pytree.tree_leaves(result), pytree.tree_leaves(values), strict=True):
                self.add(one, value)

    @staticmethod
    def computed(function: Callable[..., Any], positional: Sequence[object], named: dict[str, object]) -> Any:
        """Call a function on real tensors while ``torch.export`` traces."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            return function(*positional, **named)
