"""The second kernel of a product whose depth is divided::

for vector of results, in blocks and threads:
    sum over parts
    epilogue
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.contraction import Contraction
from worker.compiler.schedules.gpu.products.threads import INT, number
from worker.compiler.schedules.gpu.products.tiles import wide


def divided(
    contraction: Contraction, splits: int, blocks: int, block: Callable[[Any, Any, Any], tirx.Stmt]
) -> tirx.Stmt:
    """The kernels of a product whose depth different blocks divide.

    Args:
        contraction: the product.
        splits: the parts of the depth.
        blocks: the number of blocks that compute one part.
        block: what a block does, from its index, its part, and the buffer of all parts (None if it is
            the only one).
    """
    if splits == 1:
        return gt.bound("blockIdx.x", blocks, lambda index: block(index, number(0), None))
    shape = (splits, contraction.batch.size, contraction.rows.size, contraction.columns.size)
    parts = tirx.decl_buffer(shape, "float32", "parts")
    first = gt.bound(
        "blockIdx.x",
        blocks,
        lambda index: gt.bound("blockIdx.y", splits, lambda part: block(index, part, parts)),
    )
    return nest.sequence(nest.declare(parts), first, _add_parts(contraction, parts, splits))


def part_vector(contraction: Contraction) -> int:
    """The neighbors of a part that a thread can store at once."""
    size = contraction.columns.size
    return min(size & -size, 4)


def store_part(
    parts: Any, value: Any, part: Any, batch: Any, row: Any, column: Any, along: Any = 0
) -> tirx.Stmt:
    """Store a sum of a part of the depth."""
    last = wide(column) if isinstance(along, int) else wide(column) + wide(along)
    return nest.store(parts, value, wide(part), wide(batch), wide(row), last)


def _add_parts(contraction: Contraction, parts: Any, splits: int) -> tirx.Stmt:
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
