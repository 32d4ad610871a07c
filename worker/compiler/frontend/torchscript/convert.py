"""Converts a TorchScript module to an exported program."""

from __future__ import annotations

import warnings

import torch
from torch.export import ExportedProgram

from bessemer.contract.model_advice import dependence_on_values
from worker.compiler.frontend.outputs import TorchDynamicShapes, export_flat
from worker.compiler.frontend.torchscript.interpreter import ScriptCall, ScriptInterpreter
from worker.compiler.frontend.torchscript.nested_values import ControlFlowError
from worker.compiler.frontend.torchscript.packed_sequences import PackedSequenceError
from worker.compiler.frontend.torchscript.script_graph import Step
from worker.errors import short_message


class ScriptConversionError(Exception):
    """Neither the interpreter nor torch's converter succeeded. ``step`` is where the interpreter stopped."""

    def __init__(self, message: str, step: Step | None) -> None:
        super().__init__(message)
        self.step = step


def convert_script(
    script: torch.jit.ScriptModule,
    inputs: tuple[torch.Tensor, ...],
    dynamic_shapes: TorchDynamicShapes | None = None,
    call: ScriptCall | None = None,
) -> ExportedProgram:
    """Export a method of a script module for inputs of these shapes and dtypes.

    The interpreter runs first: it supports more models, and names parameters as the module does. Control flow
    on the values of tensors is left to torch's own converter, which supports conditional operators but no
    dynamic sizes.

    Raises:
        ScriptConversionError: both failed. The message is the interpreter's, then the converter's, or says
            how the model depends on a tensor's value.
        JobError: ``dynamic-shapes-unsupported`` if a size cannot stay dynamic; the detail says which.
    """
    interpreter = ScriptInterpreter(script, call)
    try:
        return export_flat(interpreter.module, inputs, dynamic_shapes)
    except (ControlFlowError, PackedSequenceError) as error:
        raise ScriptConversionError(str(error), interpreter.failed) from error
    except Exception as error:
        if dynamic_shapes is not None:
            if (depends := dependence_on_values(error)) is not None:
                raise ScriptConversionError(depends, interpreter.failed) from error
            raise interpreter.tracker.refusal(error, dynamic_shapes) from error
        if call is not None and not call.is_flat:  # torch's converter takes only forward's tensors
            raise ScriptConversionError(short_message(error), interpreter.failed) from error
        return _by_converter(script, inputs, interpreter.failed, error)


def _by_converter(
    script: torch.jit.ScriptModule, inputs: tuple[torch.Tensor, ...], step: Step | None, cause: Exception
) -> ExportedProgram:
    from torch._export.converter import TS2EPConverter

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = TS2EPConverter(script, inputs).convert()
            return export_flat(program.module(), inputs) if _has_dynamic_sizes(program) else program
    except Exception as error:
        raise _neither_way(cause, error, step) from cause


def _neither_way(cause: Exception, error: Exception, step: Step | None) -> ScriptConversionError:
    depends = dependence_on_values(cause)
    if depends is None:
        message = f"{short_message(cause)} (torch's own converter: {short_message(error)})"
        return ScriptConversionError(message, step)
    refusal = ScriptConversionError(depends, step)
    refusal.add_note(f"torch's own converter: {short_message(error)}")
    return refusal


def _has_dynamic_sizes(program: ExportedProgram) -> bool:
    """Whether the converter made sizes dynamic that should be fixed."""
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    sizes = (size for value in values if isinstance(value, torch.Tensor) for size in value.shape)
    return not all(isinstance(size, int) for size in sizes)
