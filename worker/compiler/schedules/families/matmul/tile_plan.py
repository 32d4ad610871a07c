"""The cost model of products by tile registers (``tiles``), and their plans.

A task takes the cycles of splitting its rows of the left factor and its panels of the right one, of the
products of tiles, and of storing sums and results. Few rows do not repay the split of the weights, and few
columns not that of the rows. The cycles of each were fitted to products of 64 to 3,136 rows on a Xeon with
two cores (``emeraldrapids``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from worker.compiler.schedules import tiles
from worker.compiler.schedules.families.matmul.plan import MatmulShape, matmul_plans, plan_cycles
from worker.compiler.schedules.processors import CYCLES_PER_THREAD, Machine, threads_pay

VECTORS = 2
PANEL = VECTORS * tiles.ROWS
"""Rows and columns of four tiles of sums; packed weights have panels of as many columns."""

EXACT = 3
"""The parts of a number of float32."""
PARTS = {"bfloat16": 1, "float16": 2, "float32": EXACT}
"""How many bfloat16 a number of each dtype is the exact sum of."""
TERMS = {
    1: ((0, 0),),
    2: ((1, 1), (0, 1), (0, 0), (1, 0)),
    3: ((1, 1), (0, 1), (0, 2), (0, 0), (1, 0), (2, 0)),
}
"""By the parts of a number, which parts of the left and the right factor are multiplied, high, middle or low:
in an order in which each pair shares a part with the one before."""

_PRODUCT_CYCLES = 21
"""Cycles of a product of two tiles where L2 holds both factors: 1.3 times those of the instruction."""
_LEFT_CYCLES = 0.6
"""Cycles to split one number of the left factor."""
_RIGHT_CYCLES = 0.5
"""Cycles to split one number of the right factor."""
_STORE_CYCLES = 1
"""Cycles to store one sum and apply the epilogue to it."""
_GAIN = 0.9
"""Tiles must take at most this share of the cycles of vectors."""
_LEFT_SHARE = 0.5
"""The part of L2 that a chunk's rows may fill."""
_MOST_PLANS = 6
_MOST_CHUNK = 16


@dataclass(frozen=True)
class AmxPlan:
    """How a product is computed by tile registers.

    Attributes:
        chunk_tiles: the most pairs of row tiles of a task.
        groups: the groups into which tasks divide the panels.
        part_steps: the steps of 32 of a part of the depth.
        parallel: whether to use several threads.
        parts: those of each number, one of ``PARTS``.
    """

    chunk_tiles: int
    groups: int
    part_steps: int
    parallel: bool
    parts: int


@lru_cache(maxsize=1024)
def faster_by_tiles(shape: MatmulShape, machine: Machine, parts: int = EXACT) -> bool:
    """Whether tile registers are expected to compute a product with sums of float32 faster than vectors."""
    if not machine.has_tiles or shape.bits != 32 or shape.unit is not None:
        return False
    if shape.rows < PANEL or shape.columns < PANEL or shape.depth % tiles.ROWS:
        return False
    by_vectors = plan_cycles(matmul_plans(shape, machine)[0], shape, machine)
    return cycles_if_faster(shape, machine, by_vectors, parts) is not None


def cycles_if_faster(
    shape: MatmulShape, machine: Machine, by_vectors: float, parts: int = EXACT
) -> float | None:
    """The cycles of a product by tile registers; None if vectors take hardly more."""
    cycles = tile_cycles(tile_plans(shape, machine, parts)[0], shape, machine)
    return cycles if cycles < _GAIN * by_vectors else None


@lru_cache(maxsize=1024)
def tile_plans(shape: MatmulShape, machine: Machine, parts: int = EXACT) -> tuple[AmxPlan, ...]:
    """The plans worth measuring, best first.

    Args:
        shape: the product.
        machine: the processor.
        parts: those of each number.
    """
    costs = {plan: tile_cycles(plan, shape, machine) for plan in _candidates(shape, machine, parts)}
    return tuple(sorted(costs, key=lambda plan: costs[plan])[:_MOST_PLANS])


def _candidates(shape: MatmulShape, machine: Machine, parts: int) -> Iterator[AmxPlan]:
    rows, panels = ceil(shape.rows / PANEL), ceil(shape.columns / PANEL)
    steps = ceil(shape.depth / tiles.STEPS)
    work = len(TERMS[parts]) * _PRODUCT_CYCLES * 4 * rows * panels * steps
    parallel = threads_pay(machine.threads, work, CYCLES_PER_THREAD)
    threads = machine.threads if parallel else 1
    most = _LEFT_SHARE * machine.l2_bytes / (2 * parts * PANEL * tiles.STEPS)
    for chunk in range(1, min(rows, _MOST_CHUNK) + 1):
        part = max(1, min(steps, int(most / chunk)))
        part = ceil(steps / ceil(steps / part))
        for groups in dict.fromkeys((1, min(threads, panels), min(2 * threads, panels))):
            yield AmxPlan(chunk, groups, part, parallel, parts)


def tile_cycles(plan: AmxPlan, shape: MatmulShape, machine: Machine) -> float:
    """Cycles of the thread with the most work."""
    rows, panels = ceil(shape.rows / PANEL), ceil(shape.columns / PANEL)
    chunks = ceil(rows / plan.chunk_tiles)
    own_rows, own_panels = PANEL * rows / chunks, ceil(panels / plan.groups)
    turns = ceil(shape.depth / (tiles.STEPS * plan.part_steps))
    sums = own_rows * PANEL * own_panels
    task = (
        own_rows * shape.depth * _LEFT_CYCLES * plan.parts / EXACT
        + own_panels * PANEL * shape.depth * _RIGHT_CYCLES * plan.parts / EXACT
        + sums * shape.depth * len(TERMS[plan.parts]) * _PRODUCT_CYCLES / (tiles.ROWS**2 * tiles.STEPS)
        + sums * turns * _STORE_CYCLES
    )
    return task * ceil(chunks * plan.groups / (machine.threads if plan.parallel else 1))
