"""What a default schedule needs to know about a processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.compiler.schedules.processors import processor_of

if TYPE_CHECKING:
    import tvm

_SCRATCH_REGISTERS = 2
_MAX_ROWS = 8
_MAX_VECTORS = 8
_PARTIAL_USE = 0.6
"""LLVM takes a vector that is not full apart into several loads and stores."""

MIN_USE = 0.5
"""A tile that fills less of its vectors than this is left to LLVM's own vectorizer."""


@dataclass(frozen=True)
class Machine:
    """One core's vector registers, arithmetic, loads and caches, and how many cores there are.

    ``fma_ports`` counts the vector multiply-adds that start in a cycle, ``fma_latency`` the cycles until the
    result is there, ``loads_per_cycle`` vectors or broadcast elements. Cache sizes are one core's, in bytes.
    ``lane_factors`` tells whether a multiply-add takes a factor from a lane of a vector.
    """

    vector_bits: int
    registers: int
    threads: int
    fma_ports: float = 2
    fma_latency: int = 4
    loads_per_cycle: float = 2
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    lane_factors: bool = False

    def lanes(self, bits: int) -> int:
        """Elements of ``bits`` bits in one vector."""
        return max(1, self.vector_bits // bits)


@dataclass(frozen=True)
class Tile:
    """A register tile: ``rows`` times ``vectors`` vectors of ``lanes`` elements."""

    rows: int
    vectors: int
    lanes: int


def machine_of(target: tvm.target.Target) -> Machine:
    """The machine that a target names: its processor and its threads."""
    from tvm.target import codegen

    features = frozenset(str(feature) for feature in codegen.llvm_get_cpu_features(target))
    return machine_from(
        str(target.attrs.get("mcpu", "")), features, threads=int(target.attrs.get("num-cores", 1))
    )


def machine_from(mcpu: str, features: frozenset[str], threads: int) -> Machine:
    """The machine of LLVM's name of a processor and LLVM's features."""
    processor = processor_of(mcpu, features)
    return Machine(
        vector_bits=processor.vector_bits,
        registers=processor.registers,
        threads=threads,
        fma_ports=processor.fma_ports,
        fma_latency=processor.fma_latency,
        loads_per_cycle=processor.loads_per_cycle,
        l1_bytes=processor.l1_kib * 1024,
        l2_bytes=processor.l2_kib * 1024,
        lane_factors=processor.lane_factors,
    )


def choose_tile(columns: int, rows: int, bits: int, machine: Machine) -> Tile | None:
    """The tile that keeps most accumulators in registers; both its sides divide the loops'.

    Args:
        columns: extent of the loop to vectorize.
        rows: extent of the loop to unroll; 1 where there is none.
        bits: width of an element.
        machine: the processor.

    Returns:
        The tile, or None where no divisor of ``columns`` fills vectors well enough.
    """
    lanes = machine.lanes(bits)
    tiles = [
        Tile(rows=height, vectors=vectors, lanes=width)
        for height in divisors(rows, _MAX_ROWS)
        for width in divisors(columns, lanes)
        for vectors in divisors(columns // width, _MAX_VECTORS)
        if width / lanes >= MIN_USE and _registers(height, vectors) <= machine.registers
    ]
    return max(tiles, key=lambda tile: _merit(tile, lanes), default=None)


def _registers(rows: int, vectors: int) -> int:
    """Accumulators, the vectors that several rows share, and the broadcast factor."""
    shared = vectors if rows > 1 else 0
    return rows * vectors + shared + _SCRATCH_REGISTERS


def divisors(number: int, limit: int) -> tuple[int, ...]:
    """The divisors of ``number`` up to ``limit``, ascending."""
    return tuple(candidate for candidate in range(1, min(number, limit) + 1) if number % candidate == 0)


def _merit(tile: Tile, lanes: int) -> tuple[float, float]:
    """Multiply-adds per load, at the vectors' true use; ties go to the larger tile."""
    use = 1.0 if tile.lanes == lanes else _PARTIAL_USE * tile.lanes / lanes
    elements = tile.rows * tile.vectors
    return (use * elements / (tile.rows + tile.vectors), elements)
