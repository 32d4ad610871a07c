"""Loads a traced or scripted module from a file of ``torch.jit.save``."""

import io
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from bessemer.contract.model import ModelFormat
from bessemer.contract.structure import ArgumentStructure, CallStructure, TensorLeaf
from bessemer.contract.tensor import DType, TensorSpec
from worker.compiler.frontend.constants import check_constant, refuse_unknown_constants
from worker.compiler.frontend.custom_operators import refuse_unknown_calls
from worker.compiler.frontend.loaded_model import (
    FORWARD,
    Argument,
    LoadedModel,
    choose_method,
    count_elements,
    load_failed,
)
from worker.compiler.frontend.structures import WithArguments
from worker.compiler.frontend.torchscript.convert import convert_script
from worker.compiler.frontend.torchscript.interpreter import ScriptCall
from worker.compiler.frontend.torchscript.module_state import public_methods
from worker.compiler.frontend.torchscript.script_arguments import field_names, script_arguments
from worker.compiler.frontend.torchscript.source_calls import source_calls
from worker.compiler.frontend.unsupported_tensors import refuse_quantized_modules, refuse_unsupported_tensors
from worker.compiler.frontend.zip_archive import read_entry
from worker.compiler.values import WHOLE, Selection


def load(path: Path, selection: Selection = WHOLE) -> LoadedModel:
    """Load a script module, and one of its methods: ``forward`` unless another is named.

    Raises:
        JobError: ``model-load-failed`` with torch's message, ``model-operator-unavailable`` if the worker
            does not know a custom operator, ``method-missing`` with the existing methods,
            ``model-signature-unsupported`` if an argument contains anything but tensors and plain values,
            ``inputs-mismatch`` if a name or a constant does not fit, or ``model-tensors-unsupported``.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*torch.jit", category=DeprecationWarning)
            script = torch.jit.load(path, map_location="cpu")
    except Exception as error:
        refuse_unknown_calls(source_calls(path))
        raise load_failed(error) from error
    refuse_quantized_modules(script.named_modules())
    methods = public_methods(script)
    chosen = choose_method(methods, selection.method)
    schema, constants = getattr(script, chosen).schema, selection.constants
    traced = read_traced_inputs(path, schema.arguments[1:], chosen)
    found = script_arguments(schema, selection.inputs or tuple(traced), constants)
    plain = {each.name: each for each in found.constants}
    refuse_unknown_constants(constants, plain)
    for name, value in constants.items():
        check_constant(plain[name], value)
    refuse_unsupported_tensors((*script.named_parameters(), *script.named_buffers()))
    named = selection.inputs or [name for name, needed in found.tensors.items() if needed or name in traced]
    order = tuple(name for name in found.tensors if name in named)
    is_flat = chosen == FORWARD and not constants and _takes_just(schema, found.arguments, order)
    return LoadedModel(
        format=ModelFormat.TORCHSCRIPT,
        eager=script if is_flat else WithArguments(script, found.arguments, order, chosen),
        export=partial(convert_script, script, call=ScriptCall(found.arguments, order, chosen, is_flat)),
        call=CallStructure(arguments=found.arguments),
        arguments=tuple(
            _argument(name, traced.get(name), required) for name, required in found.tensors.items()
        ),
        constants=found.constants,
        examples=None,
        parameters=count_elements([*script.parameters(), *script.buffers()]),
        method=chosen,
        other_methods=tuple(other for other in methods if other != chosen),
    )


def _takes_just(
    schema: torch.FunctionSchema, arguments: tuple[ArgumentStructure, ...], tensors: tuple[str, ...]
) -> bool:
    """Whether the tensors are the arguments that have no default."""
    count = len(tensors)
    leaves = tuple(TensorLeaf(tensor=name) for name in tensors)
    others = schema.arguments[1 + count :]
    return tuple(argument.structure for argument in arguments[:count]) == leaves and all(
        argument.has_default_value() for argument in others
    )


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


def read_traced_inputs(path: Path, arguments: list[Any], method: str) -> dict[str, TensorSpec]:
    """The specs of the inputs that ``torch.jit.trace`` recorded for a method, by name.

    A traced archive keeps them in ``traced_inputs.pkl``, as tensors without data, which torch never reads
    back. The result is empty if there are none, or if one is not a tensor or a container of tensors.

    Args:
        path: the file.
        arguments: the arguments of the method's schema, without the module itself.
        method: the method's name.
    """
    try:
        recorded = _read(path, method)
    except (pickle.UnpicklingError, ValueError, EOFError, KeyError, TypeError, AttributeError, IndexError):
        return {}
    if not isinstance(recorded, list) or len(recorded) > len(arguments):
        return {}
    try:
        pairs = zip(arguments, recorded, strict=False)
        specs = [spec for given, value in pairs for spec in _traced_specs(given.name, given.type, value)]
    except (AttributeError, ValidationError, TypeError, ValueError, RecursionError):
        return {}
    return {spec.name: spec for spec in specs}


def _traced_specs(name: str, kind: Any, value: object) -> Iterator[TensorSpec]:
    """The tensors in a recorded value. Raises ``TypeError`` if it contains something else."""
    match value:
        case (DType() as dtype, tuple() as shape):
            yield TensorSpec(name=name, dtype=dtype, shape=shape)
        case dict():
            for key, item in value.items():
                yield from _traced_specs(f"{name}.{key}", kind.getValueType(), item)
        case list():
            for index, item in enumerate(value):
                yield from _traced_specs(f"{name}.{index}", kind.getElementType(), item)
        case tuple():
            places = field_names(kind) or range(len(value))
            for place, element, item in zip(places, kind.elements(), value, strict=True):
                yield from _traced_specs(f"{name}.{place}", element, item)
        case _:
            raise TypeError(f"{name} is a {type(value).__name__}")


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
            ("torch.jit._pickle", "build_tensorlist"): lambda tensors: tensors,
            ("torch._utils", "_rebuild_tensor_v2"): lambda dtype, offset, shape, *_: (dtype, tuple(shape)),
            ("collections", "OrderedDict"): OrderedDict,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not expected here")
        return known[module, name]

    def persistent_load(self, identifier: tuple[object, ...]) -> object:
        return identifier[1]
