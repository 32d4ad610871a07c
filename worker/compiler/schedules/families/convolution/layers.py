"""Convolutions among whose algorithms a search may choose.

They have 3x3 taps (3 for a sequence) and stride 1. A dynamic batch counts as one image.

The layout phase names such a layer in an annotation (``LAYER``) of its function, so that a search knows which
functions compute it, and can ask the layout phase for another algorithm.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import inf, prod
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from worker.compiler.schedules.annotations import LAYER, SIDE
from worker.compiler.schedules.families.convolution.conv2d import ConvolutionShape, direct_cycles
from worker.compiler.schedules.families.convolution.windows import parts_of_row
from worker.compiler.schedules.families.convolution.winograd_plan import (
    cycles_of,
    faster_by_winograd,
    winograd_plans,
)
from worker.compiler.schedules.families.convolution.winograd_points import TAPS
from worker.compiler.schedules.processors import Machine

DIRECT = 1
"""The side of a tile with one output, which stands for the direct convolution."""


@dataclass(frozen=True, order=True)
class Layer:
    """The sizes of a layer: images, blocks, pixels of the image and of the output; and its dimensions.

    Layers of the same sizes are one: a search measures them once.
    """

    batch: int
    inputs: int
    height: int
    width: int
    outputs: int
    rows: int
    columns: int
    lanes: int
    dimensions: int = 2

    @property
    def key(self) -> str:
        """The numbers as text, for an annotation; a sequence has one more."""
        numbers = astuple(self)
        return "x".join(map(str, numbers[:-1] if self.dimensions == 2 else numbers))

    @property
    def direct(self) -> ConvolutionShape:
        """The direct convolution; a long sequence is cut into parts."""
        parts, columns = parts_of_row(self.columns) if self.dimensions == 1 else (self.rows, self.columns)
        taps = TAPS**self.dimensions * self.inputs * self.lanes
        return ConvolutionShape(
            batch=self.batch,
            groups=1,
            blocks=self.outputs,
            rows=parts,
            columns=columns,
            taps=taps,
            contiguous=False,
            channels=self.inputs,
            image=prod((self.batch, self.inputs, self.height, self.width, self.lanes)),
            weights=taps * self.outputs * self.lanes,
            joinable=self.dimensions > 1,
        )

    def __str__(self) -> str:
        """Channels and pixels, without lanes that no channel fills."""
        sizes = (self.height, self.width)[-self.dimensions :]
        channels = "x".join(map(str, (self.inputs * self.lanes, *sizes)))
        images = f"{self.batch} x " if self.batch > 1 else ""
        return f"{images}{channels} -> {self.outputs * self.lanes}"


def layer_of(key: str) -> Layer | None:
    """The layer of a key; None for other texts."""
    numbers = key.split("x")
    if len(Layer.__dataclass_fields__) - len(numbers) not in (0, 1) or not all(map(str.isdecimal, numbers)):
        return None
    return Layer(*map(int, numbers))


@dataclass(frozen=True)
class Algorithm:
    """The layer that a function computes, and the side of its tiles."""

    layer: Layer
    side: int


def algorithm_of(function: tirx.PrimFunc) -> Algorithm | None:
    """The layer that a function computes, and how; None for functions without a choice."""
    found: list[Algorithm] = []

    def visit(block: s_tir.SBlock) -> None:
        layer = layer_of(str(block.annotations.get(LAYER, "")))
        if layer is not None:
            found.append(Algorithm(layer, int(block.annotations.get(SIDE, DIRECT))))

    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, visit))
    return found[0] if len(found) == 1 else None


def expected_cycles(layer: Layer, machine: Machine) -> dict[int, float]:
    """The cycles that the processor's model expects, by the side of a tile, the direct convolution's too."""
    direct = layer.direct
    by_winograd = {
        shape.side: cycles_of(winograd_plans(shape, machine)[0], shape, machine)
        for shape in faster_by_winograd(direct, machine, least_gain=inf)
    }
    return {DIRECT: direct_cycles(direct, machine), **by_winograd}


def layer_attributes(layer: Layer | None) -> dict[str, Any]:
    """The annotation of a layer's main block; none for layers without a choice."""
    return {} if layer is None else {LAYER: layer.key}
