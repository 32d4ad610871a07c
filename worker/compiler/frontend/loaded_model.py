"""A loaded model, whatever its format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch.utils._pytree import TreeSpec

from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.frontend.dynamic_shapes import SymbolicAxis
from worker.compiler.frontend.model_errors import device_hint, package_hint
from worker.compiler.frontend.outputs import TorchDynamicShapes
from worker.compiler.frontend.torchscript.module_state import memory_of
from worker.compiler.frontend.unsupported_tensors import refuse_unsupported_input
from worker.errors import JobError, failure_of, short_message

Export = Callable[[tuple[torch.Tensor, ...], TorchDynamicShapes | None], torch.export.ExportedProgram]
"""Makes a program for tensors of such shapes and dtypes; without ``TorchDynamicShapes`` all are fixed."""

DynamicExport = Callable[[tuple[torch.Tensor, ...]], torch.export.ExportedProgram]
"""Makes one with the sizes open that the file itself leaves open."""


@dataclass(frozen=True)
class Argument:
    """One tensor that the model takes.

    Attributes:
        name: what requests call it.
        spec: shape and dtype where the file tells them; dynamic axes as its example has them.
        dynamic_axes: the axes that may have another size than ``spec``.
        symbolic_axes: those of them that a compiled library may leave open.
        required: false where the model has a default.
    """

    name: str
    spec: TensorSpec | None = None
    dynamic_axes: frozenset[int] = frozenset()
    required: bool = True
    symbolic_axes: tuple[SymbolicAxis, ...] = ()


@dataclass(frozen=True)
class LoadedModel:
    """A model as its format gives it.

    Attributes:
        eager: runs the model on tensors in the order of ``arguments``.
        export: of fixed sizes, or with those open that a request names.
        export_dynamic: with those open that the file itself leaves open; None where it leaves none.
        examples: the inputs that the file itself carries, if it does.
        parameters: elements in all parameters and buffers.
        returns: the structure of what the model returns, where ``eager`` returns its leaves alone.
        other_methods: the methods besides ``forward``, which are not compiled by themselves.
    """

    format: ModelFormat
    eager: Callable[..., object]
    export: Export
    arguments: tuple[Argument, ...]
    examples: tuple[torch.Tensor, ...] | None
    parameters: int
    export_dynamic: DynamicExport | None = None
    returns: TreeSpec | None = None
    other_methods: tuple[str, ...] = ()


def tensor_spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    """The contract's description of a tensor.

    Raises:
        JobError: ``model-tensors-unsupported`` where the contract has no words for it: no elements, too many
            axes, a dtype such as complex64.
    """
    refuse_unsupported_input(name, tensor)
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(int(size) for size in tensor.shape)
    try:
        return TensorSpec(name=name, shape=shape, dtype=DType(dtype))
    except ValueError as error:
        if 0 in shape:
            detail = f"'{name}' has no elements, shape {shape}: leave it out, or give other inputs"
            raise JobError(ErrorCode.CAPTURE_FAILED, detail) from error
        detail = f"'{name}' has shape {shape} and dtype {dtype}, which Bessemer does not take"
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, detail) from error


def count_elements(tensors: Iterable[object]) -> int:
    """Elements in distinct tensors; those that share their memory count once."""
    distinct = {memory_of(tensor): tensor.numel() for tensor in tensors if isinstance(tensor, torch.Tensor)}
    return sum(distinct.values())


def load_failed(error: Exception, hint: str = "") -> JobError:
    """``model-load-failed`` with the short of torch's message."""
    message = short_message(error)
    said = f"{hint}{device_hint(message)}{package_hint(error)}{message}"
    return failure_of(ErrorCode.MODEL_LOAD_FAILED, error, said)
