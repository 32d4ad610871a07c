"""Loads a traced or scripted module from a file of ``torch.jit.save``."""

import io
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from pydantic import ValidationError

from bessemer.contract.model import ConstantSpec, ModelFormat
from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.frontend.constants import (
    Constants,
    WithConstants,
    check_constant,
    refuse_unknown_constants,
)
from worker.compiler.frontend.loaded_model import (
    FORWARD,
    Argument,
    LoadedModel,
    choose_method,
    count_elements,
    load_failed,
)
from worker.compiler.frontend.torchscript.convert import convert_script
from worker.compiler.frontend.torchscript.module_state import public_methods
from worker.compiler.frontend.unsupported_tensors import refuse_quantized_modules, refuse_unsupported_tensors
from worker.compiler.frontend.zip_archive import read_entry
from worker.compiler.values import MethodName
from worker.errors import JobError

_TENSORS = ("Tensor", "Optional[Tensor]")


def load(path: Path, constants: Constants, method: MethodName | None = None) -> LoadedModel:
    """Load a script module, and one of its methods: ``forward`` unless another is named.

    Raises:
        JobError: ``model-load-failed`` with torch's message, ``method-missing`` with the existing
            methods, ``model-signature-unsupported`` if an argument is neither a tensor nor a plain value,
            ``inputs-mismatch`` if a constant does not fit, or ``model-tensors-unsupported``.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*torch.jit", category=DeprecationWarning)
            script = torch.jit.load(path, map_location="cpu")
    except Exception as error:
        raise load_failed(error) from error
    refuse_quantized_modules(script.named_modules())
    methods = public_methods(script)
    chosen = choose_method(methods, method)
    schema = getattr(script, chosen).schema
    plain = {argument.name: argument for argument in _plain_arguments(schema)}
    refuse_unknown_constants(constants, plain)
    for name, value in constants.items():
        check_constant(plain[name], value)
    refuse_unsupported_tensors((*script.named_parameters(), *script.named_buffers()))
    traced = read_traced_inputs(path, [argument.name for argument in schema.arguments[1:]], chosen)
    tensors = [argument for argument in schema.arguments[1:] if argument.name not in plain]
    names = tuple(argument.name for argument in tensors)
    is_called = not constants and chosen == FORWARD
    return LoadedModel(
        format=ModelFormat.TORCHSCRIPT,
        eager=script if is_called else WithConstants(script, names, constants, chosen),
        export=partial(convert_script, script, constants=constants, method=chosen),
        arguments=tuple(
            _argument(argument.name, traced.get(argument.name), required=not argument.has_default_value())
            for argument in tensors
        ),
        constants=tuple(plain.values()),
        examples=None,
        parameters=count_elements([*script.parameters(), *script.buffers()]),
        method=chosen,
        other_methods=tuple(other for other in methods if other != chosen),
    )


def _plain_arguments(schema: torch.FunctionSchema) -> Iterator[ConstantSpec]:
    """The arguments that are not tensors."""
    for argument in schema.arguments[1:]:
        kind = str(argument.type)
        if kind in _TENSORS:
            continue
        if "Tensor" in kind and not argument.has_default_value():
            detail = f"input '{argument.name}' is a {kind}; only tensors and plain values are supported"
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
        yield ConstantSpec(name=argument.name, type=kind, required=not argument.has_default_value())


def _argument(name: str, traced: TensorSpec | None, required: bool) -> Argument:
    """The traced shape is an example: a request may ask for any other size."""
    axes = frozenset(range(len(traced.shape))) if traced else frozenset()
    return Argument(name=name, spec=traced, dynamic_axes=axes, required=required)


ENTRY = "traced_inputs.pkl"
STORAGE_DTYPES = {
    "HalfStorage": DType.FLOAT16,
    "BFloat16Storage": DType.BFLOAT16,
    "FloatStorage": DType.FLOAT32,
    "DoubleStorage": DType.FLOAT64,
    "CharStorage": DType.INT8,
    "ShortStorage": DType.INT16,
    "IntStorage": DType.INT32,
    "LongStorage": DType.INT64,
    "ByteStorage": DType.UINT8,
    "BoolStorage": DType.BOOL,
    "ComplexFloatStorage": DType.COMPLEX64,
    "ComplexDoubleStorage": DType.COMPLEX128,
}

Description = tuple[DType, tuple[int, ...]]


def read_traced_inputs(path: Path, names: list[str], method: str) -> dict[str, TensorSpec]:
    """The specs of the inputs that ``torch.jit.trace`` recorded for a method, by name.

    A traced archive keeps them in ``traced_inputs.pkl``, as tensors without data, which torch never reads
    back. The result is empty if there are none, or if one is not a tensor.
    """
    try:
        recorded = _read(path, method)
    except (pickle.UnpicklingError, ValueError, EOFError, KeyError, TypeError, AttributeError, IndexError):
        return {}
    if not isinstance(recorded, list) or len(recorded) > len(names):
        return {}
    try:
        return {
            name: TensorSpec(name=name, dtype=dtype, shape=shape)
            for name, (dtype, shape) in zip(names, recorded, strict=False)
        }
    except (ValidationError, TypeError, ValueError):
        return {}


def _read(path: Path, method: str) -> object:
    data = read_entry(path, ENTRY)
    return None if data is None else _Descriptions(io.BytesIO(data)).load()[method]


class _Descriptions(pickle.Unpickler):
    """Unpickles a tensor as ``(dtype, shape)``, and refuses every global that traced inputs do not need."""

    def find_class(self, module: str, name: str) -> object:
        if module == "torch" and name in STORAGE_DTYPES:
            return STORAGE_DTYPES[name]
        known: dict[tuple[str, str], Callable[..., object]] = {
            ("torch.jit._pickle", "restore_type_tag"): lambda value, tag: value,
            ("torch._utils", "_rebuild_tensor_v2"): lambda dtype, offset, shape, *_: (dtype, tuple(shape)),
            ("collections", "OrderedDict"): OrderedDict,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not expected here")
        return known[module, name]

    def persistent_load(self, identifier: tuple[object, ...]) -> object:
        return identifier[1]
