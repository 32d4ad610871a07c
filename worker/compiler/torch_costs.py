"""Replaces functions of torch (2.13) whose cost grows too fast with a program or a sequence.

::

    with linear_torch():
        program.run_decompositions()

The replacements return what torch's functions return, at a cost that is linear in a program's parameters,
layers and outputs. Without them, loading and decomposing a program of 3,000 linear layers takes two minutes
of processor time, with them 36 seconds.

To know the shapes that a recurrent layer returns, torch computes all its steps, which also fixes a dynamic
length. Here the shapes follow from the arguments' shapes.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch._export import utils as export_utils
from torch._export.serde import schema, serialize
from torch.export import _trace, _unlift, exported_program
from torch.export.unflatten import _assign_attr

if TYPE_CHECKING:
    from torch.export import ExportGraphSignature

RECURRENT = (
    torch.ops.aten.lstm.input,
    torch.ops.aten.gru.input,
    torch.ops.aten.rnn_tanh.input,
    torch.ops.aten.rnn_relu.input,
)
"""The recurrent layers of whole sequences."""

_CALL_NUMBER = "@"
"""Separates a submodule's name from the number of its call, in the copies that torch makes for each call."""

_populate_metadata = exported_program._populate_param_buffer_metadata_to_new_gm
_remove_copies = exported_program._remove_unnecessary_copy_op_pass
_look_up_composites = export_utils._materialize_cpp_cia_ops


@contextmanager
def linear_torch() -> Iterator[None]:
    """While the context lasts, torch loads, exports, decomposes and unlifts programs at linear cost."""
    replaced: tuple[tuple[ModuleType, str, object], ...] = (
        (serialize, "typing", _typing_with_cached_hints()),
        (exported_program, _populate_metadata.__name__, _populate_metadata_once),
        (_trace, _populate_metadata.__name__, _populate_metadata_once),
        (exported_program, _remove_copies.__name__, _remove_copies_of_mutated),
        (_unlift, _assign_attr.__name__, _AttributeAssignment()),
        # torch looks all composite operators up once for each namespace of operators
        (export_utils, _look_up_composites.__name__, cache(_look_up_composites)),
    )
    with ExitStack() as patches:
        for module, name, replacement in replaced:
            patches.enter_context(patch.object(module, name, replacement))
        for operator in RECURRENT:
            patches.enter_context(_by_shape(operator))
        yield


@contextmanager
def _by_shape(operator: torch._ops.OpOverload) -> Iterator[None]:
    """While the context lasts, torch traces an operator without computing its steps."""
    with (
        patch.dict(operator.py_kernels, dict.fromkeys(operator.py_kernels, shapes_of_recurrent)),
        patch.dict(torch._decomp.decomposition_table, {operator: shapes_of_recurrent}),
    ):
        operator._dispatch_cache.clear()
        try:
            yield
        finally:
            operator._dispatch_cache.clear()


def shapes_of_recurrent(
    data: torch.Tensor,
    first: torch.Tensor | Sequence[torch.Tensor],
    _params: Sequence[torch.Tensor],
    _has_biases: bool,
    _layers: int,
    _dropout: float,
    _train: bool,
    bidirectional: bool,
    *_: object,
) -> tuple[torch.Tensor, ...]:
    """Empty outputs and last states."""
    states = [first] if isinstance(first, torch.Tensor) else first
    outputs = data.new_empty((*data.shape[:2], states[0].shape[2] * (1 + bidirectional)))
    return outputs, *(state.new_empty(state.shape) for state in states)


@cache
def _typing_with_cached_hints() -> ModuleType:
    """``typing`` whose ``get_type_hints`` evaluates the annotations of a class once, not for each record."""
    module = ModuleType(typing.__name__)
    vars(module).update(vars(typing))
    hints = cache(lambda kind: typing.get_type_hints(kind, globalns=vars(schema)))

    def get_type_hints(kind: type, globalns: dict[str, Any]) -> dict[str, Any]:
        return hints(kind) if globalns is vars(schema) else typing.get_type_hints(kind, globalns)

    vars(module)["get_type_hints"] = get_type_hints
    return module


class _InputTargets:
    """The parameters and buffers of a signature, which torch's properties collect again on every access."""

    def __init__(self, signature: ExportGraphSignature) -> None:
        self._signature = signature

    @cached_property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        return self._signature.inputs_to_parameters

    @cached_property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        return self._signature.inputs_to_buffers


def _populate_metadata_once(
    metadata: dict[str, Any], module: torch.fx.GraphModule, signature: ExportGraphSignature
) -> None:
    """Torch's function, which reads the signature for every placeholder."""
    _populate_metadata(metadata, module, _InputTargets(signature))


def _remove_copies_of_mutated(
    module: torch.fx.GraphModule, signature: ExportGraphSignature
) -> tuple[torch.fx.GraphModule, ExportGraphSignature]:
    """Torch's function, which reads the signature for every output, though few programs mutate any."""
    if signature.buffers_to_mutate or signature.parameters_to_mutate:
        return _remove_copies(module, signature)
    module.recompile()
    return module, signature


class _AttributeAssignment:
    """Torch's ``_assign_attr``, which compares a name with all its siblings to find its other calls."""

    def __init__(self) -> None:
        self._has_calls: dict[torch.nn.Module, bool] = {}

    def __call__(
        self,
        value: Any,
        module: torch.nn.Module,
        target: str,
        attr_kind: Any,
        persistent: bool = True,
    ) -> None:
        if module not in self._has_calls:
            self._has_calls[module] = any(_CALL_NUMBER in name for name, _ in module.named_modules())
        self._has_calls[module] |= _CALL_NUMBER in target
        if self._has_calls[module]:
            _assign_attr(value, module, target, attr_kind, persistent)
            return
        *path, field = target.split(".")
        for name in path:
            if not hasattr(module, name):
                setattr(module, name, torch.nn.Module())
            module = getattr(module, name)
        _assign_attr(value, module, field, attr_kind, persistent)
