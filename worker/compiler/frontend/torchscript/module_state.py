"""A script module's parameters, buffers and attributes as a tree of plain modules.

``torch.export`` names tensors by the modules they are registered on, but does not find those of script
modules. So they are registered again: the same tensors under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn


class ScriptModule(nn.Module):
    """What ``torch.export`` sees of a script module: the names that the script uses, and one more."""

    def __init__(self, run: Callable[..., object]) -> None:
        super().__init__()
        self._bessemer_run = run

    def forward(self, *inputs: object) -> object:
        """Run the script."""
        return self._bessemer_run(*inputs)


class ModuleState:
    """The state of one script module, registered on a plain module. Other attributes are the original's.

    Loading a script splits a shared parameter into two; ``known`` joins them again.
    """

    def __init__(
        self,
        source: torch.jit.ScriptModule,
        module: nn.Module,
        known: dict[object, tuple[nn.Module, str]] | None = None,
    ) -> None:
        known = {} if known is None else known
        self.module = module
        self._known = known
        self._read = partial(getattr, source)
        self._written: dict[str, object] = {}
        self._children: dict[str, ModuleState] = {}
        for name, parameter in source.named_parameters(recurse=False):
            owner, own = known.setdefault(memory_of(parameter), (module, name))
            shared = owner._parameters.get(own)
            module.register_parameter(name, _as_parameter(parameter) if shared is None else shared)
        for name, buffer in source.named_buffers(recurse=False):
            module.register_buffer(name, writable(buffer))
        for name, child in source.named_children():
            self._children[name] = ModuleState(child, nn.Module(), known)
            module.add_module(name, self._children[name].module)
        module.training = source.training

    def read(self, name: str) -> object:
        """The value of an attribute: a tensor, the state of a submodule, or a plain value.

        Raises:
            AttributeError: the script module has no such attribute.
        """
        for known in (self._written, self.module._parameters, self.module._buffers, self._children):
            if name in known:
                return known[name]
        value = self._read(name)
        return [self._registered(item) for item in value] if isinstance(value, list) else value

    def _registered(self, item: object) -> object:
        """The parameter that an item of a list is, such as a weight of a recurrent layer; else the item."""
        place = self._known.get(memory_of(item)) if isinstance(item, torch.Tensor) else None
        return item if place is None else place[0]._parameters[place[1]]  # which an export replaces

    def original_buffer(self, name: str) -> object:
        """The script module's own tensor of a buffer that the run has not written; else None."""
        return self._read(name) if name in self.module._buffers and name not in self._written else None

    def write(self, name: str, value: object) -> None:
        """Set an attribute until ``forget``, so that a run does not change the exported program."""
        self._written[name] = value

    def descendant(self, path: str) -> ModuleState | None:
        """The state of a submodule by its path; None if there is none."""
        if not path:
            return self
        name, _, rest = path.partition(".")
        child = self._children.get(name)
        return None if child is None else child.descendant(rest)

    def keep(self) -> bool:
        """Copy written tensors into the buffers of their names, so that an export sees mutated buffers.

        A value that differs from its buffer in shape or dtype stays out. Returns whether any was copied.
        """
        pairs = [pair for state in self._all() for pair in state._written_buffers()]
        for buffer, value in pairs:
            buffer.copy_(value)
        return bool(pairs)

    def _all(self) -> Iterator[ModuleState]:
        yield self
        for child in self._children.values():
            yield from child._all()

    def _written_buffers(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Each buffer with a copy of its new value, which may be a view of another buffer."""
        for name, value in self._written.items():
            buffer = self.module._buffers.get(name)
            if buffer is None or not isinstance(value, torch.Tensor):
                continue
            if buffer.shape == value.shape and buffer.dtype == value.dtype:
                yield buffer, value.clone()

    def forget(self) -> None:
        """Undo every ``write``, including those in submodules."""
        for state in self._all():
            state._written.clear()

    def method_graph(self, name: str) -> torch.Graph:
        """The inlined graph of a method of the script module."""
        return _inlined(self._read("_c"), name)


def inlined_graphs(script: torch.jit.ScriptModule) -> Iterator[torch.Graph]:
    """The inlined graphs of the public methods."""
    return (_inlined(script._c, name) for name in public_methods(script))


def public_methods(script: torch.jit.ScriptModule) -> tuple[str, ...]:
    """The names of the methods that a user may call, sorted."""
    return tuple(sorted(name for name in script._c._method_names() if not name.startswith("_")))


def _inlined(module: Any, method: str) -> torch.Graph:
    graph = module._get_method(method).graph.copy()
    torch._C._jit_pass_inline(graph)
    return graph


def writable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if a run under ``inference_mode`` made it."""
    return tensor.clone() if tensor.is_inference() else tensor


def memory_of(tensor: torch.Tensor) -> object:
    """A key that is equal for two tensors of the same elements in memory. Empty tensors are all distinct."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _as_parameter(tensor: torch.Tensor) -> nn.Parameter:
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)
