"""Dense and grouped convolutions of images in blocks, and of plain images of few channels (stems)::

    copy the image with its border, in parallel                           # if it has one
    for parallel task in (image, group of output blocks, row):            # or row outside group of blocks
        for tile of columns:
            sums[columns, blocks, lanes] = 0
            for input block, tap row, tap column, input lane:
                for column, block:                                        # unrolled
                    sums[column, block, lanes] += image[pixel] * weights[block, lanes]
            for block, column:                                            # unrolled
                output[block, column, lanes] = epilogue(sums[column, block, lanes])

Registers hold the sums, the weights of one tap and input channel, and one broadcast pixel. Columns are
outside blocks: the other way around, LLVM keeps all pixels in registers and spills. Neighboring tasks share a
group's weights (rows inside) or a row's pixels (rows outside), whichever would otherwise be read more often.
The epilogue (bias, residual, activation) reads the tile from L1. If the weights of a tile's blocks exceed
half of L2, the input channels are divided: all tiles of a row add up one part before the next part's weights
are read, and the row's sums stay in memory. Weights that come from memory are prefetched (``prefetch``).

An image that a block scales and activates (``ACTIVATED``) is computed a row at a time; the groups of blocks
of that row are then inside the task.

Where tile registers are faster, the function has their loops beside these (``tiles``).

Edges: the last, shorter tile of a row is compiled separately (LoopPartition). Short rows are joined to one
long row, so a tile may go on in the next row. The border is a copy, so the window has no branch.

Source: Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures",
2018: blocked layout, register tile and order of loops of the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV

from worker.compiler.schedules.annotations import ACTIVATED, CONVOLUTION, GROUP_BLOCKS, PARTITION
from worker.compiler.schedules.families.convolution.prefetch import (
    NextWeights,
    prefetches_weights,
    with_prefetches,
)
from worker.compiler.schedules.families.convolution.tiles import find_tiled, product_shape, write_tiled
from worker.compiler.schedules.families.convolution.windows import (
    Windows,
    copy_border,
    cut_row,
    find_windows,
    join_rows,
    run_parallel,
    tile_inside,
)
from worker.compiler.schedules.families.matmul.plan import MatmulShape
from worker.compiler.schedules.families.matmul.tile_plan import PANEL, cycles_if_faster, tile_plans
from worker.compiler.schedules.plans import PlanChooser, by_rank
from worker.compiler.schedules.processors import Machine, divisors
from worker.compiler.schedules.tiles import ROWS as TILE_ROWS

_MAX_BLOCKS = 8
_MAX_COLUMNS = 28
_MAX_SCATTERED = 8
"""The pixels of a tile over joined rows that are not contiguous: each needs a register for its address."""
_MAX_JOINED = 1024
_TAP_CYCLES = 0.5
"""The cost of a tap of a tile besides its multiply-adds: the loop's own instructions. Lanes as factors make
one loop of several taps."""
_TILE_CYCLES = 20
"""The cost of a tile besides its taps: a mispredicted loop end, the first loads."""
_TASK_CYCLES = 150
"""The cost of a row, or of rows joined to one, besides its tiles: the loops around them, the first tile."""
_SCATTERED_COST = 1.02
_FEW_REGISTERS = 16
_SCATTERED_COLUMN_COST = 0.03
"""The extra cost of each such pixel if registers are few, measured with 512 channels at 7x7 on Zen 3 by
``make bench-tiles``."""
_MAX_UNROLLED_COLUMNS = 11
_UNROLLED_REGISTERS = 32
_MIN_UNROLLED_TAPS = 512
"""Measured on Xeons: unrolling the lanes of such tiles saves 3 to 14 percent of 3x3 convolutions and up to 13
of 1x1; with 12 columns and more, or few taps, it loses up to half of the speed."""
_MIN_FAR_TAPS = 256
_FAR_IMAGES = 2
"""Measured on Zen 4: unrolling saves 5 to 21 percent of 1x1 convolutions of images larger than this multiple
of L2, whose loads then begin earlier. Others lose up to a tenth."""


@dataclass(frozen=True)
class ConvolutionShape:
    """The sizes that a plan depends on.

    Attributes:
        batch: images.
        groups: groups of output blocks that read the same inputs.
        blocks: vectors of output channels in one group.
        rows: rows of the output.
        columns: columns of the output.
        taps: multiply-adds of an output: the taps of the window times the input channels.
        contiguous: whether rows are adjacent in memory, as without a border and strides.
        channels: blocks of input channels, or input channels if the image is not in blocks.
        bits: width of an element.
        image: elements of all images.
        weights: elements of the weights.
        joinable: whether rows may be joined. They may not if they are parts of a sequence, or if the window
            has one tap and channel, whose reductions TVM would drop.
        is_plain: whether the image is not in blocks.
    """

    batch: int
    groups: int
    blocks: int
    rows: int
    columns: int
    taps: int
    contiguous: bool
    channels: int = 1
    bits: int = 32
    image: int = 0
    weights: int = 0
    joinable: bool = True
    is_plain: bool = False


@dataclass(frozen=True)
class ConvolutionTile:
    """A register tile: ``blocks`` vectors of output channels times ``columns`` pixels of ``joined`` rows.

    The input channels are divided into ``parts``.
    """

    blocks: int
    columns: int
    joined: int = 1
    parts: int = 1


@dataclass(frozen=True)
class ConvolutionPlan:
    """How a convolution is computed.

    Attributes:
        tile: the register tile.
        keeps_weights: whether rows are inside groups of blocks, so that the weights stay in the cache.
        unrolls: whether the innermost loop around the tile is unrolled, over lanes or columns of taps.
    """

    tile: ConvolutionTile
    keeps_weights: bool
    unrolls: bool


@dataclass(frozen=True)
class _Loops:
    """The loop over tasks, the one over tiles of a row, and the reduced ones around a tile."""

    task: LoopRV
    column: LoopRV
    reduced: tuple[LoopRV, ...]


def write_conv2d(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a convolution in blocks; None for other functions."""
    original, schedule = schedule, schedule.copy()
    windows = find_windows(schedule, CONVOLUTION)
    if windows is None:
        return None
    whole, windows = windows, cut_row(schedule, windows)
    shape = _shape(schedule, windows, is_cut=windows is not whole)
    tiled = find_tiled(original, machine, vector_cycles(shape, machine)) if machine.has_tiles else None
    if tiled is not None:
        vectors = write_conv2d(original, replace(machine, has_tiles=False), PlanChooser(None))
        if vectors is None:
            return None
        return write_tiled(vectors, tiled, choose(tile_plans(tiled.shape, machine, tiled.parts), tiled.shape))
    plans = convolution_plans(shape, machine)
    by_rows = tuple(plan for plan in plans if _goes_by_rows(plan)) if _is_activated(schedule, windows) else ()
    plan = choose(by_rows or plans, shape)
    if by_rows:
        _tile(schedule, windows, plan, machine, activates=True)
        return schedule.mod["main"]
    windows = join_rows(schedule, windows, plan.tile.joined)
    loops = _tile(schedule, windows, plan, machine)
    if windows.border is not None:
        copy_border(schedule, windows, machine)
    return _with_prefetches(schedule, windows, plan, shape, machine, loops)


def convolution_plans(shape: ConvolutionShape, machine: Machine) -> tuple[ConvolutionPlan, ...]:
    """All plans of a convolution, the ones that the model expects to be fastest first."""
    tiles = rank_convolution_tiles(shape, machine)
    return tuple(
        ConvolutionPlan(
            tile,
            _keeps_weights(shape, tile) is keeps_as_expected,
            _unrolls(shape, tile, machine) is unrolls_as_expected,
        )
        for tile, keeps_as_expected, unrolls_as_expected in by_rank(tiles, (True, False), (True, False))
    )


def rank_convolution_tiles(shape: ConvolutionShape, machine: Machine) -> tuple[ConvolutionTile, ...]:
    """All tiles that fit the registers, the fastest first.

    Ties go to the tile that joins fewer rows, then to fewer loads, then to fewer blocks. A tile's blocks
    divide the group's; its columns need not divide a row.
    """
    tiles = [
        ConvolutionTile(high, wide, joined, _parts(high, shape, machine))
        for joined in _joins(shape)
        for high in divisors(shape.blocks, _MAX_BLOCKS)
        for wide in range(1, min(_widest(shape, joined), _MAX_COLUMNS) + 1)
        if _registers(high, wide, shape, machine) <= machine.registers
    ]
    return tuple(sorted(tiles, key=lambda tile: _merit(tile, shape, machine)))


def _unrolls(shape: ConvolutionShape, tile: ConvolutionTile, machine: Machine) -> bool:
    """Whether to unroll the lanes of an input block. LLVM then spills tiles of many columns."""
    if (
        tile.columns > _MAX_UNROLLED_COLUMNS
        or machine.registers < _UNROLLED_REGISTERS
        or machine.lane_factors
    ):
        return False
    if machine.hides_loops:
        is_far = shape.image * shape.bits // 8 > _FAR_IMAGES * machine.l2_bytes
        is_single = not shape.is_plain and shape.taps == shape.channels * machine.lanes(shape.bits)
        return is_far and is_single and shape.taps >= _MIN_FAR_TAPS
    return shape.taps >= _MIN_UNROLLED_TAPS and not shape.is_plain


def plan_cycles(plan: ConvolutionPlan, shape: ConvolutionShape, machine: Machine) -> float:
    """The cycles of the thread with the most work, by a plan's tile."""
    vectors = shape.batch * shape.groups * shape.blocks * shape.rows * shape.columns
    return _cycles(plan.tile, shape, machine) * shape.taps * vectors / machine.threads


def direct_cycles(shape: ConvolutionShape, machine: Machine) -> float:
    """The cycles of the thread with the most work, by vectors or by tile registers."""
    by_vectors = vector_cycles(shape, machine)
    product = tiled_product(shape, machine)
    if product is None:
        return by_vectors
    by_tiles = cycles_if_faster(product, machine, by_vectors)
    return by_vectors if by_tiles is None else by_tiles


def tiled_product(shape: ConvolutionShape, machine: Machine) -> MatmulShape | None:
    """The product that tile registers would compute; None if they cannot."""
    can_tile = machine.has_tiles and shape.bits == 32 and machine.lanes(shape.bits) == TILE_ROWS
    is_whole = shape.groups == 1 and shape.blocks > 1 and not shape.is_plain
    rows = shape.batch * shape.rows * shape.columns
    if not can_tile or not is_whole or rows < PANEL:
        return None
    return product_shape(rows, shape.taps // shape.channels, shape.channels, shape.blocks)


def vector_cycles(shape: ConvolutionShape, machine: Machine) -> float:
    """The cycles of the thread with the most work, by the fastest tile, or of reading its weights once."""
    tile = rank_convolution_tiles(shape, machine)[0]
    vectors = shape.batch * shape.groups * shape.blocks * shape.rows * shape.columns
    arithmetic = _cycles(tile, shape, machine) * shape.taps * vectors / machine.threads
    weights = shape.weights * shape.bits // 8 / machine.threads
    return max(arithmetic, weights / machine.far_bytes_per_cycle)


def _registers(blocks: int, columns: int, shape: ConvolutionShape, machine: Machine) -> int:
    """Sums, the weights of a tap, and one pixel, or every pixel's channels if lanes can be factors.

    A tile of one block holds the next pixel too. For a plain image, LLVM keeps the pixels that neighboring
    taps share, about as many as sums.
    """
    sums = blocks * columns
    if shape.is_plain:
        return 2 * sums
    return sums + blocks + (columns if machine.lane_factors else 1 + (blocks == 1))


def _joins(shape: ConvolutionShape) -> tuple[int, ...]:
    """The numbers of rows to join: one, and all of an image."""
    few = 1 < shape.rows <= _MAX_JOINED // shape.columns
    return (1, shape.rows) if few and shape.joinable else (1,)


def _parts(blocks: int, shape: ConvolutionShape, machine: Machine) -> int:
    """One if the weights of a tile's blocks fit half of L2, else as few parts as fit half of L1."""
    weights_bytes = blocks * machine.lanes(shape.bits) * shape.taps * shape.bits // 8
    if weights_bytes <= machine.l2_bytes // 2:
        return 1
    fitting = (
        parts
        for parts in divisors(shape.channels, shape.channels)
        if weights_bytes // parts <= machine.l1_bytes // 2
    )
    return next(fitting, shape.channels)


def _widest(shape: ConvolutionShape, joined: int) -> int:
    return shape.columns if joined == 1 else joined * shape.columns if shape.contiguous else _MAX_SCATTERED


def _merit(tile: ConvolutionTile, shape: ConvolutionShape, machine: Machine) -> tuple[float, int, float, int]:
    cycles = _cycles(tile, shape, machine)
    return (round(cycles, 3), tile.joined, _loads(tile), tile.blocks)


def _cycles(tile: ConvolutionTile, shape: ConvolutionShape, machine: Machine) -> float:
    """Cycles per tap and output vector, on the thread with the most work."""
    pixels = tile.joined * shape.columns
    whole, rest = divmod(pixels, tile.columns)
    total = whole * _tile_cycles(tile, tile.columns, shape, machine)
    if rest:
        total += _tile_cycles(tile, rest, shape, machine)
    total += _TASK_CYCLES * tile.parts / shape.taps
    tasks = shape.batch * shape.groups * (shape.blocks // tile.blocks) * (shape.rows // tile.joined)
    unequal = ceil(tasks / machine.threads) * machine.threads / tasks
    return total / (tile.blocks * pixels) * unequal * _scattered_cost(tile, shape, machine)


def _scattered_cost(tile: ConvolutionTile, shape: ConvolutionShape, machine: Machine) -> float:
    if tile.joined == 1 or shape.contiguous:
        return 1.0
    few = machine.registers <= _FEW_REGISTERS
    return _SCATTERED_COST + (_SCATTERED_COLUMN_COST * tile.columns if few else 0.0)


def _tile_cycles(tile: ConvolutionTile, columns: int, shape: ConvolutionShape, machine: Machine) -> float:
    """Cycles of a tap: the slowest of multiply-adds, loads, weights from L2, and a multiply-add's latency."""
    blocks = tile.blocks
    multiply_adds = blocks * columns / machine.fma_ports
    loads = (blocks + columns) / machine.loads_per_cycle
    weights = blocks * machine.vector_bits // 8
    near = 0.0
    if weights * shape.taps // tile.parts > machine.l1_bytes // 2:
        near = weights / machine.near_bytes_per_cycle
    slowest = max(multiply_adds, loads, near, machine.fma_latency)
    loop = 0 if machine.lane_factors or machine.hides_loops else _TAP_CYCLES
    return slowest + loop + _TILE_CYCLES * tile.parts / shape.taps


def _loads(tile: ConvolutionTile) -> float:
    return (tile.blocks + tile.columns) / (tile.blocks * tile.columns)


def _is_activated(schedule: s_tir.Schedule, windows: Windows) -> bool:
    """Whether the image is computed by a block that may run a row at a time."""
    return windows.border is not None and ACTIVATED in schedule.get(windows.border).annotations


def _goes_by_rows(plan: ConvolutionPlan) -> bool:
    """Whether all groups of blocks of a row can be computed before the next row."""
    return plan.tile.joined == plan.tile.parts == 1 and not plan.keeps_weights


def _tile(
    schedule: s_tir.Schedule,
    windows: Windows,
    plan: ConvolutionPlan,
    machine: Machine,
    activates: bool = False,
) -> _Loops:
    tile = plan.tile
    batch, block, row, column, lane = schedule.get_loops(windows.last)
    outer_block, inner_block = schedule.split(block, factors=[None, tile.blocks])
    outer_column, inner_column = schedule.split(column, factors=[None, tile.columns])
    outside = (outer_block, row) if plan.keeps_weights else (row, outer_block)
    schedule.reorder(batch, *outside, outer_column, inner_block, inner_column, lane)
    schedule.vectorize(lane)
    schedule.unroll(inner_block)
    schedule.unroll(inner_column)
    parallel = schedule.fuse(batch, *(outside[:1] if activates else outside))
    if windows.sizes[3] % tile.columns:
        schedule.annotate(outer_column, PARTITION, 1)
    run_parallel(schedule, windows, parallel, machine)
    if tile.parts > 1:
        return _reduce_in_parts(schedule, windows, plan, parallel)
    schedule.compute_at(windows.main, outer_column, preserve_unit_loops=True)
    reductions = tile_inside(schedule, windows.main, outer=3 if activates else 2, order=(0, 2, 3, 1, 4))
    if plan.unrolls:
        schedule.unroll(reductions[-1])
    schedule.decompose_reduction(windows.main, reductions[0])
    if activates:
        schedule.compute_at(windows.border, parallel, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(windows.border)[-1])
    return _Loops(parallel, outer_column, reductions)


def _reduce_in_parts(
    schedule: s_tir.Schedule, windows: Windows, plan: ConvolutionPlan, outer: LoopRV
) -> _Loops:
    """Let all tiles of a row add up one part of the input channels, then the next."""
    tile = plan.tile
    schedule.compute_at(windows.main, outer, preserve_unit_loops=True)
    _, batch, block, row, column, lane, channel, *taps = schedule.get_loops(windows.main)
    part, channel = schedule.split(channel, factors=[tile.parts, None])
    outer_column, inner_column = schedule.split(column, factors=[None, tile.columns])
    tile_loops = (batch, row, inner_column, block)
    schedule.reorder(part, outer_column, channel, *taps, *tile_loops, lane)
    if windows.sizes[3] % tile.columns:
        schedule.annotate(outer_column, PARTITION, 1)
    schedule.vectorize(lane)
    for loop in tile_loops:
        schedule.unroll(loop)
    if plan.unrolls:
        schedule.unroll(taps[-1])
    schedule.decompose_reduction(windows.main, part)
    return _Loops(outer, outer_column, (part, channel, *taps))


def _with_prefetches(
    schedule: s_tir.Schedule,
    windows: Windows,
    plan: ConvolutionPlan,
    shape: ConvolutionShape,
    machine: Machine,
    loops: _Loops,
) -> tirx.PrimFunc:
    """The function with prefetches of the next weights, where they come from memory."""
    function, tile = schedule.mod["main"], plan.tile
    rows, columns = windows.sizes[2:4]
    tiles = ceil(columns / tile.columns)
    if not _prefetches(plan, shape, machine) or len(loops.reduced) < 2:
        return function
    task, column, tap = (
        schedule.get(loop).loop_var for loop in (loops.task, loops.column, loops.reduced[-2])
    )
    weights = schedule.get(windows.main).reads[-1].source
    if tile.parts == 1:
        following = NextWeights(weights, {task: task + rows}, task % rows * tiles + column, rows * tiles)
    else:
        part = schedule.get(loops.reduced[0]).loop_var
        places = {task: task + (part + 1) // tile.parts, part: (part + 1) % tile.parts}
        following = NextWeights(weights, places, column, tiles)
    return with_prefetches(function, tap, following)


def _prefetches(plan: ConvolutionPlan, shape: ConvolutionShape, machine: Machine) -> bool:
    """Whether to prefetch the next weights: they come from memory, and L2 holds them beside the current ones.

    Rows outside groups of blocks read all weights again for each row.
    """
    tile, size = plan.tile, shape.bits // 8
    rows = shape.rows // tile.joined
    if shape.is_plain or (rows > 1 and not plan.keeps_weights):
        return False
    uses = tile.joined * shape.columns * (rows if tile.parts == 1 else 1)
    weights = tile.blocks * machine.lanes(shape.bits) * shape.taps // tile.parts
    fit = (2 * weights + shape.image // shape.batch) * size <= machine.l2_bytes
    return fit and prefetches_weights(shape.weights * size, uses, machine)


def _keeps_weights(shape: ConvolutionShape, tile: ConvolutionTile) -> bool:
    """Whether rows inside groups of blocks read less memory than groups of blocks inside rows."""
    turns, rows = shape.groups * shape.blocks // tile.blocks, shape.rows // tile.joined
    return shape.image * turns + shape.weights <= shape.weights * rows + shape.image


def _shape(schedule: s_tir.Schedule, windows: Windows, is_cut: bool) -> ConvolutionShape:
    batch, blocks, rows, columns, _ = windows.sizes
    main = schedule.get(windows.main)
    per_group = int(main.annotations[GROUP_BLOCKS])
    image, weights = (tuple(map(int, read.source.shape)) for read in main.reads)
    return ConvolutionShape(
        batch=batch,
        groups=blocks // per_group,
        blocks=per_group,
        rows=rows,
        columns=columns,
        taps=windows.taps,
        contiguous=image[2:4] == (rows, columns),
        channels=windows.channels,
        bits=windows.dtype_bits,
        image=prod(image),
        weights=prod(weights),
        joinable=not (is_cut or windows.taps == 1),
        is_plain=not main.reads[0].region[-1].min.same_as(main.iter_vars[-1].var),
    )
