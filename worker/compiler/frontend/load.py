"""Loads and inspects a model of any format."""

from collections.abc import Callable
from pathlib import Path

from bessemer.contract.model import Inspection, ModelFormat, Signature
from bessemer.contract.structure import CallStructure
from bessemer.contract.tensor import TensorSpec
from worker.compiler.frontend import fx, pt2, torchvision_operators  # noqa: F401 - defines operators
from worker.compiler.frontend.dynamic_shapes import describe_inputs
from worker.compiler.frontend.file_format import recognize
from worker.compiler.frontend.ir_modules.entry import open_entry, symbol_names
from worker.compiler.frontend.ir_modules.module_file import read_module_file
from worker.compiler.frontend.loaded_model import Argument, LoadedModel, load_failed
from worker.compiler.frontend.torchscript import script_file as torchscript
from worker.compiler.values import WHOLE, Selection

LOADERS: dict[ModelFormat, Callable[[Path, Selection], LoadedModel]] = {
    ModelFormat.PT2: pt2.load,
    ModelFormat.TORCHSCRIPT: torchscript.load,
    ModelFormat.FX: fx.load,
}


MAX_STRUCTURE_BYTES = 1 << 16


def load_model(
    path: Path, selection: Selection = WHOLE, checked_as: ModelFormat | None = None
) -> LoadedModel:
    """Recognize, check and load a model. This runs the model's code, so call it only in the sandbox.

    Args:
        path: the file.
        selection: what the request selects of it.
        checked_as: the format that ``recognize`` found before; checking reads the whole file.

    Raises:
        JobError: the model is not recognized, damaged, unsafe, or does not load, or it has no such constants
            or method.
    """
    return _loaded(recognize(path) if checked_as is None else checked_as, path, selection)


def _loaded(form: ModelFormat, path: Path, selection: Selection) -> LoadedModel:
    try:
        return LOADERS[form](path, selection)
    except Exception as error:
        raise load_failed(error) from error


def inspect_model(path: Path) -> Inspection:
    """Read a model's format and signature. This runs the model's code, so call it only in the sandbox.

    Raises:
        JobError: the model is not recognized, damaged, unsafe, or does not load.
    """
    form = recognize(path)
    if form is ModelFormat.IR_MODULE:
        return _inspected_module(path)
    model = _loaded(form, path, WHOLE)
    return Inspection(
        format=model.format,
        method=model.method,
        other_methods=model.other_methods,
        signature=Signature(
            inputs=_known_inputs(model.arguments),
            input_names=tuple(argument.name for argument in model.arguments),
            constants=model.constants,
            call=_bounded(model.call),
            parameters=model.parameters,
            dynamic=describe_inputs((argument.name, argument.symbolic_axes) for argument in model.arguments),
        ),
    )


def _inspected_module(path: Path) -> Inspection:
    entry = open_entry(read_module_file(path), None)
    return Inspection(
        format=ModelFormat.IR_MODULE,
        method=entry.function,
        other_methods=entry.other_functions,
        signature=Signature(
            inputs=_known_inputs(entry.arguments),
            input_names=tuple(argument.name for argument in entry.arguments),
            call=_bounded(CallStructure(arguments=entry.structures, returns=entry.returns)),
            parameters=entry.parameters,
            dynamic=describe_inputs(
                ((argument.name, argument.symbolic_axes) for argument in entry.arguments),
                symbol_names(entry.arguments),
            ),
        ),
    )


def _bounded(call: CallStructure) -> CallStructure:
    """The structure without its largest parts, so that an inspection fits in a message."""
    for kept in (call, call.model_copy(update={"returns": None})):
        if len(kept.model_dump_json()) <= MAX_STRUCTURE_BYTES:
            return kept
    return CallStructure()


def _known_inputs(arguments: tuple[Argument, ...]) -> tuple[TensorSpec, ...]:
    """The specs of all inputs, or none if one is unknown: a partial signature would look complete."""
    specs = tuple(argument.spec for argument in arguments if argument.spec is not None)
    required = [argument for argument in arguments if argument.required]
    return specs if len(specs) >= len(required) else ()
