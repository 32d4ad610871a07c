"""Which tiles and threads compute a recurrent layer."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import GUESSED_SIZE
from worker.compiler.schedules.nest import INDEX
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, threads_pay
from worker.compiler.schedules.recurrence.cells import Cell

MAX_ROWS = 6
_MAX_VECTORS = 8
_L2_BYTES_PER_CYCLE = 24
"""Bandwidth of L2, which holds the weights."""
_MIN_SHARED_WORK = 1 << 15
"""Multiply-adds of a step that outweigh the half microsecond in which threads wait for each other."""


@dataclass(frozen=True)
class Recurrence:
    """A layer.

    Attributes:
        cell: its formulas.
        directions: 1, or 2 for both.
        units: the size of the cell's states.
        projected: the size of the projected hidden state; None without a projection.
        length: the number of steps; None if it is dynamic.
        batch: the number of rows; None if it is dynamic.
        batch_first: whether the batch is the first axis of inputs and outputs, instead of the steps.
        has_lengths: whether each row has a length of its own.
        dtype: the dtype of all numbers.
    """

    cell: Cell
    directions: int
    units: int
    projected: int | None
    length: int | None
    batch: int | None
    batch_first: bool
    has_lengths: bool
    dtype: str

    @property
    def outputs(self) -> int:
        """The size of the hidden state."""
        return self.projected or self.units


@dataclass(frozen=True)
class Tiling:
    """``vectors`` of ``lanes`` units; the last tile moves back over its neighbor."""

    size: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Units of a tile."""
        return self.vectors * self.lanes

    @property
    def count(self) -> int:
        """The number of tiles."""
        return ceil(self.size / self.width)

    def first(self, tile: Any) -> Any:
        """The first unit of a tile."""
        if self.count * self.width == self.size:
            return tile * self.width
        return tirx.min(tile * self.width, nest.constant(self.size - self.width, INDEX))

    @property
    def units(self) -> tuple[int, ...]:
        """The units of all tiles in order. Some occur twice."""
        starts = (min(tile * self.width, self.size - self.width) for tile in range(self.count))
        return tuple(start + unit for start in starts for unit in range(self.width))


@dataclass(frozen=True)
class Plan:
    """How a layer is computed.

    Attributes:
        rows: rows of a tile.
        units: tiles of the units.
        projected: tiles of the projected hidden state.
        parallel: whether threads take whole sequences.
        shared: whether threads divide each step.
    """

    rows: int
    units: Tiling
    projected: Tiling | None
    parallel: bool
    shared: bool


def plan_recurrence(asked: Recurrence, machine: Machine) -> Plan:
    """The plan for a processor: the tile with the fewest cycles of a step; ties go to the larger one."""
    batch = asked.batch or GUESSED_SIZE
    work = asked.directions * asked.cell.gates * asked.units * asked.outputs
    alone = asked.directions * ceil((asked.batch or 1) / MAX_ROWS) < machine.threads
    shared = alone and work * (asked.batch or 1) >= _MIN_SHARED_WORK
    rows, units = _best_tile(asked, batch, machine, shared)
    projected = None
    if asked.projected is not None:
        projected = _tilings(asked.projected, 1, rows, machine, asked.dtype)[-1]
    total = work * batch * (asked.length or GUESSED_SIZE)
    several = asked.directions * ceil(batch / rows) > 1
    pays = several and not shared and threads_pay(machine.threads, total, WORK_PER_THREAD)
    return Plan(rows, units, projected, pays, shared)


_MOST_LANES = 1024
"""Threads of a block on a GPU."""


def plan_for_gpu(asked: Recurrence) -> Plan:
    """The plan for a GPU: a block for each sequence, its threads along the units."""

    def tiling(size: int) -> Tiling:
        vectors = ceil(size / _MOST_LANES)
        while size % vectors:
            vectors += 1
        return Tiling(size, vectors, size // vectors)

    projected = None if asked.projected is None else tiling(asked.projected)
    return Plan(1, tiling(asked.units), projected, parallel=True, shared=False)


def _best_tile(asked: Recurrence, batch: int, machine: Machine, shared: bool) -> tuple[int, Tiling]:
    """The rows and the units of the tile that takes the fewest cycles for a batch."""
    tiles = (
        (rows, tiling)
        for rows in range(1, min(batch, MAX_ROWS) + 1)
        for tiling in _tilings(asked.units, asked.cell.gates, rows, machine, asked.dtype)
    )
    return min(tiles, key=lambda tile: _rank(asked, batch, tile[0], tile[1], machine, shared))


def _tilings(size: int, gates: int, rows: int, machine: Machine, dtype: str) -> list[Tiling]:
    """The tiles whose sums fit the registers, the smallest first. One of a single vector may not fit."""
    lanes = min(size, machine.lanes(nest.bits_of(dtype)))

    def fits(vectors: int) -> bool:
        return rows * gates * vectors + (gates * vectors if rows > 1 else 1) <= machine.registers

    counts = range(1, min(_MAX_VECTORS, size // lanes) + 1)
    return [Tiling(size, count, lanes) for count in counts if count == 1 or fits(count)]


def _rank(
    asked: Recurrence, batch: int, rows: int, tiling: Tiling, machine: Machine, shared: bool
) -> tuple[float, int]:
    sums, weights = rows * asked.cell.gates * tiling.vectors, asked.cell.gates * tiling.vectors
    cycles = max(
        sums / machine.fma_ports,
        (weights + rows) / machine.loads_per_cycle,
        machine.fma_latency,
        weights * machine.vector_bits / 8 / _L2_BYTES_PER_CYCLE,
    )
    spilled = max(0, sums + 2 - machine.registers)
    sequences = asked.directions * ceil(batch / rows)
    if shared:
        tiles = ceil(sequences * tiling.count / machine.threads)
    else:
        tiles = ceil(sequences / machine.threads) * tiling.count
    return tiles * (cycles + 2 * spilled), -sums
