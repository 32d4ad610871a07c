"""Collect channels that lie anywhere in the blocks of an image into blocks without gaps.

A channel lies in a slot: lane ``slot % lanes`` of block ``slot // lanes``. The kernel is::

    for parallel row of all images:
        for block of the result:                                          # code of its own for each
            for column:
                vectors = the blocks that hold the block's channels
                result[block, row, column, lanes] = shuffles of two vectors each

Nothing is reused. Edges: lanes past the last channel are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX, signature
from worker.compiler.schedules.processors import WORK_PER_THREAD, threads_pay

Slots = tuple[int, ...]
"""The slot of each channel, in the order of the channels."""


class Source(NamedTuple):
    """A block that lanes of a result come from; ``lanes`` maps the result's lane to the block's."""

    block: int
    lanes: dict[int, int]


def sources_of(slots: Sequence[int], lanes: int) -> list[Source]:
    """The blocks that hold the channels of one block of the result."""
    found: dict[int, dict[int, int]] = {}
    for lane, slot in enumerate(slots):
        found.setdefault(slot // lanes, {})[lane] = slot % lanes
    return [Source(block, places) for block, places in found.items()]


def write_gather(shape: Sequence[int], slots: Slots, dtype: str, threads: int) -> tirx.PrimFunc:
    """A scheduled function that collects the channels in ``slots`` of an image in blocks.

    Args:
        shape: the image's shape, ``[N, blocks, rows, columns, lanes]``.
        slots: where the channels of the result lie.
        dtype: the elements' type.
        threads: the threads that divide the rows.
    """
    batch, _, rows, columns, lanes = shape
    blocks = -(-len(slots) // lanes)
    result = (batch, blocks, rows, columns, lanes)
    function = signature({"image": (tuple(shape), dtype)}, {"gathered": (result, dtype)})
    image, gathered = function.params
    parts = [sources_of(slots[block * lanes : (block + 1) * lanes], lanes) for block in range(blocks)]
    whole = tirx.Ramp(tirx.IntImm(INDEX, 0), tirx.IntImm(INDEX, 1), lanes)

    def row_of_all(number: Any) -> tirx.Stmt:
        n, row = (number // rows, number % rows) if batch > 1 else (tirx.IntImm(INDEX, 0), number)

        def one(block: int) -> tirx.Stmt:
            def pixel(column: Any) -> tirx.Stmt:
                value = _shuffled(image, parts[block], (n, row, column), lanes, dtype)
                return nest.store(gathered, value, n, tirx.IntImm(INDEX, block), row, column, whole)

            return nest.serial(columns, pixel, INDEX)

        return nest.sequence(*map(one, range(blocks)))

    pays = threads_pay(threads, batch * blocks * rows * columns * lanes, WORK_PER_THREAD)
    return nest.with_loops(function, nest.tasks(batch * rows, row_of_all, INDEX, parallel=pays))


def _shuffled(
    image: Any, sources: Sequence[Source], place: tuple[Any, Any, Any], lanes: int, dtype: str
) -> Any:
    """One vector of the result: each block's lanes are shuffled into those of the blocks before."""
    n, row, column = place
    whole = tirx.Ramp(tirx.IntImm(INDEX, 0), tirx.IntImm(INDEX, 1), lanes)
    is_full = sum(len(source.lanes) for source in sources) == lanes
    value = None if is_full else tirx.Broadcast(tirx.const(0, dtype), lanes)
    for source in sources:
        vector = image[(n, tirx.IntImm(INDEX, source.block), row, column, whole)]
        if value is None:
            value = _pick(vector, vector, [source.lanes.get(lane, lane) for lane in range(lanes)])
        else:
            both = {lane: from_lane + lanes for lane, from_lane in source.lanes.items()}
            value = _pick(value, vector, [both.get(lane, lane) for lane in range(lanes)])
    return value


def _pick(first: Any, second: Any, order: Sequence[int]) -> Any:
    """Lanes of two vectors, counted through both; the first vector itself if these are its lanes."""
    if list(order) == list(range(len(order))):
        return first
    return tirx.Shuffle([first, second], [tirx.IntImm("int32", lane) for lane in order])
