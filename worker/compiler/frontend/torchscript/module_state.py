"""A script module's parameters, buffers and attributes as a tree of plain modules.

``torch.export`` names tensors by the modules they are registered on, and a script module keeps its own where
``torch.export`` does not look: so they are registered once more, the same tensors under the same names.
"""

from functools import partial

import torch
from torch import nn


class ModuleState(nn.Module):
    """Stands for one script module; attributes that are not tensors are read from the original.

    Loading a script makes two parameters of one that was shared; ``known`` makes them one again.
    """

    def __init__(
        self, source: torch.jit.ScriptModule, known: dict[object, nn.Parameter] | None = None
    ) -> None:
        super().__init__()
        known = {} if known is None else known
        self._read = partial(getattr, source)
        self._written: dict[str, object] = {}
        for name, parameter in source.named_parameters(recurse=False):
            self.register_parameter(name, known.setdefault(memory_of(parameter), _as_parameter(parameter)))
        for name, buffer in source.named_buffers(recurse=False):
            self.register_buffer(name, buffer)
        for name, child in source.named_children():
            self.add_module(name, ModuleState(child, known))
        self.training = source.training

    def read(self, name: str) -> object:
        """The value of an attribute: a tensor, the holder of a submodule, or a plain value.

        Raises:
            AttributeError: the script module has no such attribute.
        """
        if name in self._written:
            return self._written[name]
        for registered in (self._parameters, self._buffers, self._modules):
            if name in registered:
                return registered[name]
        return self._read(name)

    def write(self, name: str, value: object) -> None:
        """Set an attribute until ``forget``: a forward must not leave traces in an exported program."""
        self._written[name] = value

    def forget(self) -> None:
        """Undo every ``write``, in submodules too."""
        for module in self.modules():
            if isinstance(module, ModuleState):
                module._written.clear()

    def method_graph(self, name: str) -> torch.Graph:
        """The graph of one of the script module's methods, with everything it calls inlined."""
        graph = self._read("_c")._get_method(name).graph.copy()
        torch._C._jit_pass_inline(graph)
        return graph


def memory_of(tensor: torch.Tensor) -> object:
    """What two tensors have in common exactly where they are the same elements; no tensor without any is."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _as_parameter(tensor: torch.Tensor) -> nn.Parameter:
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)
