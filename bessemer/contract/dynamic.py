"""Dynamic sizes: dimensions that each run of a compiled model chooses."""

import re
from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import Field, model_validator

from bessemer.contract.base import Document
from bessemer.contract.names import did_you_mean
from bessemer.contract.tensor import MAX_DIMENSION, MAX_RANK, InputSpec, TensorName, TensorSpec

MAX_DIMENSIONS = 64
EXPORT_DYNAMIC = (
    "Export it again with dynamic_shapes=, or upload TorchScript or FX, which the worker exports."
)
DYNAMIC_ON_GPU = "libraries for GPUs have fixed sizes"
EXAMPLE_SIZE = 4

_RANGE = re.compile(r"(?P<minimum>\d+)\.\.(?P<maximum>\d*)(@(?P<example>\d+))?", re.ASCII)


class DimensionRange(Document):
    """The range of sizes for a dimension that the request's inputs name, or the model itself."""

    minimum: int = Field(
        strict=True,
        default=1,
        ge=1,
        le=MAX_DIMENSION,
        description="The smallest size that the library accepts.",
    )
    maximum: int | None = Field(
        strict=True, default=None, ge=2, le=MAX_DIMENSION, description="The largest size; null: unbounded."
    )
    example: int | None = Field(
        strict=True,
        default=None,
        ge=1,
        le=MAX_DIMENSION,
        description="The size for tuning, timing and the first verification. Null: the size that the model "
        f"was traced with, or else {EXAMPLE_SIZE}, or the nearest size in the range.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.maximum is not None and self.maximum <= self.minimum:
            raise ValueError(
                f"`maximum` must be greater than `minimum`, {self.minimum}; write a fixed size as a number"
            )
        if self.example is not None and self.example != self.nearest(self.example):
            raise ValueError(
                f"`example` must be in the range; the nearest size is {self.nearest(self.example)}"
            )
        return self

    def nearest(self, size: int) -> int:
        """The size in the range that is nearest to ``size``."""
        return max(self.minimum, size if self.maximum is None else min(size, self.maximum))

    def __str__(self) -> str:
        """The command line's form, such as ``1..64`` or ``1..64@8``."""
        end = "" if self.maximum is None else self.maximum
        return f"{self.minimum}..{end}" + ("" if self.example is None else f"@{self.example}")


def parse_dimension(text: str) -> tuple[str, DimensionRange]:
    """Parse ``batch=1..64``, ``batch=1..`` (unbounded) or ``batch=1..64@8``.

    Raises:
        ValueError: the text has another form.
    """
    name, _, rest = text.partition("=")
    match = _RANGE.fullmatch(rest)
    if name and rest.isascii() and rest.isdecimal():
        raise ValueError(
            f"'{text}' is one size, not a range of the form NAME=1..64; give a fixed size in the shapes of "
            "all inputs, as in x=8x784"
        )
    if not name or not match:
        raise ValueError(f"'{text}' is not of the form NAME=1..64, NAME=1.. or NAME=1..64@8")
    given = {key: int(value) for key, value in match.groupdict().items() if value}
    if given.get("maximum", given["minimum"]) < given["minimum"]:
        raise ValueError(f"{given['minimum']} is larger than {given['maximum']}")
    return name, DimensionRange.model_validate(given)


def check_names(inputs: Sequence[InputSpec], dimensions: Mapping[str, DimensionRange]) -> None:
    """Check that the inputs name exactly the dimensions that have a range.

    Without inputs, the ranges are of the model's own dimensions, which only the model knows.

    Raises:
        ValueError: a name has no range, or a range has no name.
    """
    if not inputs:
        return
    used = [name for spec in inputs for name in spec.named_axes.values()]
    absent = [name for name in used if name not in dimensions]
    unused = [name for name in dimensions if name not in used]
    if absent:
        said = f"a shape in `inputs` names '{absent[0]}', which has no range in `dimensions`"
        if unused:
            raise ValueError(f"{said}; no shape names '{unused[0]}'{did_you_mean(unused[0], absent)}")
        raise ValueError(f"{said}{did_you_mean(absent[0], dimensions)}")
    if unused:
        raise ValueError(f"no shape in `inputs` names '{unused[0]}'{did_you_mean(unused[0], used)}")


class DynamicDimension(Document):
    """A size that each run chooses within a range, such as a batch size or a sequence length.

    Its name comes from the request. ``torch.export.save`` keeps no names, so a dimension that only the file
    declares is named after the first input axis with this size: ``x_0`` for the first axis of ``x``.
    """

    name: str = Field(
        description="The name from the request, or the first axis with this size, such as `x_0`."
    )
    minimum: int = Field(ge=1, le=MAX_DIMENSION, description="The smallest size that the library accepts.")
    maximum: int | None = Field(
        default=None, ge=1, le=MAX_DIMENSION, description="The largest size; null: unbounded."
    )

    def __str__(self) -> str:
        """Name and range, such as ``x_0 from 1 to 64``."""
        end = "on" if self.maximum is None else f"to {self.maximum}"
        return f"{self.name} from {self.minimum} {end}"


class DataDimension(Document):
    """A size of outputs that depends on the inputs' values, such as the number of boxes that a model finds.

    It is named after the first output axis with this size: ``boxes_0`` for the first axis of ``boxes``.
    """

    name: str = Field(description="The first output axis with this size, such as `boxes_0`.")
    maximum: int | None = Field(
        default=None, ge=0, description="The largest size; null: none is known for all sizes of the inputs."
    )

    def __str__(self) -> str:
        """Name and range, such as ``boxes_0 up to 300``."""
        return self.name if self.maximum is None else f"{self.name} up to {self.maximum}"


class DynamicAxis(Document):
    """A dynamic axis of an input or output, whose size is ``factor * dimension + offset``."""

    tensor: TensorName = Field(description="The name of the input or output.")
    axis: int = Field(ge=0, lt=MAX_RANK, description="The index of the axis in the shape, from 0.")
    dimension: str | None = Field(
        default=None,
        description="The dimension in the formula, of `dimensions` or `of_data`; null if the size depends on "
        "several.",
    )
    factor: int = Field(default=1, description="How much the axis grows when the dimension grows by 1.")
    offset: int = Field(default=0, description="The constant part of the size; may be negative.")

    def __str__(self) -> str:
        """The size as a formula of the dimension, or ``?``."""
        if self.dimension is None:
            return "?"
        product = self.dimension if self.factor == 1 else f"{self.factor}*{self.dimension}"
        return f"{product}{self.offset:+d}" if self.offset else product


class DynamicShapes(Document):
    """The dynamic sizes of a model; empty if all sizes are fixed."""

    dimensions: tuple[DynamicDimension, ...] = Field(
        default=(), description="Each dimension once, even if several axes use it."
    )
    inputs: tuple[DynamicAxis, ...] = Field(default=(), description="The dynamic axes of the inputs.")
    outputs: tuple[DynamicAxis, ...] = Field(
        default=(), description="The dynamic axes of the outputs; empty while only the inputs are known."
    )
    of_data: tuple[DataDimension, ...] = Field(
        default=(),
        description="The sizes of outputs that depend on the inputs' values. Each run finds its own.",
    )

    def sizes(self, inputs: Sequence[TensorSpec]) -> dict[str, int]:
        """The size of each dimension, if the inputs have these shapes."""
        by_name = {spec.name: spec.shape for spec in inputs}
        found: dict[str, int] = {}
        for axis in self.inputs:
            if axis.dimension is not None:
                size = by_name[axis.tensor][axis.axis]
                found.setdefault(axis.dimension, (size - axis.offset) // axis.factor)
        return found


class VerifiedSizes(Document):
    """Sizes at which the outputs of a library for dynamic sizes were compared with the model's."""

    sizes: dict[str, int] = Field(
        max_length=MAX_DIMENSIONS,
        description="The size of each dynamic dimension.",
        examples=[{"batch": 8, "length": 128}],
    )
    inputs: tuple[TensorSpec, ...] = Field(description="The inputs with dynamic axes, at these sizes.")

    def __str__(self) -> str:
        """Sizes and inputs, such as ``at batch=8: x=8x784:float32``."""
        return f"{shown_sizes(self.sizes)}: {', '.join(map(str, self.inputs))}"


def specs_at(
    specs: tuple[TensorSpec, ...], axes: tuple[DynamicAxis, ...], sizes: Mapping[str, int]
) -> tuple[TensorSpec, ...]:
    """The specs at other sizes of the dimensions.

    Raises:
        KeyError: ``sizes`` lacks a dimension of the axes.
    """
    return tuple(_spec_at(spec, axes, sizes) for spec in specs)


def _spec_at(spec: TensorSpec, axes: tuple[DynamicAxis, ...], sizes: Mapping[str, int]) -> TensorSpec:
    shape = list(spec.shape)
    for axis in axes:
        if axis.tensor == spec.name and axis.dimension is not None:
            shape[axis.axis] = axis.factor * sizes[axis.dimension] + axis.offset
    return spec.model_copy(update={"shape": tuple(shape)})


def shown_sizes(sizes: Mapping[str, int]) -> str:
    """Sizes of dimensions in words: ``at batch=8, length=128``; empty if all sizes are fixed."""
    return f"at {', '.join(f'{name}={size}' for name, size in sizes.items())}" if sizes else ""


def unknown_dimension(name: str, known: Mapping[str, object]) -> str:
    """What is wrong with a range for a dimension that a model does not have.

    Args:
        name: the dimension.
        known: the model's own dimensions by name, each with a text of its range.
    """
    if not known:
        return f"the model has no dimension '{name}': its sizes are fixed. Name sizes in `inputs`"
    listed = ", ".join(f"'{own}' ({limits})" for own, limits in known.items())
    return f"the model has no dimension '{name}', only {listed}{did_you_mean(name, known)}"


def shown_shape(spec: TensorSpec, axes: tuple[DynamicAxis, ...]) -> str:
    """A tensor in the form of ``str(spec)``, with formulas for dynamic sizes: ``x=[x_0]x784:float32``."""
    formulas = {axis.axis: f"[{axis}]" for axis in axes if axis.tensor == spec.name}
    sizes = (formulas.get(axis, str(size)) for axis, size in enumerate(spec.shape))
    return f"{spec.name}={'x'.join(sizes) or 'scalar'}:{spec.dtype}"
