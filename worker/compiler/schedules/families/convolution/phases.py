"""The phases of a transposed convolution: their sizes and taps, and the register tile."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd
from typing import Any

from tvm import tirx

from worker.compiler.schedules.annotations import DILATION, OUTPUT, PADDING, STRIDES
from worker.compiler.schedules.blocks import Block
from worker.compiler.schedules.families.convolution.conv2d import ConvolutionTile
from worker.compiler.schedules.processors import Machine, divisors

_MAX_BLOCKS = 4
_MAX_COLUMNS = 12
_LOAD_PORTS = 2
_BROADCAST_REGISTERS = 1
_LATENCY_SLACK = 1


@dataclass(frozen=True)
class Phases:
    """One dimension, whose outputs have ``stride`` phases.

    Output ``o`` is in phase ``o % stride``. A phase sums every ``step``-th tap, from ``first_tap`` on.
    """

    stride: int
    dilation: int
    padding: int
    output: int
    taps: int

    @property
    def turns(self) -> int:
        """Outputs of the first phase, which has the most."""
        return ceil(self.output / self.stride)

    @property
    def step(self) -> int:
        """The distance between taps of a phase."""
        return self.stride // gcd(self.stride, self.dilation)

    def size(self, phase: Any) -> Any:
        """Outputs of a phase."""
        if self.output % self.stride == 0:
            return self.turns
        return (phase * -1 + (self.output + self.stride - 1)) // self.stride

    def first_tap(self, phase: Any) -> Any:
        """The first tap of a phase."""
        common = gcd(self.stride, self.dilation)
        inverse = pow(self.dilation // common, -1, self.step)
        return (phase + self.padding) // common * inverse % self.step

    def count(self, phase: Any) -> Any:
        """The number of taps of a phase."""
        common = gcd(self.stride, self.dilation)
        if common == 1 and self.taps % self.step == 0:
            return self.taps // self.step
        count = (self.first_tap(phase) * -1 + (self.taps + self.step - 1)) // self.step
        meets = tirx.Select((phase + self.padding) % common == 0, 1, 0) if common > 1 else 1
        return count * meets


def choose_tile(blocks: int, columns: Phases, machine: Machine) -> ConvolutionTile:
    """The tile that computes a phase's columns in the fewest cycles, with the overlap of the last tile.

    Args:
        blocks: vectors of output channels that read the same input; the tile's blocks divide it.
        columns: the phases of the columns.
        machine: the processor.
    """
    least = max(1, columns.output // columns.stride)
    tiles = [
        ConvolutionTile(high, wide)
        for high in divisors(blocks, _MAX_BLOCKS)
        for wide in range(1, min(least, _MAX_COLUMNS) + 1)
        if high * wide + high + _BROADCAST_REGISTERS <= machine.registers
    ]

    def cycles(tile: ConvolutionTile) -> float:
        work = tile.blocks * tile.columns / machine.fma_ports
        loads = (tile.blocks + tile.columns) / _LOAD_PORTS
        return (
            ceil(columns.turns / tile.columns)
            * max(work, loads, machine.fma_latency + _LATENCY_SLACK)
            / tile.blocks
        )

    return min(tiles, key=lambda tile: (cycles(tile), -tile.columns))


def phases_of(main: Block) -> tuple[Phases, ...]:
    """The phases of each dimension of the block that computes a transposed convolution."""
    numbers = [
        [int(number) for number in main.body.annotations[key]] for key in (STRIDES, DILATION, PADDING, OUTPUT)
    ]
    taps = [axis.extent for axis in tap_axes(main, len(numbers[0]))]
    return tuple(Phases(*of_axis) for of_axis in zip(*numbers, taps, strict=True))


def tap_axes(main: Block, dimensions: int) -> tuple[Any, ...]:
    """The reduced axes of the taps: all, or the ones after the input blocks."""
    reduced = main.reduced
    return reduced if len(reduced) == dimensions else reduced[1 : 1 + dimensions]
