"""Sums of tensor cores, stored as vectors.

The sums lie as the instruction returns them: of every 16 rows by 8 columns, a thread has two neighbors in
two rows. A warp passes 16 rows at a time through shared memory, which no longer holds tiles then::

    for fragment of 16 rows:
        barrier; put two neighbors at once
        barrier; take vectors, rows after each other, and store them
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.plan import PAD
from worker.compiler.schedules.gpu.products.threads import INT, WARP
from worker.compiler.schedules.gpu.products.units import Store, Warp

_ROWS, _COLUMNS = 16, 8


@dataclass(frozen=True)
class Fragments:
    """The sums of a warp.

    Attributes:
        sums: registers, fragment after fragment.
        count: the number of fragments of 16 rows.
        columns: columns of each fragment.
        row_of: the first row of a fragment in the block's tile.
    """

    sums: Any
    count: int
    columns: int
    row_of: Callable[[Any], Any]


def store_fragments(fragments: Fragments, shared: Any, warp: Warp, vector: int, store: Store) -> tirx.Stmt:
    """Store a warp's sums, ``vector`` neighbors at once."""
    columns = fragments.columns
    vector = min(vector, columns)
    pitch = columns + PAD
    staged = gt.view(shared, "float32", "staged")
    start = warp.number * (_ROWS * pitch)
    vectors = columns // vector
    pieces = _ROWS * vectors

    def rows(fragment: Any) -> tirx.Stmt:
        def put(index: Any) -> tirx.Stmt:
            column, half = tirx.floordiv(index, 2), tirx.floormod(index, 2)
            row = half * 8 + tirx.floordiv(warp.lane, 4)
            place = start + row * pitch + column * _COLUMNS + tirx.floormod(warp.lane, 4) * 2
            first = fragment * (columns // 2) + index * 2
            return nest.vectorized(
                2, lambda two: nest.store(staged, fragments.sums[first + two], place + two), INT
            )

        def take(index: Any) -> tirx.Stmt:
            piece = index * WARP + warp.lane
            row, column = tirx.floordiv(piece, vectors), tirx.floormod(piece, vectors) * vector
            stored = store(
                fragments.row_of(fragment) + row,
                warp.column + column,
                vector,
                lambda along: staged[start + row * pitch + column + along],
            )
            return stored if pieces % WARP == 0 else gt.when(piece < pieces, stored)

        return nest.sequence(
            gt.barrier(),
            gt.unrolled(columns // _COLUMNS * 2, put),
            gt.barrier(),
            gt.serial(ceil(pieces / WARP), take),
        )

    return nest.sequence(gt.declare_view(staged, shared), gt.unrolled(fragments.count, rows))
