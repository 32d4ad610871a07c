"""Files of ``torch.jit.save``, traced or scripted."""

import warnings
from functools import partial
from pathlib import Path

import torch

from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import TensorSpec
from worker.compiler.frontend.kinds import refuse_kinds, refuse_quantized_modules
from worker.compiler.frontend.loaded import Argument, LoadedModel, count_elements, load_failed
from worker.compiler.frontend.torchscript.convert import convert_script
from worker.compiler.frontend.traced_inputs import read_traced_inputs
from worker.errors import JobError

FORWARD = "forward"


def load(path: Path) -> LoadedModel:
    """Load a script module.

    Raises:
        JobError: ``model-load-failed`` with torch's message, ``model-forward-missing`` with the methods that
            there are, ``model-signature-unsupported`` where an input is not a tensor, or
            ``model-tensors-unsupported``.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*torch.jit", category=DeprecationWarning)
            script = torch.jit.load(path, map_location="cpu")
    except Exception as error:
        raise load_failed(error) from error
    refuse_quantized_modules(script.named_modules())
    schema = _forward_schema(script)
    _check_types(schema)
    refuse_kinds((*script.named_parameters(), *script.named_buffers()))
    traced = read_traced_inputs(path, [argument.name for argument in schema.arguments[1:]])
    return LoadedModel(
        format=ModelFormat.TORCHSCRIPT,
        eager=script,
        export=partial(convert_script, script),
        arguments=tuple(
            _argument(argument.name, traced.get(argument.name), required=not argument.has_default_value())
            for argument in schema.arguments[1:]
        ),
        examples=None,
        parameters=count_elements([*script.parameters(), *script.buffers()]),
        other_methods=tuple(name for name in _public_methods(script) if name != FORWARD),
    )


def _forward_schema(script: torch.jit.ScriptModule) -> torch.FunctionSchema:
    methods = _public_methods(script)
    if FORWARD not in methods:
        listed = ", ".join(map(repr, methods)) or "no public method"
        raise JobError(ErrorCode.MODEL_FORWARD_MISSING, f"the script module has {listed}, but no 'forward'")
    return script.forward.schema


def _public_methods(script: torch.jit.ScriptModule) -> tuple[str, ...]:
    return tuple(sorted(name for name in script._c._method_names() if not name.startswith("_")))


def _check_types(schema: torch.FunctionSchema) -> None:
    for argument in schema.arguments[1:]:
        tensor = str(argument.type) in ("Tensor", "Optional[Tensor]")
        if not tensor and not argument.has_default_value():
            detail = f"input '{argument.name}' is a {argument.type}; only tensors can be given"
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)


def _argument(name: str, traced: TensorSpec | None, required: bool) -> Argument:
    """A trace says what it was made with; other sizes are tried if they are asked for."""
    axes = frozenset(range(len(traced.shape))) if traced else frozenset()
    return Argument(name=name, spec=traced, dynamic_axes=axes, required=required)
