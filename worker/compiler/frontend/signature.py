"""Matches the inputs of a request with the model's arguments."""

from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import TensorSpec
from worker.compiler.frontend.loaded_model import Argument
from worker.errors import JobError


def match_inputs(
    requested: tuple[TensorSpec, ...], arguments: tuple[Argument, ...]
) -> tuple[TensorSpec, ...]:
    """The inputs to compile for, in the order of the model's arguments.

    Args:
        requested: the inputs of the request, in any order, at example sizes; empty to use the model's own.
        arguments: the model's arguments. Optional ones may be left out.

    Raises:
        JobError: ``inputs-missing`` if neither request nor model has the shapes, ``inputs-mismatch`` if
            names, number or shapes differ from the model's.
    """
    if not requested:
        return _own_inputs(arguments)
    given = {spec.name: spec for spec in requested}
    names = [argument.name for argument in arguments]
    required = [argument.name for argument in arguments if argument.required]
    unknown = [name for name in given if name not in names]
    absent = [name for name in required if name not in given]
    chosen = [argument for argument in arguments if argument.name in given]
    if unknown or absent:
        raise _mismatch(requested, arguments, _name_problem(unknown, absent))
    for argument in chosen:
        problem = _shape_problem(given[argument.name], argument)
        if problem:
            raise _mismatch(requested, arguments, problem)
    return tuple(given[argument.name] for argument in chosen)


def _own_inputs(arguments: tuple[Argument, ...]) -> tuple[TensorSpec, ...]:
    needed = [argument for argument in arguments if argument.required or argument.spec]
    unknown = [repr(argument.name) for argument in needed if argument.spec is None]
    if unknown:
        raise JobError(
            ErrorCode.INPUTS_MISSING,
            f"the model takes {_listed(arguments)}, but the file has no shapes for {', '.join(unknown)}",
        )
    return tuple(argument.spec for argument in needed if argument.spec is not None)


def _name_problem(unknown: list[str], absent: list[str]) -> str:
    problems = [
        f"the model has no input {', '.join(map(repr, unknown))}" if unknown else "",
        f"forward's input {', '.join(map(repr, absent))} is missing" if absent else "",
    ]
    return "; ".join(filter(None, problems))


def _shape_problem(given: TensorSpec, argument: Argument) -> str | None:
    expected = argument.spec
    if expected is None:
        return None
    if given.dtype != expected.dtype:
        return f"'{given.name}' is {expected.dtype.value}, not {given.dtype.value}"
    if len(given.shape) != len(expected.shape):
        return f"'{given.name}' has rank {len(expected.shape)}, not {len(given.shape)}"
    sizes = enumerate(zip(given.shape, expected.shape, strict=True))
    wrong = [axis for axis, (size, own) in sizes if size != own and axis not in argument.dynamic_axes]
    if wrong:
        return f"'{given.name}' has the wrong size in axis {', '.join(map(str, wrong))}"
    beyond = [axis for axis in argument.symbolic_axes if not axis.takes(given.shape[axis.axis])]
    problems = (f"{given.shape[axis.axis]} in axis {axis.axis}, which accepts {axis}" for axis in beyond)
    return f"'{given.name}' has {'; '.join(problems)}" if beyond else None


def _mismatch(requested: tuple[TensorSpec, ...], arguments: tuple[Argument, ...], problem: str) -> JobError:
    detail = f"{problem}; expected {_listed(arguments)}; given {', '.join(map(str, requested))}"
    return JobError(ErrorCode.INPUTS_MISMATCH, detail)


def _listed(arguments: tuple[Argument, ...]) -> str:
    shown = (
        f"{argument.name if argument.spec is None else _starred(argument.spec, argument.dynamic_axes)}"
        f"{'' if argument.required else ' (optional)'}"
        for argument in arguments
    )
    return ", ".join(shown) or "no inputs"


def _starred(spec: TensorSpec, dynamic_axes: frozenset[int]) -> str:
    """Like ``str(spec)``, with a star at each dynamic size."""
    if not dynamic_axes:
        return str(spec)
    sizes = [f"{size}*" if axis in dynamic_axes else str(size) for axis, size in enumerate(spec.shape)]
    return f"{spec.name}={'x'.join(sizes)}:{spec.dtype.value}"
