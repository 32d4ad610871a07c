"""A model's outputs as a flat tuple of tensors."""

import inspect
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.utils import _pytree as pytree

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError

TorchDynamicShapes = tuple[dict[int, Any], ...]
"""torch's dimensions by axis for each input, as ``torch.export.export`` takes them."""


def flatten_outputs(result: object) -> tuple[torch.Tensor, ...]:
    """The tensors of a model's result, in pytree order. ``None`` is left out.

    Raises:
        JobError: ``model-signature-unsupported`` if a leaf is not a tensor, or the result has no tensor.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            detail = f"output {index} is not a tensor but {type(leaf).__name__} {str(leaf)[:80]!r}"
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    if not leaves:
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, "the model returns no tensor")
    return tuple(leaves)


class FlatModule(torch.nn.Module):
    """Calls a module and returns the flat tuple of its tensors."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors of the module's result."""
        return flatten_outputs(self.module(*inputs))


def export_flat(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    dynamic_shapes: TorchDynamicShapes | None = None,
) -> ExportedProgram:
    """Export a module as a program that returns only tensors. ``None`` among its outputs is left out.

    Args:
        module: takes ``inputs`` as positional arguments.
        inputs: examples.
        dynamic_shapes: dynamic dimensions; None fixes all sizes.

    Raises:
        Exception: any error of ``torch.export.export``.
    """
    program = _export(module, inputs, dynamic_shapes)
    return program if returns_tensors_only(program) else _export(FlatModule(module), inputs, dynamic_shapes)


def returns_tensors_only(program: ExportedProgram) -> bool:
    """Whether every output of the program is a tensor."""
    return all(isinstance(spec.arg, TensorArgument) for spec in program.graph_signature.output_specs)


def _export(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], dynamic_shapes: TorchDynamicShapes | None
) -> ExportedProgram:
    parameters = inspect.signature(module.forward).parameters.values()
    in_one = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    shapes = (dynamic_shapes,) if in_one and dynamic_shapes is not None else dynamic_shapes
    return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
