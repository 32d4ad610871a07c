"""What families of sliding windows share: recognition of a function's parts, and steps of their schedules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Generic, TypeVar

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Block, block_names, element_bits, name_of_family, read_block
from worker.compiler.schedules.processors import MULTIPLY_ADDS_PER_THREAD, Machine, divisors, threads_pay
from worker.compiler.schedules.reduction import find_epilogue, last_block

Shape = TypeVar("Shape")

_AXES = 5
_LONGEST_PART = 64
_SHORTEST_PART = 12


@dataclass(frozen=True)
class Windows:
    """The blocks of a function of windows: a border if any, the windows, the one that writes the output.

    ``last`` runs over batch, blocks, rows, columns and lanes, whose sizes are ``sizes``. If it ``is_open``,
    the batch, rows or columns are dynamic. ``taps`` is the product of all reduced axes, ``channels`` the
    outermost, ``taps_of_row`` the innermost.
    """

    border: SBlockRV | None
    main: SBlockRV
    last: SBlockRV
    sizes: tuple[int, ...]
    taps: int
    channels: int
    taps_of_row: int
    dtype_bits: int
    is_open: bool = False

    @property
    def work(self) -> int:
        """The multiply-adds of vectors."""
        batch, blocks, rows, columns, _ = self.sizes
        return batch * blocks * rows * columns * self.taps


def find_windows(schedule: s_tir.Schedule, family: str, may_be_open: bool = False) -> Windows | None:
    """The parts of a function of a family; None for functions of other families or with more blocks.

    Args:
        schedule: the function.
        family: the family's name.
        may_be_open: whether the batch, rows and columns may be dynamic.
    """
    names = block_names(schedule)
    main = name_of_family(schedule, family)
    block = None if main is None else read_block(schedule, schedule.get_sblock(main), may_be_dynamic=True)
    if main is None or block is None or len(block.spatial) != _AXES:
        return None
    others = (block.spatial[1], block.spatial[4], *block.reduced)
    if any(axis.is_dynamic for axis in others) or (block.is_dynamic and not may_be_open):
        return None
    epilogue = find_epilogue(schedule, block)
    borders = [str(schedule.get(producer).name_hint) for producer in schedule.get_producers(block.handle)]
    if len(borders) > 1 or len(names) != len({main, epilogue or main, *borders}):
        return None
    last = last_block(schedule, block.handle, epilogue)
    return Windows(
        border=schedule.get_sblock(borders[0]) if borders else None,
        main=schedule.get_sblock(main),
        last=last,
        sizes=tuple(axis.extent for axis in block.spatial),
        taps=prod(axis.extent for axis in block.reduced),
        channels=block.reduced[0].extent if block.reduced else 1,
        taps_of_row=block.reduced[-1].extent if block.reduced else 1,
        dtype_bits=element_bits(block),
        is_open=block.is_dynamic,
    )


@dataclass(frozen=True)
class ConvolutionParts(Generic[Shape]):
    """A function's image and weights, its block of the outputs and the block that writes them.

    Attributes:
        before: rows and columns of the border before the image.
        shape: the sizes that a plan depends on.
    """

    image: Any
    weights: Any
    main: Block
    last: Block
    before: tuple[int, int]
    shape: Shape


def cut_row(schedule: s_tir.Schedule, windows: Windows) -> Windows:
    """Cut the only row of a sequence into parts of equal length, which take the place of rows.

    The families of windows then find enough rows for all threads, with inputs that stay in L2 while all
    blocks of outputs use them. Short rows, and rows without a divisor of a good length, stay whole.
    """
    batch, blocks, rows, columns, lanes = windows.sizes
    parts, length = parts_of_row(columns)
    if rows > 1 or parts == 1:
        return windows
    row, column = schedule.get_loops(windows.last)[2:4]
    part, _ = schedule.split(column, factors=[None, length])
    schedule.fuse(row, part)
    return replace(windows, sizes=(batch, blocks, parts, length, lanes))


def parts_of_row(columns: int) -> tuple[int, int]:
    """The number of parts of a sequence, and their length."""
    length = divisors(columns, _LONGEST_PART)[-1]
    return (
        (1, columns) if columns <= _LONGEST_PART or length < _SHORTEST_PART else (columns // length, length)
    )


def join_rows(schedule: s_tir.Schedule, windows: Windows, joined: int) -> Windows:
    """Join every ``joined`` rows of the output to one long row.

    Args:
        schedule: the function; the main block writes a buffer of its own.
        windows: its parts, before any loop is split.
        joined: a divisor of the rows.

    Returns:
        The parts, with fewer and longer rows.
    """
    if joined == 1:
        return windows
    batch, blocks, rows, columns, lanes = windows.sizes

    def place(n: Any, k: Any, y: Any, x: Any, *rest: Any) -> list[Any]:
        return [n, k, y // joined, y % joined * columns + x, *rest]

    main = schedule.get(windows.main)
    dtype = str(main.iter_vars[0].var.ty.dtype)

    def over(dimensions: int) -> tirx.IndexMap:
        return tirx.IndexMap.from_func(place, ndim=dimensions, index_dtype=dtype)

    schedule.transform_layout(windows.main, ("write", 0), over(_AXES))
    schedule.transform_block_layout(windows.main, over(len(main.iter_vars)))
    schedule.transform_block_layout(windows.last, over(_AXES))
    return replace(windows, sizes=(batch, blocks, rows // joined, joined * columns, lanes))


def run_parallel(schedule: s_tir.Schedule, windows: Windows, loop: LoopRV, machine: Machine) -> None:
    """Run a loop around the windows in parallel if there is enough work."""
    if threads_pay(machine.threads, windows.work, MULTIPLY_ADDS_PER_THREAD):
        schedule.parallel(loop)


def copy_border(schedule: s_tir.Schedule, windows: Windows, machine: Machine) -> None:
    """Copy the whole border first: rows in parallel, lanes in a vector."""
    loops = list(schedule.get_loops(windows.border))
    if len(loops) == _AXES:
        schedule.vectorize(loops[-1])
    run_parallel(schedule, windows, schedule.fuse(*loops[:3]), machine)


def copy_rows(border: Block, runs_parallel: bool) -> tirx.Stmt:
    """Copy an image with its border: rows by tasks, the lanes of blocks in a vector.

    Args:
        border: the block that computes an element of the copy.
        runs_parallel: whether threads share the rows of all images and blocks.
    """
    sizes = [axis.size for axis in border.axes]
    dtype = nest.dtype_of(border.axes[0].var)

    def element(*place: Any) -> tirx.Stmt:
        values = {axis.var: index for axis, index in zip(border.axes, place, strict=True)}
        body = border.body.body
        indices = (nest.substitute(index, values) for index in body.indices)
        return nest.store(body.buffer, nest.substitute(body.value, values), *indices)

    def row(task: Any) -> tirx.Stmt:
        outside = nest.split_index(task, sizes[:3])
        if len(sizes) < _AXES:
            return nest.serial(sizes[3], lambda x: element(*outside, x), dtype)
        return nest.serial(
            sizes[3],
            lambda x: nest.vectorized(sizes[4], lambda lane: element(*outside, x, lane), dtype),
            dtype,
        )

    return nest.tasks(prod(sizes[:3]), row, dtype, parallel=runs_parallel)


def tile_inside(
    schedule: s_tir.Schedule, main: SBlockRV, outer: int, order: tuple[int, ...]
) -> tuple[LoopRV, ...]:
    """Move the tile's loops inside the reduced ones; unroll them and vectorize the lanes.

    Args:
        schedule: the function; the block's spatial loops below ``outer`` are the tile's.
        main: the windows' block.
        outer: the number of loops around the tile.
        order: the tile's spatial axes from the outside in, the lanes last.

    Returns:
        The reduced loops.
    """
    loops = list(schedule.get_loops(main))[outer:]
    kinds = [variable.iter_type for variable in schedule.get(main).iter_vars]
    if len(loops) != len(kinds):
        raise ValueError("the tile lost a loop")
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.CommReduce]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != tirx.IterVar.CommReduce]
    tile = [spatial[axis] for axis in order]
    schedule.reorder(*reduced, *tile)
    schedule.vectorize(tile[-1])
    for loop in tile[:-1]:
        schedule.unroll(loop)
    return tuple(reduced)
