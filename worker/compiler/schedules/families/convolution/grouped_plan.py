"""The plans of convolutions of bundles of groups, and the cycles that the processor's model expects."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from worker.compiler.schedules.families.convolution.bundles import Bundle
from worker.compiler.schedules.processors import Machine, divisors

_MAX_COLUMNS = 28
_MAX_VECTORS = 8
_STEP_CYCLES = 0.5
"""The cost of a step besides its multiply-adds: the loop's own instructions."""
_TILE_CYCLES = 20
"""The cost of a tile besides its steps: clearing and storing the sums, a mispredicted end of a loop."""
_SHUFFLE_CYCLES = 1.5
"""The cost of a vector of the output, or of a copied vector of the image: load, shuffle, store."""
_BYTES = 4


@dataclass(frozen=True)
class GroupedShape:
    """The sizes that a plan depends on.

    Attributes:
        bundle: the channels of a bundle.
        batch: images.
        outputs: blocks of output channels; the last bundle may have fewer than the others.
        bundles: bundles of an image.
        rows: rows of the output.
        columns: columns of the output.
        taps: rows and columns of a window.
        steps: the window's strides.
        dilation: pixels from one tap to the next.
    """

    bundle: Bundle
    batch: int
    outputs: int
    bundles: int
    rows: int
    columns: int
    taps: tuple[int, int]
    steps: tuple[int, int]
    dilation: tuple[int, int]

    def reach(self, rows: int) -> tuple[int, int]:
        """Rows and columns of the image, with its border, that some rows of the output read."""
        return self._reach(0, rows), self._reach(1, self.columns)

    def pixel_bytes(self, rows: int) -> int:
        """The size of all pixels of a bundle that some rows of the output read."""
        height, width = self.reach(rows)
        return height * width * self.bundle.groups * self.bundle.inputs * _BYTES

    def _reach(self, axis: int, size: int) -> int:
        return (size - 1) * self.steps[axis] + (self.taps[axis] - 1) * self.dilation[axis] + 1

    @property
    def work(self) -> int:
        """Multiply-adds of vectors."""
        vectors = self.batch * self.bundles * self.bundle.vectors * self.rows * self.columns
        return vectors * self.bundle.inputs * self.taps[0] * self.taps[1]


@dataclass(frozen=True, order=True)
class GroupedPlan:
    """How a convolution of bundles is computed.

    Attributes:
        columns: pixels of a register tile.
        vectors: vectors of a register tile, which divide the bundle's.
        taps: unrolled columns of taps, all or one.
        band: rows of a task.
    """

    columns: int
    vectors: int
    taps: int
    band: int


def grouped_plans(shape: GroupedShape, machine: Machine) -> tuple[GroupedPlan, ...]:
    """All plans whose sums fit the registers, the fastest first."""
    plans = [
        GroupedPlan(columns, vectors, taps, band)
        for vectors in divisors(shape.bundle.vectors, _MAX_VECTORS)
        for columns in range(1, min(shape.columns, _MAX_COLUMNS) + 1)
        for taps in {1, shape.taps[1]}
        if (columns + taps) * vectors + 1 <= machine.registers
        for band in _bands(shape)
    ]
    return tuple(sorted(plans, key=lambda plan: (round(cycles_of(plan, shape, machine)), -plan.band, plan)))


def cycles_of(plan: GroupedPlan, shape: GroupedShape, machine: Machine) -> float:
    """The cycles of the thread with the most tasks: sums, and the copies of their pixels."""
    taps, bundle = shape.taps, shape.bundle
    tasks = ceil(shape.batch * shape.bundles * ceil(shape.rows / plan.band) / machine.threads)
    pixels = min((plan.columns - 1) * shape.steps[1] + plan.taps, plan.columns * plan.taps)
    step = max(
        plan.columns * plan.vectors * plan.taps / machine.fma_ports,
        (pixels + plan.vectors * plan.taps) / machine.loads_per_cycle,
        machine.fma_latency * plan.taps,
    )
    parts, steps = bundle.vectors // plan.vectors, taps[0] * taps[1] // plan.taps * bundle.inputs
    tile = parts * (steps * (step + _STEP_CYCLES) + _TILE_CYCLES)
    tile += plan.columns * bundle.vectors * _SHUFFLE_CYCLES
    height, width = shape.reach(plan.band)
    copied = height * width * bundle.input_blocks * (_SHUFFLE_CYCLES + _memory_cycles(plan, shape, machine))
    return tasks * (plan.band * ceil(shape.columns / plan.columns) * tile + copied)


def _memory_cycles(plan: GroupedPlan, shape: GroupedShape, machine: Machine) -> float:
    """The cycles of writing a copied vector and of reading it back, from the cache that holds a band."""
    vector_bytes, pixels = machine.vector_bits // 8, shape.pixel_bytes(plan.band)
    if pixels <= machine.l1_bytes // 2:
        return 0
    fits_l2 = pixels <= machine.l2_bytes // 2
    return 2 * vector_bytes / (machine.near_bytes_per_cycle if fits_l2 else machine.far_bytes_per_cycle)


def _bands(shape: GroupedShape) -> tuple[int, ...]:
    """The rows of a task worth trying: powers of two, the divisors, and all."""
    powers = {1 << power for power in range(8) if 1 << power <= shape.rows}
    return tuple(sorted(powers | {*divisors(shape.rows, shape.rows), shape.rows}))
