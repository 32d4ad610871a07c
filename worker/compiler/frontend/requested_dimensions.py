"""Dimensions that a request names: their sizes in the reference inputs, and their form for torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from bessemer.contract.dynamic import EXAMPLE_SIZE, EXPORT_DYNAMIC, DimensionRange
from bessemer.contract.problem import ErrorCode
from bessemer.contract.tensor import InputSpec, TensorSpec
from worker.compiler.frontend.dynamic_shapes import DimensionSizes
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
