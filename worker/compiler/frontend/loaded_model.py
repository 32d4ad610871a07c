"""A loaded model, independent of its format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import TreeSpec

from bessemer.contract.dynamic import DynamicAxis
from bessemer.contract.model import ConstantSpec, ModelFormat, misspelled_method
from bessemer.contract.problem import ErrorCode
from bessemer.contract.structure import CallStructure
from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.frontend.dynamic_shapes import SymbolicAxis
from worker.compiler.frontend.model_errors import device_hint, package_hint
from worker.compiler.frontend.outputs import TorchDynamicShapes
from worker.compiler.frontend.structures import wrappers
from worker.compiler.frontend.torchscript.module_state import memory_of
from worker.compiler.frontend.unsupported_tensors import refuse_unsupported_input
from worker.compiler.values import MethodName
from worker.errors import JobError, failure_of, short_message

Export = Callable[[tuple[torch.Tensor, ...], TorchDynamicShapes | None], torch.export.ExportedProgram]
"""Exports for inputs of these shapes and dtypes. With None as the dynamic shapes, all sizes are fixed."""

DynamicExport = Callable[[tuple[torch.Tensor, ...]], torch.export.ExportedProgram]
"""Exports with the sizes dynamic that are dynamic in the file."""


FORWARD = "forward"


@dataclass(frozen=True)
class Argument:
    """One tensor argument of the model.

    Attributes:
        name: its name in requests.
        spec: shape and dtype if the file has them; a dynamic axis has the example's size.
        dynamic_axes: the axes whose size may differ from ``spec``.
        symbolic_axes: the dynamic axes that can stay dynamic in a compiled library.
        required: False if the model has a default.
    """

    name: str
    spec: TensorSpec | None = None
    dynamic_axes: frozenset[int] = frozenset()
    required: bool = True
    symbolic_axes: tuple[SymbolicAxis, ...] = ()


@dataclass(frozen=True)
class LoadedModel:
    """A model loaded from a file of any format.

    Attributes:
        eager: runs the model on tensors in the order of ``arguments``.
        export: exports with fixed sizes, or with the dimensions that a request names.
        export_dynamic: exports with the file's own dynamic sizes; None if it has none.
        examples: the file's sample inputs, if any.
        parameters: the number of elements in all parameters and buffers.
        returns: the structure of the result, if ``eager`` returns only its leaves.
        call: the structure of the arguments, and of the result if the file has it.
        method: the method that ``eager`` runs: one of a script module, or a program of a `.pt2`.
        other_methods: the file's other methods, which ``eager`` does not run.
        constants: the arguments that are not tensors.
    """

    format: ModelFormat
    eager: torch.nn.Module
    export: Export
    arguments: tuple[Argument, ...]
    examples: tuple[torch.Tensor, ...] | None
    parameters: int
    export_dynamic: DynamicExport | None = None
    returns: TreeSpec | None = None
    call: CallStructure = field(default_factory=CallStructure)
    method: str = FORWARD
    other_methods: tuple[str, ...] = ()
    constants: tuple[ConstantSpec, ...] = ()

    @property
    def original(self) -> torch.nn.Module:
        """The user's own module, which ``eager`` may call with other arguments."""
        *_, original = (self.eager, *(wrapper.module for wrapper in wrappers(self.eager)))
        return original


def choose_method(methods: Collection[str], asked: MethodName | None, usual: str = FORWARD) -> str:
    """The method to run: the one that is asked for, else the ``usual`` one, else the first.

    Raises:
        JobError: ``method-missing``: no such method, or a name close to another method's;
            ``model-forward-missing``: no method at all.
    """
    if not methods:
        raise JobError(ErrorCode.MODEL_FORWARD_MISSING, "the model has no public method")
    if asked is not None and asked.name in methods:
        return asked.name
    if asked is not None and asked.required:
        listed = ", ".join(map(repr, methods))
        raise JobError(ErrorCode.METHOD_MISSING, f"the model has {listed}, but no '{asked.name}'")
    default = usual if usual in methods else min(methods)
    meant = misspelled_method(asked.name, methods, default) if asked is not None else ""
    if meant:
        raise JobError(ErrorCode.METHOD_MISSING, meant)
    return default


def tensor_spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    """The contract's description of a tensor.

    Raises:
        JobError: ``model-tensors-unsupported`` if the contract cannot describe it: it has too many axes, or a
            dtype such as complex32.
    """
    refuse_unsupported_input(name, tensor)
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(int(size) for size in tensor.shape)
    try:
        return TensorSpec(name=name, shape=shape, dtype=DType(dtype))
    except ValueError as error:
        detail = f"'{name}' has shape {shape} and dtype {dtype}, which Bessemer does not support"
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, detail) from error


def refuse_empty(specs: Iterable[TensorSpec], axes: Iterable[DynamicAxis] = ()) -> None:
    """Refuse tensors without elements, unless the size that is 0 depends on data.

    Args:
        specs: the tensors.
        axes: the axes whose size may be 0.

    Raises:
        JobError: ``model-tensors-unsupported``.
    """
    may_be_empty = {(axis.tensor, axis.axis) for axis in axes}
    for spec in specs:
        if any(size == 0 and (spec.name, axis) not in may_be_empty for axis, size in enumerate(spec.shape)):
            detail = f"'{spec.name}' has no elements: its shape is {'x'.join(map(str, spec.shape))}"
            raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, detail)


def count_elements(tensors: Iterable[object]) -> int:
    """The number of elements in distinct tensors. Tensors that share memory count once."""
    distinct = {memory_of(tensor): tensor.numel() for tensor in tensors if isinstance(tensor, torch.Tensor)}
    return sum(distinct.values())


def load_failed(error: Exception, hint: str = "") -> JobError:
    """``model-load-failed`` with a shortened message of torch."""
    message = short_message(error)
    said = f"{hint}{device_hint(message)}{package_hint(error)}{message}"
    return failure_of(ErrorCode.MODEL_LOAD_FAILED, error, said)
