"""The second kernel of a product whose depth is divided::

for vector of results, in blocks and threads:
    sum over parts
    epilogue
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.contraction import Contraction
from worker.compiler.schedules.gpu.products.threads import INT
from worker.compiler.schedules.gpu.products.tiles import wide


def add_parts(contraction: Contraction, parts: Any, splits: int) -> tirx.Stmt:
    """Add the sums of all parts of the depth, and apply the epilogue."""
    rows, columns, batches = contraction.rows.size, contraction.columns.size, contraction.batch.size
    vector = min(contraction.vector, columns & -columns, 4)
    per_row = columns // vector
    pieces = batches * rows * per_row
    threads = 128
    dtype = str(parts.dtype)

    def thread(block: Any, thread: Any) -> tirx.Stmt:
        piece = block * threads + thread
        row = tirx.floordiv(piece, per_row)
        column = tirx.floormod(piece, per_row) * vector
        batch, own_row = tirx.floordiv(row, rows), tirx.floormod(row, rows)
        total = nest.registers((vector,), dtype, "total")
        indices = (wide(batch), wide(own_row), wide(column))
        zero = nest.vectorized(vector, lambda lane: nest.store(total, tirx.const(0, dtype), lane), INT)

        def add(part: Any) -> tirx.Stmt:
            return nest.vectorized(
                vector,
                lambda lane: nest.store(
                    total,
                    total[lane] + parts[wide(part), indices[0], indices[1], indices[2] + wide(lane)],
                    lane,
                ),
                INT,
            )

        def finish(lane: Any) -> tirx.Stmt:
            places = {
                **contraction.batch.places(indices[0]),
                **contraction.rows.places(indices[1]),
                **contraction.columns.places_along(indices[2], wide(lane)),
            }
            return contraction.result(total[lane], places)

        body = nest.sequence(
            nest.declare(total), zero, gt.unrolled(splits, add), nest.vectorized(vector, finish, INT)
        )
        return body if pieces % threads == 0 else gt.when(piece < pieces, body)

    return gt.bound(
        "blockIdx.x",
        ceil(pieces / threads),
        lambda block: gt.bound("threadIdx.x", threads, lambda own: thread(block, own)),
    )
