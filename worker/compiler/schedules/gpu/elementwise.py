"""Elementwise functions: one vector of 16 bytes per thread and step, or a tile through shared memory.

Claims a function of one block without a reduction: chains of elementwise operators, broadcasts,
concatenations, gathers, padding, slices::

    for block, thread:                                   # neighbors in a warp hold neighboring vectors
        for part in parts:                               # unrolled, a grid apart
            vector = (part * blocks + block) * threads + thread
            load the vectors that the expression reads
            output[vector] = f(...)                      # one store of 16 bytes
        the elements after the last whole vector, one per thread

A function that reads along another dimension than it writes (a transposition) goes through shared memory, so
that both sides are coalesced::

    for block = tile of 32 by 32, thread (x, y) of 32 by 8:
        for step in 4: tile[y + 8 step, x] = input at (row x, column y + 8 step)      # along the input's rows
        barrier
        for step in 4: output at (row y + 8 step, column x) = f(tile[x, y + 8 step])  # along the output's

A row of the tile has 33 elements, so that the threads of a warp that read a column meet different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm_ffi import structural_equal, structural_map

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Axis, Block, long_axes, read_blocks
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.threads import (
    VECTOR_BYTES,
    Lane,
    Memory,
    barrier,
    bits_of,
    divisors,
    extent_of,
    flat_index,
    is_static,
    kernel,
    lanes_of,
    places_of,
    shared_tile,
    when,
    whole,
)

_THREADS = 256
_FEWEST_THREADS = 64
_MOST_PARTS = 4
_SIDE, _STEP = 32, 8


def write_elementwise(schedule: s_tir.Schedule, gpu: Gpu) -> tirx.PrimFunc | None:
    """Write the kernel of an elementwise function; None for other functions."""
    blocks = read_blocks(schedule)
    if len(blocks) != 1 or not is_static(blocks) or blocks[0].reduced:
        return None
    (block,) = blocks
    if not isinstance(block.body.body, tirx.BufferStore):
        return None
    loops = _transposed(block) or _vectors(block, gpu)
    return nest.with_loops(schedule.mod["main"], loops)


@dataclass(frozen=True)
class Grid:
    """Blocks and threads for a number of items, and the items of each thread."""

    blocks: int
    threads: int
    parts: int


def grid_for(items: int, gpu: Gpu) -> Grid:
    """Fewer threads per block where a grid of larger blocks would leave multiprocessors idle."""
    threads = _THREADS
    while threads > _FEWEST_THREADS and -(-items // threads) < gpu.multiprocessors:
        threads //= 2
    resident = gpu.multiprocessors * gpu.threads_per_multiprocessor
    parts = max(1, min(_MOST_PARTS, items // resident))
    return Grid(-(-items // (threads * parts)), threads, parts)


def _vectors(block: Block, gpu: Gpu) -> tirx.Stmt:
    total, lanes = extent_of(block.axes), _lanes(block)
    vectors, rest = divmod(total, lanes)
    grid = grid_for(vectors + rest, gpu)
    analyzer = Analyzer()
    memory = Memory(analyzer)

    def of_thread(number: Any, thread: Any) -> tirx.Stmt:
        def part(step: Any) -> tirx.Stmt:
            return _item(block, memory, (step * grid.blocks + number) * grid.threads + thread, vectors, rest)

        return nest.sequence(*(part(whole(step)) for step in range(grid.parts)))

    loops = kernel({"blockIdx.x": grid.blocks, "threadIdx.x": grid.threads}, analyzer, of_thread)
    return memory.declared(loops)


def _item(block: Block, memory: Memory, item: Any, vectors: int, rest: int) -> tirx.Stmt:
    """The statement for one vector, or for one of the elements after the last vector."""
    total = extent_of(block.axes)
    lanes = (total - rest) // vectors if vectors else 1
    place = tirx.Var("vector", nest.INDEX)
    memory.analyzer.bind(place, _range(max(1, vectors)))
    body = when(item < vectors, _bound(place, item, _statement(block, memory, place * lanes, lanes)))
    if not rest:
        return body
    single = tirx.Var("element", nest.INDEX)
    memory.analyzer.bind(single, _range(total))
    end = _bound(single, item - vectors + vectors * lanes, _statement(block, memory, single, 1))
    tail = when(tirx.all(item >= vectors, item < vectors + rest), end)
    return nest.sequence(body, tail) if vectors else tail


def _bound(variable: Any, value: Any, body: tirx.Stmt) -> tirx.Stmt:
    return nest.substitute(body, {variable: value})


def _range(extent: int) -> Any:
    import tvm

    return tvm.ir.Range(whole(0), whole(extent))


def _statement(block: Block, memory: Memory, first: Any, lanes: int) -> tirx.Stmt:
    body = block.body.body
    lane = Lane(block.axes, first, memory.analyzer)
    return memory.stored(body.buffer, body.indices, memory.vector(body.value, lane, lanes), lane)


def _lanes(block: Block) -> int:
    """The longest vector whose store is one access, and that some load or the store fills with 16 bytes."""
    body = block.body.body
    loads, total = nest.loads_of(body.value), extent_of(block.axes)
    place = tirx.Var("vector", nest.INDEX)
    for lanes in divisors(lanes_of([body.buffer])):
        analyzer = Analyzer()
        analyzer.bind(place, _range(max(1, total // lanes)))
        memory = Memory(analyzer)
        lane = Lane(block.axes, place * lanes, analyzer)
        if lanes == 1:
            return 1
        too_wide = any(
            bits_of(load.source) * lanes > VECTOR_BYTES * 8
            and memory.step(load.source, load.indices, lane, lanes) == 1
            for load in loads
        )
        if total >= lanes and not too_wide and memory.step(body.buffer, body.indices, lane, lanes) == 1:
            return lanes
    return 1


def _transposed(block: Block) -> tirx.Stmt | None:
    """The kernel through shared memory; None if every load is coalesced as it is."""
    body = block.body.body
    axes = long_axes(block.axes)
    if len(axes) < 2 or _has_branch(body.value):
        return None
    column = axes[-1]
    if _distance(body.buffer, body.indices, column, block) != 1:
        return None
    moved = [load for load in nest.loads_of(body.value) if _distance_of(load, column, block) not in (0, 1)]
    if not moved or not all(structural_equal(load, moved[0]) for load in moved):
        return None
    load = moved[0]
    rows = [axis for axis in axes[:-1] if _distance_of(load, axis, block) == 1]
    if len(rows) != 1 or min(rows[0].extent, column.extent) < _STEP:
        return None
    return _tiles(block, load, rows[0], column)


def _tiles(block: Block, load: Any, row: Axis, column: Axis) -> tirx.Stmt:
    body, analyzer = block.body.body, Analyzer()
    memory = Memory(analyzer)
    outer = [axis for axis in block.axes if axis is not row and axis is not column]
    across, down = -(-column.extent // _SIDE), -(-row.extent // _SIDE)
    tile = shared_tile(_SIDE, _SIDE, 1, str(load.source.dtype), "tile")

    def of_thread(number: Any, y: Any, x: Any) -> tirx.Stmt:
        places = places_of(number // (across * down), outer, analyzer)
        first_row = number // across % down * _SIDE
        first_column = number % across * _SIDE

        def read(step: int) -> tirx.Stmt:
            at_row, at_column = first_row + x, first_column + y + step
            here = {**places, row.var: at_row, column.var: at_column}
            value = memory.flattened(nest.substitute(load, here), 0)
            return when(_inside(at_row, row, at_column, column), tile.store(value, y + step, x))

        def write(step: int) -> tirx.Stmt:
            at_row, at_column = first_row + y + step, first_column + x
            here = {**places, row.var: at_row, column.var: at_column}
            value = _with_tile(body.value, load, tile.load(x, y + step))
            value = memory.flattened(nest.substitute(value, here), 0)
            flat = memory.flat(body.buffer, [nest.substitute(index, here) for index in body.indices])
            return when(
                _inside(at_row, row, at_column, column), nest.store(memory.view(body.buffer), value, flat)
            )

        steps = range(0, _SIDE, _STEP)
        return nest.sequence(*map(read, steps), barrier(), *map(write, steps))

    tiles = extent_of(outer) * across * down
    sizes = {"blockIdx.x": tiles, "threadIdx.y": _STEP, "threadIdx.x": _SIDE}
    loops = kernel(sizes, analyzer, of_thread, (tile.buffer,))
    return memory.declared(loops)


def _inside(at_row: Any, row: Axis, at_column: Any, column: Axis) -> Any:
    conditions = [
        place < axis.extent for place, axis in ((at_row, row), (at_column, column)) if axis.extent % _SIDE
    ]
    return tirx.all(*conditions) if conditions else None


def _with_tile(value: Any, load: Any, element: Any) -> Any:
    return structural_map(value, (TensorLoad, lambda one: element if structural_equal(one, load) else one))


def _has_branch(value: Any) -> bool:
    from worker.compiler.schedules.gpu.threads import _branches_in

    return _branches_in(value) is not None


def _distance_of(load: Any, axis: Axis, block: Block) -> int | None:
    return _distance(load.source, load.indices, axis, block)


def _distance(buffer: Any, indices: Sequence[Any], axis: Axis, block: Block) -> int | None:
    """The elements between neighbors along an axis; None if they vary."""
    analyzer = Analyzer()
    for one in block.axes:
        analyzer.bind(one.var, _range(one.extent))
    flat = analyzer.simplify(flat_index(indices, buffer.shape))
    apart = analyzer.simplify(nest.substitute(flat, {axis.var: axis.var + 1}) - flat)
    return int(apart) if isinstance(apart, tirx.IntImm) else None
