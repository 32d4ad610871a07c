"""Sizes that a compiled model leaves open until it runs."""

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.tensor import MAX_DIMENSION, MAX_RANK, TensorName, TensorSpec


class DynamicDimension(Document):
    """A size that each run chooses within a range, such as a batch or the length of a sequence.

    ``torch.export.save`` keeps no names of dimensions: each is called after the first input's axis that it
    measures, ``x_0`` for the first axis of ``x``.
    """

    name: str
    minimum: int = Field(ge=1, le=MAX_DIMENSION)
    maximum: int | None = Field(default=None, ge=1, le=MAX_DIMENSION, description="None: no bound.")

    def __str__(self) -> str:
        """Name and range, such as ``x_0 from 1 to 64``."""
        end = "on" if self.maximum is None else f"to {self.maximum}"
        return f"{self.name} from {self.minimum} {end}"


class DynamicAxis(Document):
    """An axis of an input or an output whose size is open: ``factor * dimension + offset``."""

    tensor: TensorName
    axis: int = Field(ge=0, lt=MAX_RANK)
    dimension: str | None = Field(
        default=None, description="None where an output's size depends on several dimensions."
    )
    factor: int = 1
    offset: int = 0

    def __str__(self) -> str:
        """The size as a formula of the dimension, ``?`` where it has none."""
        if self.dimension is None:
            return "?"
        product = self.dimension if self.factor == 1 else f"{self.factor}*{self.dimension}"
        return f"{product}{self.offset:+d}" if self.offset else product


class DynamicShapes(Document):
    """What is open about a model's shapes; empty where all sizes are fixed."""

    dimensions: tuple[DynamicDimension, ...] = ()
    inputs: tuple[DynamicAxis, ...] = ()
    outputs: tuple[DynamicAxis, ...] = ()


def shown_shape(spec: TensorSpec, axes: tuple[DynamicAxis, ...]) -> str:
    """A tensor as ``str(spec)`` writes it, with formulas where sizes are open: ``x=[x_0]x784:float32``."""
    formulas = {axis.axis: f"[{axis}]" for axis in axes if axis.tensor == spec.name}
    sizes = (formulas.get(axis, str(size)) for axis, size in enumerate(spec.shape))
    return f"{spec.name}={'x'.join(sizes) or 'scalar'}:{spec.dtype}"
