"""TorchScript to exported program."""

import warnings

import torch
from torch.export import ExportedProgram

from bessemer.contract.model_advice import dependence_on_values
from worker.compiler.frontend.outputs import OpenSizes, export_flat
from worker.compiler.frontend.torchscript.graph import Step
from worker.compiler.frontend.torchscript.interpreter import ScriptInterpreter
from worker.errors import short_message


class ScriptConversionError(Exception):
    """Neither way led to an exported program. ``step`` is where the interpreter stopped."""

    def __init__(self, message: str, step: Step | None) -> None:
        super().__init__(message)
        self.step = step


def convert_script(
    script: torch.jit.ScriptModule, inputs: tuple[torch.Tensor, ...], open_sizes: OpenSizes | None = None
) -> ExportedProgram:
    """Export a script module for inputs of these shapes and dtypes.

    The interpreter is tried first: it gets further, and names parameters as the module does. What depends on
    the values of tensors is left to torch's own converter, which knows conditional operators, and no open
    sizes.

    Raises:
        ScriptConversionError: both failed; the message is the interpreter's, then the converter's; or
            what the model does with a tensor's value.
        JobError: ``dynamic-shapes-unsupported`` where a size cannot stay open; the detail says which.
    """
    interpreter = ScriptInterpreter(script)
    try:
        return export_flat(interpreter, inputs, open_sizes)
    except Exception as error:
        if open_sizes is not None:
            if (depends := dependence_on_values(error)) is not None:
                raise ScriptConversionError(depends, interpreter.failed) from error
            raise interpreter.watch.refusal(error, open_sizes) from error
        return _by_converter(script, inputs, interpreter.failed, error)


def _by_converter(
    script: torch.jit.ScriptModule, inputs: tuple[torch.Tensor, ...], step: Step | None, cause: Exception
) -> ExportedProgram:
    from torch._export.converter import TS2EPConverter

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = TS2EPConverter(script, inputs).convert()
            return export_flat(program.module(), inputs) if _has_open_sizes(program) else program
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


def _has_open_sizes(program: ExportedProgram) -> bool:
    """Whether the converter left sizes open: they are to be those of the inputs."""
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    sizes = (size for value in values if isinstance(value, torch.Tensor) for size in value.shape)
    return not all(isinstance(size, int) for size in sizes)
