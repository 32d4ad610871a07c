"""What a model says about itself."""

from pathlib import Path

from bessemer.contract.model import Inspection, Signature
from bessemer.contract.tensor import TensorSpec
from worker.compiler.frontend.load import load_model
from worker.compiler.frontend.loaded import Argument
from worker.compiler.frontend.open_sizes import describe_inputs


def inspect_model(path: Path) -> Inspection:
    """Read a model's format and signature. Loading runs the model's code: only call it confined.

    Raises:
        JobError: the model is not recognized, damaged, unsafe, or does not load.
    """
    model = load_model(path)
    return Inspection(
        format=model.format,
        other_methods=model.other_methods,
        signature=Signature(
            inputs=_known_inputs(model.arguments),
            input_names=tuple(argument.name for argument in model.arguments),
            parameters=model.parameters,
            dynamic=describe_inputs((argument.name, argument.open_axes) for argument in model.arguments),
        ),
    )


def _known_inputs(arguments: tuple[Argument, ...]) -> tuple[TensorSpec, ...]:
    """All inputs' shapes, or none: a part of a signature would look like the whole."""
    specs = tuple(argument.spec for argument in arguments if argument.spec is not None)
    required = [argument for argument in arguments if argument.required]
    return specs if len(specs) >= len(required) else ()
