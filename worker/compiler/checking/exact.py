"""Computes a model in float64, to tell rounding from mistakes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.quantized_operators import implementation_of
from worker.compiler.torch_costs import linear_torch
from worker.tensors import as_array, as_tensor

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from worker.compiler.values import Arrays, Sample

_log = logging.getLogger(__name__)


def exact_outputs(program: ExportedProgram, sample: Sample) -> Arrays | None:
    """Run a program on a sample with float64 in place of every floating-point type.

    Returns:
        Arrays of the references' shapes, with float64 for every floating-point type; None if the program
        cannot run so.
    """
    with linear_torch():
        model = program.module(check_guards=False)
    inputs = tuple(map(as_tensor, sample.inputs))
    try:
        with torch.no_grad(), _WideningMode():
            result = _WideningInterpreter(model).run(*inputs)
    except Exception as error:
        _log.info("no float64 reference: %s", error)
        return None
    outputs = tuple(map(as_array, flatten_outputs(result)))
    shapes = [reference.shape for reference in sample.references]
    return outputs if [output.shape for output in outputs] == shapes else None


class _WideningInterpreter(fx.Interpreter):
    """Widens the arguments of every call of the graph before torch compares their types."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(
            implementation_of(target), tree_map(_widened, args), tree_map(_widened, kwargs)
        )


class _WideningMode(TorchDispatchMode):
    """Widens the arguments of every operator that a call consists of."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*tree_map(_widened, args), **tree_map(_widened, kwargs or {}))
        return tree_map(_widened, result)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return value
