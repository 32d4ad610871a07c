"""Dynamic dimensions of an exported program: its symbols, and their names and ranges in the API."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._sympy.value_ranges import bound_sympy

from bessemer.contract.dynamic import DataDimension, DynamicAxis, DynamicDimension, DynamicShapes
from bessemer.contract.tensor import MAX_DIMENSION, TensorSpec

DimensionSizes = dict[str, int]
"""The size of each dimension, by name."""

AxisNames = Mapping[tuple[str, int], str]
"""The dimension of an axis of an input, by the input's name and the axis."""

NO_NAMES: AxisNames = MappingProxyType({})


@dataclass(frozen=True)
class AffineSize:
    """A size ``factor * symbol + offset``. ``symbol`` is None if the size depends on several symbols."""

    symbol: str | None
    factor: int = 1
    offset: int = 0


@dataclass(frozen=True)
class SymbolicAxis:
    """An axis of dynamic size, with the range of its symbol."""

    axis: int
    size: AffineSize
    minimum: int
    maximum: int | None

    def takes(self, size: int) -> bool:
        """Whether the program accepts a size of the axis. A size of several symbols is not checked."""
        if self.size.symbol is None:
            return True
        symbol, rest = divmod(size - self.size.offset, self.size.factor)
        return rest == 0 and self.minimum <= symbol and (self.maximum is None or symbol <= self.maximum)

    def holds(self, minimum: int, maximum: int | None) -> bool:
        """Whether a range lies within the symbol's range."""
        return self.minimum <= minimum and (
            self.maximum is None or (maximum is not None and maximum <= self.maximum)
        )

    def __str__(self) -> str:
        """The range of the axis, such as ``2 to 64``, or ``2 to 64 in steps of 2``."""
        first = self.size.factor * self.minimum + self.size.offset
        last = None if self.maximum is None else self.size.factor * self.maximum + self.size.offset
        steps = "" if self.size.factor == 1 else f" in steps of {self.size.factor}"
        return f"{first} or more{steps}" if last is None else f"{first} to {last}{steps}"


def symbolic_axes(value: torch.Tensor, program: ExportedProgram) -> tuple[SymbolicAxis, ...]:
    """The axes of a program's tensor that have a dynamic size."""
    ranges = {str(symbol): limits for symbol, limits in program.range_constraints.items()}
    found = []
    for axis, size in enumerate(value.shape):
        if not isinstance(size, int):
            formula = _formula(size.node.expr)
            found.append(SymbolicAxis(axis, formula, *_range(ranges.get(str(formula.symbol)))))
    return tuple(found)


def describe_inputs(
    inputs: Iterable[tuple[str, tuple[SymbolicAxis, ...]]], given: AxisNames = NO_NAMES
) -> DynamicShapes:
    """The dynamic dimensions of a model's inputs.

    Args:
        inputs: the name and the symbolic axes of each input.
        given: names of dimensions; a dimension without one is named after its first axis.
    """
    names: dict[str | None, str] = {}
    dimensions, axes = [], []
    for tensor, symbolic in inputs:
        for axis in symbolic:
            if axis.size.symbol is not None and axis.size.symbol not in names:
                name = given.get((tensor, axis.axis), f"{tensor}_{axis.axis}")
                names[axis.size.symbol] = name
                dimensions.append(DynamicDimension(name=name, minimum=axis.minimum, maximum=axis.maximum))
            axes.append(_named(tensor, axis, names))
    return DynamicShapes(dimensions=tuple(dimensions), inputs=tuple(axes))


def describe_program(
    program: ExportedProgram,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    given: AxisNames = NO_NAMES,
) -> DynamicShapes:
    """The dynamic dimensions of a program that takes and returns only tensors.

    Args:
        program: the exported program.
        inputs: its inputs, in order.
        outputs: its outputs, in order.
        given: names of dimensions.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    taken = _taken(program, values)
    returned = [
        values[spec.arg.name]
        for spec in program.graph_signature.output_specs
        if spec.kind == OutputKind.USER_OUTPUT
    ]
    axes_of_inputs = [
        (spec.name, symbolic_axes(value, program)) for spec, value in zip(inputs, taken, strict=True)
    ]
    shapes = describe_inputs(axes_of_inputs, given)
    names = _names(axes_of_inputs, shapes)
    axes, of_data = [], dict[str, DataDimension]()
    for spec, value in zip(outputs, returned, strict=True):
        for axis in symbolic_axes(value, program):
            size = value.shape[axis.axis].node.expr
            if {str(symbol) for symbol in size.free_symbols} <= names.keys():
                axes.append(_named(spec.name, axis, names))
                continue
            own = DataDimension(name=f"{spec.name}_{axis.axis}", maximum=_maximum(size, program))
            name = of_data.setdefault(str(size), own).name
            axes.append(DynamicAxis(tensor=spec.name, axis=axis.axis, dimension=name))
    return shapes.model_copy(update={"outputs": tuple(axes), "of_data": tuple(of_data.values())})


def names_of_symbols(
    program: ExportedProgram, inputs: tuple[TensorSpec, ...], shapes: DynamicShapes
) -> dict[str, str]:
    """The dimensions that a program's symbols stand for, as far as its inputs tell.

    Args:
        program: the exported program.
        inputs: its inputs, in order.
        shapes: their dynamic sizes.
    """
    taken = _taken(program, {node.name: node.meta.get("val") for node in program.graph.nodes})
    dimensions = {(axis.tensor, axis.axis): axis.dimension for axis in shapes.inputs}
    names: dict[str, str] = {}
    for spec, value in zip(inputs, taken, strict=False):
        for axis in symbolic_axes(value, program):
            name = dimensions.get((spec.name, axis.axis))
            if axis.size.symbol is not None and name is not None:
                names.setdefault(axis.size.symbol, name)
    return names


def _taken(program: ExportedProgram, values: Mapping[str, Any]) -> list[Any]:
    """What the program takes from its user."""
    specs = program.graph_signature.input_specs
    return [values[spec.arg.name] for spec in specs if spec.kind == InputKind.USER_INPUT]


def _maximum(size: Any, program: ExportedProgram) -> int | None:
    """The largest value of a size; None if it has no bound."""
    return _range(bound_sympy(size, program.range_constraints))[1]


def same_dynamic_shapes(
    values: Iterable[torch.Tensor], program: ExportedProgram
) -> tuple[dict[int, Any], ...]:
    """The ``dynamic_shapes`` argument of ``torch.export.export`` that keeps the same sizes dynamic."""
    dims: dict[str, Any] = {}
    shapes = []
    for value in values:
        axes = {}
        for axis in symbolic_axes(value, program):
            symbol = str(axis.size.symbol)
            if symbol not in dims:
                dims[symbol] = torch.export.Dim(symbol, min=axis.minimum, max=axis.maximum)
            scaled = dims[symbol] if axis.size.factor == 1 else axis.size.factor * dims[symbol]
            axes[axis.axis] = scaled if axis.size.offset == 0 else scaled + axis.size.offset
        shapes.append(axes)
    return tuple(shapes)


def choose_samples(
    dimensions: tuple[DynamicDimension, ...], example: DimensionSizes
) -> tuple[DimensionSizes, ...]:
    """Sizes to verify besides the example: the smallest, odd ones, larger ones, in this order.

    Args:
        dimensions: the ranges.
        example: the size of each dimension in the reference inputs.

    Returns:
        Distinct choices, without the example.
    """
    smallest = {entry.name: entry.minimum for entry in dimensions}
    odd = {entry.name: _within(entry, (example[entry.name] // 2) | 1) for entry in dimensions}
    larger = {
        entry.name: _within(entry, 2 * example[entry.name] + 3 + 2 * place)
        for place, entry in enumerate(dimensions)
    }
    chosen: list[DimensionSizes] = []
    for sizes in (smallest, odd, larger):
        if sizes != example and sizes not in chosen:
            chosen.append(sizes)
    return tuple(chosen)


def _within(dimension: DynamicDimension, size: int) -> int:
    highest = size if dimension.maximum is None else dimension.maximum
    return max(dimension.minimum, min(size, highest))


def _names(
    axes_of_inputs: list[tuple[str, tuple[SymbolicAxis, ...]]], shapes: DynamicShapes
) -> dict[str | None, str]:
    symbols = [axis.size.symbol for _, axes in axes_of_inputs for axis in axes]
    found = {symbol: axis.dimension for symbol, axis in zip(symbols, shapes.inputs, strict=True)}
    return {symbol: name for symbol, name in found.items() if name is not None}


def _named(tensor: str, axis: SymbolicAxis, names: Mapping[str | None, str]) -> DynamicAxis:
    name = names.get(axis.size.symbol)
    if name is None:
        return DynamicAxis(tensor=tensor, axis=axis.axis)
    return DynamicAxis(
        tensor=tensor,
        axis=axis.axis,
        dimension=name,
        factor=axis.size.factor,
        offset=axis.size.offset,
    )


def _formula(expression: Any) -> AffineSize:
    symbols = expression.free_symbols
    if len(symbols) != 1:
        return AffineSize(None)
    (symbol,) = symbols
    factor = expression.coeff(symbol)
    offset = expression - factor * symbol
    if not (factor.is_Integer and offset.is_Integer and factor > 0):
        return AffineSize(None)
    return AffineSize(str(symbol), int(factor), int(offset))


def _range(limits: Any) -> tuple[int, int | None]:
    if limits is None:
        return 1, None
    unbounded = math.isinf(float(limits.upper)) or limits.upper > MAX_DIMENSION
    return max(1, int(limits.lower)), None if unbounded else int(limits.upper)
