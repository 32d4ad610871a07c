"""Refuses tensors that cannot be compiled: quantized, sparse, 8-bit floats, and empty ones."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from bessemer.contract.model_advice import FLOAT_MODEL
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.tensor import DType
from worker.errors import JobError

Named = tuple[str, object]

_QUANTIZED_MODULES = ("torch.ao.nn.quantized", "__torch__.torch.ao.nn.quantized")
_PACKED = "_packed_params"


def refuse_unsupported_tensors(tensors: Iterable[Named]) -> None:
    """Refuse parameters and buffers that are quantized, sparse or of 8-bit floating point.

    Args:
        tensors: tensors with their names in the model; other values are ignored.

    Raises:
        JobError: ``model-tensors-unsupported`` with all of them.
    """
    found = [(name, kind) for name, tensor in tensors if (kind := _kind(tensor))]
    if found:
        listed = ", ".join(f"'{name}' is {kind}" for name, kind in found)
        raise JobError(
            ErrorCode.MODEL_TENSORS_UNSUPPORTED,
            listed,
            tuple(SourcePlace(module_path=name) for name, _ in found),
        )


def refuse_quantized_modules(modules: Iterable[tuple[str, torch.nn.Module]]) -> None:
    """Refuse modules with packed, quantized weights.

    Raises:
        JobError: ``model-tensors-unsupported`` with all of them.
    """
    found: list[str] = []
    for name, module in modules:
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if _is_quantized(module) and not inside:
            found.append(name)
    if found:
        names = ", ".join(f"'{name}'" if name else "the model itself" for name in found)
        detail = f"quantized modules: {names}; {FLOAT_MODEL}"
        places = tuple(SourcePlace(module_path=name) for name in found)
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, detail, places)


def refuse_unsupported_input(name: str, tensor: torch.Tensor) -> None:
    """Refuse an input or output that the contract cannot describe.

    Raises:
        JobError: ``model-tensors-unsupported``.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = _kind(tensor) or ("" if dtype in {known.value for known in DType} else f"of dtype {dtype}")
    if kind:
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, f"'{name}' is {kind}")


def _kind(tensor: object) -> str:
    if not isinstance(tensor, torch.Tensor):
        return ""
    if tensor.is_quantized:
        return f"quantized ({str(tensor.dtype).removeprefix('torch.')})"
    if tensor.layout is not torch.strided:
        return f"sparse ({str(tensor.layout).removeprefix('torch.')})"
    return str(tensor.dtype).removeprefix("torch.") if "float8" in str(tensor.dtype) else ""


def _is_quantized(module: torch.nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        name = module._c._type().qualified_name()
        return bool(name.startswith(_QUANTIZED_MODULES)) or hasattr(module, _PACKED)
    return type(module).__module__.startswith(_QUANTIZED_MODULES)
