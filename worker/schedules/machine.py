"""What a default schedule needs to know about a processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm

_SCRATCH_REGISTERS = 2
_MAX_ROWS = 8
_MAX_VECTORS = 8
_PARTIAL_USE = 0.6
"""LLVM takes a vector that is not full apart into several loads and stores."""

_VECTOR_BITS = {"avx512f": 512, "avx": 256}
_MANY_REGISTERS = {"avx512f", "neon"}
_DEFAULT_BITS = 128
_HALVED_VECTORS = {"znver4"}
"""Processors that split a vector of 512 bits between two units (AMD, Software Optimization Guide, Zen 4)."""
MIN_USE = 0.5
"""A tile that fills less of its vectors than this is left to LLVM's own vectorizer."""


@dataclass(frozen=True)
class Machine:
    """Vector registers, arithmetic, caches and threads.

    ``fma_ports`` counts the vector multiply-adds that start in a cycle, ``fma_latency`` the cycles until the
    result is there. Cache sizes are one core's, in bytes.
    """

    vector_bits: int
    registers: int
    threads: int
    fma_ports: int = 2
    fma_latency: int = 4
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024

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
    """Read the vector width and the threads off a target."""
    from tvm.target import codegen

    features = {str(feature) for feature in codegen.llvm_get_cpu_features(target)}
    bits = next((bits for feature, bits in _VECTOR_BITS.items() if feature in features), _DEFAULT_BITS)
    registers = 32 if features & _MANY_REGISTERS else 16
    halved = bits == 512 and str(target.attrs.get("mcpu", "")) in _HALVED_VECTORS
    return Machine(
        vector_bits=bits,
        registers=registers,
        threads=int(target.attrs.get("num-cores", 1)),
        fma_ports=1 if halved else 2,
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
