"""Dimensions that a request names: their sizes in the reference inputs, and their form for torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from pydantic import ValidationError

from bessemer.contract.dynamic import EXAMPLE_SIZE, EXPORT_DYNAMIC, DimensionRange, unknown_dimension
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest
from bessemer.contract.tensor import InputSpec, TensorSpec
from worker.compiler.frontend.dynamic_shapes import DimensionSizes, SymbolicAxis
from worker.compiler.frontend.loaded_model import Argument
from worker.compiler.frontend.outputs import TorchDynamicShapes
from worker.errors import JobError

LEAST_EXPORTED = 2
"""``torch.export`` specializes sizes 0 and 1."""


def example_sizes(
    inputs: tuple[InputSpec, ...], dimensions: Mapping[str, DimensionRange], arguments: tuple[Argument, ...]
) -> DimensionSizes:
    """The size of each dimension in the reference inputs.

    This is the example of the range. Without one, it is the file's size of the first axis with the name, or
    ``EXAMPLE_SIZE``, moved into the range.
    """
    recorded: DimensionSizes = {}
    known = {argument.name: argument.spec for argument in arguments if argument.spec is not None}
    for name, size in _named(inputs, known):
        recorded.setdefault(name, size)
    return {
        name: limits.example or limits.nearest(recorded.get(name, EXAMPLE_SIZE))
        for name, limits in dimensions.items()
    }


def exported_sizes(sizes: DimensionSizes) -> DimensionSizes:
    """Nearby sizes at which every dimension can stay dynamic."""
    return {name: max(LEAST_EXPORTED, size) for name, size in sizes.items()}


def requested_dynamic_shapes(
    inputs: tuple[InputSpec, ...], dimensions: Mapping[str, DimensionRange], order: Iterable[str]
) -> TorchDynamicShapes:
    """The ``dynamic_shapes`` argument of ``torch.export.export``.

    Args:
        inputs: the inputs of the request.
        dimensions: the range of each dimension, by name.
        order: the inputs' names in the order of the model's arguments.
    """
    made = {
        name: torch.export.Dim(name, min=limits.minimum, max=limits.maximum)
        for name, limits in dimensions.items()
    }
    axes = {spec.name: {axis: made[name] for axis, name in spec.named_axes.items()} for spec in inputs}
    return tuple(axes[name] for name in order)


def with_own_dtypes(request: CompilationRequest, arguments: tuple[Argument, ...]) -> CompilationRequest:
    """The request with the model's dtypes for inputs that name none, as far as the model declares them."""
    own = {argument.name: argument.spec.dtype for argument in arguments if argument.spec is not None}
    inputs = tuple(
        spec.model_copy(update={"dtype": own.get(spec.name)}) if spec.dtype is None else spec
        for spec in request.inputs
    )
    return request.model_copy(update={"inputs": inputs})


def with_own_dimensions(request: CompilationRequest, arguments: tuple[Argument, ...]) -> CompilationRequest:
    """The request with all inputs, if it only has ranges of dimensions of the model.

    Parts of ranges, and ranges, that the request leaves out are the model's.

    Args:
        request: the request.
        arguments: the model's arguments.

    Raises:
        JobError: ``inputs-mismatch``: the model has no such dimension; or
            ``dynamic-shapes-unsupported``: a size of the model depends on another, or a range is not within
            the model's.
    """
    dimensions = request.dimensions
    if request.inputs or not dimensions:
        return request
    names: dict[str, str] = {}
    own: dict[str, SymbolicAxis] = {}
    for argument in arguments:
        for axis in argument.symbolic_axes:
            symbol = axis.size.symbol
            if symbol is None or (axis.size.factor, axis.size.offset) != (1, 0):
                where = f"axis {axis.axis} of '{argument.name}'"
                raise _refused(f"{where} is an expression of a dimension, so its range is that of the export")
            if symbol not in names:
                names[symbol] = f"{argument.name}_{axis.axis}"
                own[names[symbol]] = axis
    unknown = next((name for name in dimensions if name not in own), None)
    if unknown is not None:
        raise JobError(ErrorCode.INPUTS_MISMATCH, unknown_dimension(unknown, own))
    ranges = {name: _narrowed(name, axis, dimensions.get(name)) for name, axis in own.items()}
    inputs = tuple(_with_names(argument, names) for argument in arguments if argument.spec is not None)
    return request.model_copy(update={"inputs": inputs, "dimensions": ranges})


def _narrowed(name: str, axis: SymbolicAxis, asked: DimensionRange | None) -> DimensionRange:
    limits = {"minimum": max(1, axis.minimum), "maximum": axis.maximum}
    given = {} if asked is None else asked.model_dump(exclude_unset=True)
    try:
        return DimensionRange.model_validate({**limits, **given})
    except ValidationError as error:
        raise _refused(f"'{name}' is {asked}, but the model accepts {axis}") from error


def _with_names(argument: Argument, names: Mapping[str, str]) -> InputSpec:
    assert argument.spec is not None
    shape: list[int | str] = list(argument.spec.shape)
    for axis in argument.symbolic_axes:
        shape[axis.axis] = names[str(axis.size.symbol)]
    return InputSpec(name=argument.name, dtype=argument.spec.dtype, shape=tuple(shape))


def check_requested_dimensions(
    inputs: tuple[InputSpec, ...], dimensions: Mapping[str, DimensionRange], arguments: tuple[Argument, ...]
) -> None:
    """Check the dimensions of a request against the dynamic dimensions of an exported program.

    A request may rename a dimension of the file and narrow its range. Each name stands for one dimension.

    Raises:
        JobError: ``dynamic-shapes-unsupported``.
    """
    given = {spec.name: spec for spec in inputs}
    measured: dict[str | None, set[int | str]] = {}
    for argument in arguments:
        if argument.name in given:
            for axis in argument.symbolic_axes:
                measured.setdefault(axis.size.symbol, set()).add(given[argument.name].shape[axis.axis])
            _refuse_names(given[argument.name], argument, dimensions)
    for entries in measured.values():
        if len(entries) > 1 and any(isinstance(entry, str) for entry in entries):
            names = ", ".join(sorted(map(repr, entries)))
            raise _refused(f"{names} stand for one dimension of the file and need one name")


def _refuse_names(spec: InputSpec, argument: Argument, dimensions: Mapping[str, DimensionRange]) -> None:
    own = {axis.axis: axis for axis in argument.symbolic_axes}
    for axis, name in spec.named_axes.items():
        where = f"axis {axis} of '{spec.name}'"
        if axis not in own:
            raise _refused(f"'{name}' cannot be dynamic: {where} was fixed when the model was exported")
        if own[axis].size.symbol is None or (own[axis].size.factor, own[axis].size.offset) != (1, 0):
            raise _refused(f"{where} depends on another dimension of the file; leave out the inputs")
        if not own[axis].holds(dimensions[name].minimum, dimensions[name].maximum):
            raise _refused(f"'{name}' is {dimensions[name]}, but {where} accepts {own[axis]}")


def _refused(detail: str) -> JobError:
    return JobError(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, f"{detail}. {EXPORT_DYNAMIC}")


def names_by_axis(inputs: tuple[InputSpec, ...]) -> dict[tuple[str, int], str]:
    """The names of dimensions by input and axis."""
    return {(spec.name, axis): name for spec in inputs for axis, name in spec.named_axes.items()}


def _named(inputs: tuple[InputSpec, ...], known: Mapping[str, TensorSpec]) -> Iterable[tuple[str, int]]:
    for spec in inputs:
        shape = known[spec.name].shape if spec.name in known else ()
        yield from ((name, shape[axis]) for axis, name in spec.named_axes.items() if axis < len(shape))
