"""Kinds of tensors and devices that no library is made for, told by name."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from bessemer.contract.model_advice import FLOAT_MODEL, FLOAT_WEIGHTS
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.tensor import DType
from worker.errors import JobError

Named = tuple[str, object]

_NO_DEVICE = ("Torch not compiled with CUDA", "from the 'CUDA' backend", "No CUDA GPUs", "Found no NVIDIA")
_DEVICE_HINT = (
    "it names a CUDA device, which this worker does not have: move the model and its inputs to the CPU "
    "(`.cpu()`) before you export or trace it: "
)
_QUANTIZED_MODULES = ("torch.ao.nn.quantized", "__torch__.torch.ao.nn.quantized")
_PACKED = "_packed_params"
_TORCHAO = "torchao"


def device_hint(message: str) -> str:
    """What to say before a message of torch that means a device which is not here; else nothing."""
    return _DEVICE_HINT if any(sign in message for sign in _NO_DEVICE) else ""


def package_hint(error: Exception) -> str:
    """What to say where a model needs a Python package that is not installed here; else nothing."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    if package == _TORCHAO:
        return f"the model holds torchao's quantized tensors: {FLOAT_WEIGHTS}: "
    return (
        f"the file needs the package '{package}', which this worker does not have: save the model without "
        "that package's classes, or ask the operator to install it (docs/containers.md): "
    )


def refuse_kinds(tensors: Iterable[Named]) -> None:
    """Refuse parameters and buffers that are quantized, sparse or of 8-bit floating point.

    Args:
        tensors: with their names in the model; what is no tensor is passed over.

    Raises:
        JobError: ``model-tensors-unsupported`` with all of them.
    """
    found = [(name, kind) for name, tensor in tensors if (kind := _kind(tensor))]
    if found:
        told = ", ".join(f"'{name}' is {kind}" for name, kind in found)
        raise JobError(
            ErrorCode.MODEL_TENSORS_UNSUPPORTED,
            told,
            tuple(SourcePlace(module_path=name) for name, _ in found),
        )


def refuse_quantized_modules(modules: Iterable[tuple[str, torch.nn.Module]]) -> None:
    """Refuse modules that hold packed, quantized weights.

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


def refuse_signature_kind(name: str, tensor: torch.Tensor) -> None:
    """Refuse an input or output that the contract has no words for.

    Raises:
        JobError: ``model-tensors-unsupported``.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = _kind(tensor) or ("" if dtype in {known.value for known in DType} else f"of dtype {dtype}")
    if kind:
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, f"'{name}' is {kind}")
    if 0 in tensor.shape:
        detail = f"'{name}' has no elements: its shape is {'x'.join(map(str, tensor.shape))}"
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, detail)


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
