"""Sizes that a compiled model leaves open until it runs."""

import re
from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import Field, model_validator

from bessemer.contract.base import Document
from bessemer.contract.nearest import did_you_mean
from bessemer.contract.tensor import MAX_DIMENSION, MAX_RANK, InputSpec, TensorName, TensorSpec

MAX_DIMENSIONS = 64
EXPORT_OPEN = (
    "Export it again with dynamic_shapes=, or upload it as TorchScript or FX, which are exported here."
)
EXAMPLE_SIZE = 4

_RANGE = re.compile(r"(?P<minimum>\d+)\.\.(?P<maximum>\d*)(@(?P<example>\d+))?", re.ASCII)


class DimensionRange(Document):
    """The sizes that a request wants of a dimension that its inputs name."""

    minimum: int = Field(
        strict=True,
        default=1,
        ge=1,
        le=MAX_DIMENSION,
        description="The smallest size that the library takes.",
    )
    maximum: int | None = Field(
        strict=True, default=None, ge=2, le=MAX_DIMENSION, description="The largest; null: no bound."
    )
    example: int | None = Field(
        strict=True,
        default=None,
        ge=1,
        le=MAX_DIMENSION,
        description="The size that the library is tuned for, timed at and first verified with. Null: the "
        f"one that a trace was made with, or else {EXAMPLE_SIZE}; or the nearest in the range.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.maximum is not None and self.maximum <= self.minimum:
            raise ValueError(
                f"`maximum` must lie above `minimum`, {self.minimum}; a fixed size needs no name"
            )
        if self.example is not None and self.example != self.nearest(self.example):
            raise ValueError(f"`example` must lie in the range; the nearest is {self.nearest(self.example)}")
        return self

    def nearest(self, size: int) -> int:
        """The size of the range that is nearest to another."""
        return max(self.minimum, size if self.maximum is None else min(size, self.maximum))

    def __str__(self) -> str:
        """The command line's form, such as ``1..64`` or ``1..64@8``, which ``parse_dimension`` reads."""
        end = "" if self.maximum is None else self.maximum
        return f"{self.minimum}..{end}" + ("" if self.example is None else f"@{self.example}")


def parse_dimension(text: str) -> tuple[str, DimensionRange]:
    """Read the command line's form ``batch=1..64``, ``batch=1..`` without a bound, ``batch=1..64@8``.

    Raises:
        ValueError: the text is not of that form; the message says what was expected.
    """
    name, _, rest = text.partition("=")
    match = _RANGE.fullmatch(rest)
    if not name or not match:
        raise ValueError(f"'{text}' is not of the form NAME=1..64, NAME=1.. or NAME=1..64@8")
    given = {key: int(value) for key, value in match.groupdict().items() if value}
    return name, DimensionRange.model_validate(given)


def check_names(inputs: Sequence[InputSpec], dimensions: Mapping[str, DimensionRange]) -> None:
    """Check that inputs name exactly the dimensions that have a range.

    Raises:
        ValueError: the message says which is on one side only.
    """
    used = [name for spec in inputs for name in spec.named_axes.values()]
    absent = [name for name in used if name not in dimensions]
    unused = [name for name in dimensions if name not in used]
    if absent:
        hint = did_you_mean(absent[0], unused or dimensions)
        raise ValueError(f"'{absent[0]}', which a shape in `inputs` names, has no range{hint}")
    if unused:
        raise ValueError(f"no shape in `inputs` names '{unused[0]}'{did_you_mean(unused[0], used)}")


class DynamicDimension(Document):
    """A size that each run chooses within a range, such as a batch or the length of a sequence.

    It has the request's name. Where the request names none it is one that the file leaves open, and as
    ``torch.export.save`` keeps no names it is called after the first input's axis that it measures, ``x_0``
    for the first axis of ``x``.
    """

    name: str = Field(description="The request's, or the first axis that it measures, such as `x_0`.")
    minimum: int = Field(ge=1, le=MAX_DIMENSION, description="The smallest size that is taken.")
    maximum: int | None = Field(
        default=None, ge=1, le=MAX_DIMENSION, description="The largest; null: no bound."
    )

    def __str__(self) -> str:
        """Name and range, such as ``x_0 from 1 to 64``."""
        end = "on" if self.maximum is None else f"to {self.maximum}"
        return f"{self.name} from {self.minimum} {end}"


class DynamicAxis(Document):
    """An axis of an input or an output whose size is open: ``factor * dimension + offset``."""

    tensor: TensorName = Field(description="Of the input or the output that has the axis.")
    axis: int = Field(ge=0, lt=MAX_RANK, description="Its place in the shape, from 0.")
    dimension: str | None = Field(
        default=None, description="The name of what it measures; null where that is several dimensions."
    )
    factor: int = Field(default=1, description="By how much the axis grows where the dimension grows by 1.")
    offset: int = Field(default=0, description="What the axis has beside that; may be negative.")

    def __str__(self) -> str:
        """The size as a formula of the dimension, ``?`` where it has none."""
        if self.dimension is None:
            return "?"
        product = self.dimension if self.factor == 1 else f"{self.factor}*{self.dimension}"
        return f"{product}{self.offset:+d}" if self.offset else product


class DynamicShapes(Document):
    """What is open about a model's shapes; empty where all sizes are fixed."""

    dimensions: tuple[DynamicDimension, ...] = Field(
        default=(), description="Each once, however many axes it measures."
    )
    inputs: tuple[DynamicAxis, ...] = Field(default=(), description="The axes of inputs that are open.")
    outputs: tuple[DynamicAxis, ...] = Field(
        default=(), description="The axes of outputs that are open; none where only inputs are known."
    )


def shown_shape(spec: TensorSpec, axes: tuple[DynamicAxis, ...]) -> str:
    """A tensor as ``str(spec)`` writes it, with formulas where sizes are open: ``x=[x_0]x784:float32``."""
    formulas = {axis.axis: f"[{axis}]" for axis in axes if axis.tensor == spec.name}
    sizes = (formulas.get(axis, str(size)) for axis, size in enumerate(spec.shape))
    return f"{spec.name}={'x'.join(sizes) or 'scalar'}:{spec.dtype}"
