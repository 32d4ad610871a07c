"""The outputs of a model as flat, named tensors."""

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.utils import _pytree as pytree

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError


def flatten_outputs(result: object) -> tuple[torch.Tensor, ...]:
    """The tensors in what a model returned, in pytree order; ``None`` is left out.

    Raises:
        JobError: ``model-signature-unsupported`` where there is anything else, or no tensor at all.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            detail = f"output {index} is no tensor but {type(leaf).__name__} {str(leaf)[:80]!r}"
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    if not leaves:
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, "the model returns no tensor")
    return tuple(leaves)


def output_names(count: int) -> tuple[str, ...]:
    """``output``, or ``output_0``, ``output_1``, … where there are several."""
    return ("output",) if count == 1 else tuple(f"output_{index}" for index in range(count))


class FlatModule(torch.nn.Module):
    """Calls a module and returns the flat tuple of its tensors."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors in what the module returns for the inputs."""
        return flatten_outputs(self.module(*inputs))


def export_flat(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    open_sizes: tuple[dict[int, Any], ...] | None = None,
) -> ExportedProgram:
    """Export a module as a program that returns tensors only; ``None`` among its outputs is left out.

    Args:
        module: takes ``inputs`` one by one.
        inputs: examples.
        open_sizes: for each input torch's dimensions by axis; without, all sizes are fixed.

    Raises:
        Exception: whatever ``torch.export.export`` raises.
    """
    program = torch.export.export(module, inputs, dynamic_shapes=open_sizes, strict=False)
    if returns_tensors_only(program):
        return program
    flat = None if open_sizes is None else (open_sizes,)
    return torch.export.export(FlatModule(module), inputs, dynamic_shapes=flat, strict=False)


def returns_tensors_only(program: ExportedProgram) -> bool:
    """Whether every output of the program is a tensor."""
    return all(isinstance(spec.arg, TensorArgument) for spec in program.graph_signature.output_specs)
