"""Convolutions of plain images of few channels (stems), and windows right after a convolution::

    for parallel task in (image, group of output blocks, band of rows):
        for row in band:
            for tile of columns:                                          # the outer ones: code of their own
                sums[columns, blocks, lanes] = 0
                for tap row inside the image:
                    for channel, tap column:
                        for column inside the image, block:               # unrolled
                            sums[column, block, lanes] += image[pixel] * weights[block, lanes]
                output[block, columns, lanes] = epilogue(sums[columns, blocks, lanes])

If a pool or a depthwise convolution follows, a band has rows of its result. The first convolution, of a plain
image or one in blocks, writes its rows to a ring that holds those of one window::

        for row of the result in band:
            for row of its windows that the ring lacks:
                ring[columns, blocks, lanes] = the tiles above
            for block: output[columns, lanes] = epilogue(windows over the ring)       # ``window_borders``

Registers hold the sums, the weights of a tap and one broadcast pixel. L1 holds the weights of a group of
blocks and the rows of the image under the window, L2 the ring: the convolution's result, the largest image
of many networks, is never in memory. A band's first window computes all of its rows again, so bands are as
long as threads allow.

Edges: as in ``window_borders``, no border is copied, and the last, shorter tile is code of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import CONVOLUTION, DEPTHWISE, GROUP_BLOCKS, POOLING
from worker.compiler.schedules.blocks import (
    Block,
    block_names,
    element_bits,
    is_expensive,
    name_of_family,
    read_block,
    result_at,
)
from worker.compiler.schedules.families.convolution.conv2d import (
    ConvolutionShape,
    ConvolutionTile,
    rank_convolution_tiles,
)
from worker.compiler.schedules.families.convolution.depthwise import choose_band, choose_columns
from worker.compiler.schedules.families.convolution.window_borders import (
    Row,
    RowWriter,
    Side,
    WindowParts,
    bordered_image,
    has_one_dtype,
    sides_of,
    value_inside,
)
from worker.compiler.schedules.families.convolution.winograd_transforms import Vectors
from worker.compiler.schedules.plans import PlanChooser, by_rank
from worker.compiler.schedules.processors import MULTIPLY_ADDS_PER_THREAD, Machine, divisors, threads_pay
from worker.compiler.schedules.reduction import find_epilogue, last_block

_PLAIN = 4
_TAP_AXES = 2
_MAX_OUTER_TILES = 4
_MAX_STATEMENTS = 512
_MAX_TILES = 16
_MOST_REPEATED = 1.1
"""The most work that a thread may have with a pool, relative to an even share without one."""
_DTYPES = frozenset({"float32", "float64"})


@dataclass(frozen=True)
class ChainPlan:
    """How a chain is computed: the register tile, the rows of a task, whether taps of a row are unrolled."""

    blocks: int
    columns: int
    band_rows: int
    unrolls: bool


@dataclass(frozen=True)
class Windowed:
    """The pool after a chain: its windows, and the block that writes their image, if any."""

    parts: WindowParts
    border: Block | None


@dataclass(frozen=True)
class Chain:
    """A function's parts.

    Attributes:
        image: the plain image, without a border.
        surrounded: the buffer that the sums read, with the border if there is one.
        main: the block of the sums.
        last: the elementwise block after it, which writes the result if no pool follows; None if a pool
            reads the sums.
        rows: the convolution's rows.
        columns: its columns.
        windowed: the pool.
    """

    image: Any
    surrounded: Any
    main: Block
    last: Block | None
    rows: Side
    columns: Side
    windowed: Windowed | None

    @property
    def is_plain(self) -> bool:
        """Whether the image is not in blocks."""
        return len(self.image.shape) == _PLAIN

    @property
    def bytes(self) -> int:
        """The size of the convolution's result."""
        return prod(axis.extent for axis in self.main.spatial) * element_bits(self.main) // 8

    @property
    def vectors(self) -> Vectors:
        """The vectors of the sums."""
        axes = self.main.spatial
        return Vectors(axes[-1].extent, str(self.image.dtype), nest.dtype_of(axes[0].var))

    @property
    def written(self) -> Block:
        """The block that writes the function's result."""
        last = self.last if self.windowed is None else self.windowed.parts.last
        assert last is not None
        return last

    @property
    def result(self) -> tuple[int, ...]:
        """Images, blocks, rows and columns of the function's result."""
        return tuple(axis.extent for axis in self.written.spatial[:4])


def write_chain(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a stem, or of a convolution and the windows after it; None for other functions."""
    trial = schedule.copy()
    chain = find_chain(trial)
    plans = () if chain is None else chain_plans(chain, machine)
    if chain is None or not plans:
        return None
    work = chain.main.iterations // chain.vectors.lanes
    is_parallel = threads_pay(machine.threads, work, MULTIPLY_ADDS_PER_THREAD)
    return nest.with_loops(trial.mod["main"], _Writer(chain, choose(plans), is_parallel).loops())


def find_chain(schedule: s_tir.Schedule) -> Chain | None:
    """The parts of a chain, whose last block's result is cached; None for other functions."""
    named = name_of_family(schedule, CONVOLUTION)
    main = None if named is None else read_block(schedule, schedule.get_sblock(named))
    if main is None or not has_one_dtype(main):
        return None
    blocks = main.spatial[1].extent
    if int(main.body.annotations[GROUP_BLOCKS]) != blocks:
        return None
    surrounded = main.body.reads[0].source
    if len(main.reduced) != len(surrounded.shape) - 1 or str(surrounded.dtype) not in _DTYPES:
        return None
    borders = schedule.get_producers(main.handle)
    image = bordered_image(schedule.get(borders[0]), main) if borders else surrounded
    sides = None if image is None or len(borders) > 1 else sides_of(main, image, main.reduced[1:3])
    if sides is None:
        return None
    windows = name_of_family(schedule, POOLING) or name_of_family(schedule, DEPTHWISE)
    chain = Chain(image, surrounded, main, None, *sides, None)
    known = {str(schedule.get(handle).name_hint) for handle in (main.handle, *borders)}
    if windows is None:
        return _with_last(schedule, chain, known) if chain.is_plain else None
    return _with_windows(schedule, chain, schedule.get_sblock(windows), known)


def _with_last(schedule: s_tir.Schedule, chain: Chain, known: set[str]) -> Chain | None:
    epilogue = find_epilogue(schedule, chain.main)
    if set(block_names(schedule)) != known | ({epilogue} if epilogue else set()):
        return None
    main, last = _with_epilogue(schedule, chain.main, epilogue)
    return None if main is None or last is None else replace(chain, main=main, last=last)


def _with_epilogue(
    schedule: s_tir.Schedule, main: Block, epilogue: str | None
) -> tuple[Block | None, Block | None]:
    """A block, and the block that writes its result: the epilogue, else a copy."""
    last = last_block(schedule, main.handle, epilogue)
    return read_block(schedule, main.handle), read_block(schedule, last)


def _with_windows(schedule: s_tir.Schedule, chain: Chain, windows: SBlockRV, known: set[str]) -> Chain | None:
    sliding = read_block(schedule, windows)
    if sliding is None or len(sliding.reduced) != _TAP_AXES or not has_one_dtype(sliding):
        return None
    epilogue = find_epilogue(schedule, chain.main)
    activation = read_block(schedule, schedule.get_sblock(epilogue)) if epilogue else None
    sums = (activation or chain.main).body.writes[0].source
    reader = schedule.get_producers(windows)
    border = None
    if len(reader) == 1 and not schedule.get(reader[0]).writes[0].source.same_as(sums):
        border = read_block(schedule, reader[0])
        inside = None if border is None else value_inside(border.body, sliding)
        if inside is None:
            return None
    finish = find_epilogue(schedule, sliding)
    names = known | {str(sliding.body.name_hint)}
    names |= {name for name in (epilogue, finish) if name}
    names |= {str(border.body.name_hint)} if border else set()
    sides = sides_of(sliding, sums, sliding.reduced)
    if set(block_names(schedule)) != names or sides is None:
        return None
    read = (border.body.writes[0].source) if border else sums
    main, last = _with_epilogue(schedule, sliding, finish)
    if main is None or last is None:
        return None
    parts = WindowParts(read, lambda *place: read[place], main, last, *sides)
    return replace(chain, last=activation, windowed=Windowed(parts, border))


def chain_plans(chain: Chain, machine: Machine) -> tuple[ChainPlan, ...]:
    """All plans, the most promising first; none if windows should stay apart."""
    batch, blocks, rows, columns, _ = (axis.extent for axis in chain.main.spatial)
    shape = ConvolutionShape(
        batch=batch,
        groups=1,
        blocks=blocks,
        rows=rows,
        columns=columns,
        taps=prod(axis.extent for axis in chain.main.reduced),
        contiguous=False,
        bits=element_bits(chain.main),
        joinable=False,
        is_plain=chain.is_plain,
    )
    unrolled = chain.columns.taps if chain.is_plain else chain.vectors.lanes
    tiles = [
        (tile.blocks, tile.columns)
        for tile in rank_convolution_tiles(shape, machine)
        if tile.parts == 1 and _fits(chain, tile, machine)
    ]
    return tuple(
        ChainPlan(high, wide, _band(chain, blocks // high, machine), unrolls)
        for (high, wide), unrolls in by_rank(tiles[:_MAX_TILES], (False, True))
        if not unrolls or high * wide * unrolled <= _MAX_STATEMENTS
    )


def _fits(chain: Chain, tile: ConvolutionTile, machine: Machine) -> bool:
    """Whether a tile's code is short, and windows gain: the image before them would leave half of L2, their
    ring does not, and bands repeat little work.
    """
    if sum(chain.columns.outer_tiles(tile.columns)) > _MAX_OUTER_TILES:
        return False
    if chain.windowed is None:
        return True
    if not chain.is_plain and chain.bytes <= machine.l2_bytes // 2:
        return False
    batch, blocks = chain.result[:2]
    side, groups = chain.windowed.parts.rows, blocks // tile.blocks
    if side.reach >= side.size:
        return False
    ring = side.reach * chain.columns.output * tile.blocks * machine.vector_bits // 8
    repeated = _rows_of_thread(chain, _band(chain, groups, machine), groups, machine)
    alone = batch * groups * side.size / machine.threads
    return ring <= machine.l2_bytes // 2 and repeated <= _MOST_REPEATED * alone


def _band(chain: Chain, groups: int, machine: Machine) -> int:
    """The rows of a task: with a pool, as many as leave all threads the least work."""
    batch, _, rows, _ = chain.result
    if chain.windowed is None:
        return choose_band(rows, batch * groups, machine.threads)
    return min(reversed(divisors(rows, rows)), key=lambda band: _rows_of_thread(chain, band, groups, machine))


def _rows_of_thread(chain: Chain, band: int, groups: int, machine: Machine) -> int:
    """The rows of the convolution that the thread with the most work computes for a pool."""
    assert chain.windowed is not None
    batch, _, rows, _ = chain.result
    side = chain.windowed.parts.rows
    tasks = ceil(batch * groups * (rows // band) / machine.threads)
    return tasks * ((band - 1) * min(side.stride, side.reach) + side.reach)


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of one chain."""

    chain: Chain
    plan: ChainPlan
    is_parallel: bool

    def loops(self) -> tirx.Stmt:
        """All loops."""
        plan, index = self.plan, self.chain.vectors.index
        batch, blocks, rows, _ = self.chain.result
        groups, bands = blocks // plan.blocks, rows // plan.band_rows

        def task(number: Any) -> tirx.Stmt:
            places = (
                (number // (groups * bands), "batch"),
                (number // bands % groups * plan.blocks, "block"),
                (number % bands * plan.band_rows, "first"),
            )
            return nest.all_named(places, lambda *place: self._band(Row(*place)))

        return nest.tasks(batch * groups * bands, task, index, parallel=self.is_parallel)

    def _band(self, place: Row) -> tirx.Stmt:
        plan, vectors = self.plan, self.chain.vectors
        windowed = self.chain.windowed
        if windowed is None:
            return nest.serial(
                plan.band_rows,
                lambda row: self._row(replace(place, row=place.row + row), self._store_result),
                vectors.index,
            )
        side, columns = windowed.parts.rows, self.chain.columns.output
        ring = nest.workspace((side.reach, columns, plan.blocks, vectors.lanes), vectors.dtype, "ring")

        def pool_row(number: Any) -> tirx.Stmt:
            row = place.row + number
            first = row * side.stride - side.before

            def fill(offset: Any) -> tirx.Stmt:
                inside = [first + offset >= 0, first + offset < side.size]
                if plan.band_rows > 1 and side.reach > side.stride:
                    inside.append(tirx.any(number < 1, offset >= side.reach - side.stride))
                computed = self._row(replace(place, row=first + offset), self._keeping(ring))
                return tirx.IfThenElse(tirx.all(*inside), computed, None)

            return nest.sequence(
                nest.serial(side.reach, fill, vectors.index),
                nest.serial(plan.blocks, lambda block: self._pool(ring, place, block, row), vectors.index),
            )

        return nest.sequence(nest.declare(ring), nest.serial(plan.band_rows, pool_row, vectors.index))

    def _pool(self, ring: Any, place: Row, block: Any, row: Any) -> tirx.Stmt:
        """Compute one row of the pool's block from the ring."""
        assert self.chain.windowed is not None
        parts = self.chain.windowed.parts

        def read(_batch: Any, _block: Any, y: Any, x: Any, lane: Any) -> Any:
            return ring[y % parts.rows.reach, x, block, lane]

        width = choose_columns(parts.columns.output, parts.columns.taps)
        writer = RowWriter(replace(parts, read=read), width, unrolls=False)
        return writer.write(Row(place.batch, place.block + block, row))

    def _row(self, place: Row, store: Callable[..., tirx.Stmt]) -> tirx.Stmt:
        """Compute one row of the convolution."""
        index = self.chain.vectors.index
        return self.chain.columns.each_tile(
            self.plan.columns, lambda first, width: self._tile(place, first, width, store), index
        )

    def _tile(self, place: Row, first: Any, width: int, store: Callable[..., tirx.Stmt]) -> tirx.Stmt:
        vectors, rows, blocks = self.chain.vectors, self.chain.rows, self.plan.blocks
        channels = self.chain.main.reduced[0].extent
        sums = nest.registers((width, blocks, vectors.lanes), vectors.dtype, "sums")
        zero = nest.constant(0, vectors.dtype)

        def each(statement: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
            return nest.sequence(
                *(
                    statement(vectors.constant(x), vectors.constant(block))
                    for block in range(blocks)
                    for x in range(width)
                )
            )

        def of_row(tap: Any) -> tirx.Stmt:
            y = rows.pixel(place.row, tap)
            added = nest.serial(
                channels,
                lambda channel: self._add(sums, place, (first, width), (channel, tap)),
                vectors.index,
            )
            if rows.is_inside(0, rows.output):
                return added
            return tirx.IfThenElse(tirx.all(y >= 0, y < rows.size), added, None)

        return nest.sequence(
            nest.declare(sums),
            each(lambda x, block: vectors.store((sums, (x, block)), lambda _: zero)),
            nest.serial(rows.taps, of_row, vectors.index),
            self._finish(sums, place, (first, width), store),
        )

    def _add(self, sums: Any, place: Row, columns: tuple[Any, int], tap: tuple[Any, Any]) -> tirx.Stmt:
        """Add the products of a channel, or of a block of channels, under one row of taps."""
        vectors, side, chain = self.chain.vectors, self.chain.columns, self.chain
        (first, width), (channel, tap_row) = columns, tap
        y = chain.rows.pixel(place.row, tap_row)
        summed, body = chain.main.body.writes[0].source, chain.main.body.body.value

        def add(x: int, block: int, column: Any, within: tuple[Any, ...]) -> tirx.Stmt:
            def lane(lane: Any) -> tirx.Stmt:
                at = (place.batch, place.block + block, place.row, first + x, lane)
                own = {axis.var: index for axis, index in zip(chain.main.spatial, at, strict=True)}
                taps = (channel, tap_row, column, *within)
                own |= {axis.var: index for axis, index in zip(chain.main.reduced, taps, strict=True)}
                pixel = chain.image[(place.batch, channel, y, side.pixel(first + x, column), *within)]
                loaded = nest.replace_loads(body, chain.surrounded, nest.always(pixel))
                added = nest.replace_loads(loaded, summed, nest.always(sums[x, block, lane]))
                return nest.store(
                    sums, nest.substitute(added, own), vectors.constant(x), vectors.constant(block), lane
                )

            return vectors.each(lane)

        def of_column(column: Any) -> tirx.Stmt:
            is_number = isinstance(column, int)
            read = [x for x in range(width) if not (is_number and side.is_skipped(first + x, column))]
            tap_column = vectors.constant(column) if is_number else column

            def of_lane(*within: Any) -> tirx.Stmt:
                return nest.sequence(
                    *(add(x, block, tap_column, within) for x in read for block in range(self.plan.blocks))
                )

            if not read:
                return tirx.Evaluate(vectors.constant(0))
            if chain.is_plain:
                return of_lane()
            loop = nest.unrolled if self.plan.unrolls else nest.serial
            return loop(chain.main.reduced[-1].extent, of_lane, vectors.index)

        if isinstance(first, int) or (self.plan.unrolls and chain.is_plain):
            return nest.sequence(*(of_column(column) for column in range(side.taps)))
        return nest.serial(side.taps, of_column, vectors.index)

    def _finish(
        self, sums: Any, place: Row, columns: tuple[Any, int], store: Callable[..., tirx.Stmt]
    ) -> tirx.Stmt:
        """Apply the epilogue and store: unrolled, or in a loop if its code is long."""
        vectors, blocks, (first, width) = self.chain.vectors, self.plan.blocks, columns

        def result(source: Any, x: Any, block: Any) -> tirx.Stmt:
            return vectors.each(lambda lane: store(place, first + x, block, lane, source[x, block, lane]))

        if not self._is_long():
            return nest.sequence(
                *(
                    result(sums, vectors.constant(x), vectors.constant(block))
                    for block in range(blocks)
                    for x in range(width)
                )
            )
        kept = nest.registers((width, blocks, vectors.lanes), vectors.dtype, "kept")
        copies = [
            vectors.store(
                (kept, (vectors.constant(x), vectors.constant(block))),
                lambda lane, x=x, block=block: sums[x, block, lane],  # type: ignore[misc]
            )
            for block in range(blocks)
            for x in range(width)
        ]
        loops = nest.serial(
            blocks,
            lambda block: nest.serial(width, lambda x: result(kept, x, block), vectors.index),
            vectors.index,
        )
        return nest.sequence(nest.declare(kept), *copies, loops)

    def _is_long(self) -> bool:
        if self.chain.last is not None:
            return is_expensive(self.chain.last.body)
        return False

    def _store_result(self, place: Row, column: Any, block: Any, lane: Any, value: Any) -> tirx.Stmt:
        at = (place.batch, place.block + block, place.row, column, lane)
        assert self.chain.last is not None
        return result_at(self.chain.main, self.chain.last, at, value)

    def _keeping(self, ring: Any) -> Callable[..., tirx.Stmt]:
        """Store what the pool reads of a sum in the ring."""
        windowed, chain = self.chain.windowed, self.chain
        assert windowed is not None

        def store(place: Row, column: Any, block: Any, lane: Any, value: Any) -> tirx.Stmt:
            at = (place.batch, place.block + block, place.row, column, lane)
            source = chain.main.body.writes[0].source
            if chain.last is not None:
                value = _computed(chain.last, chain.last.body.body.value, at, source, value)
                source = chain.last.body.writes[0].source
            if windowed.border is not None:
                inside = value_inside(windowed.border.body, windowed.parts.main)
                before = (0, 0, windowed.parts.rows.before, windowed.parts.columns.before, 0)
                shifted = tuple(index + moved for index, moved in zip(at, before, strict=True))
                value = _computed(windowed.border, inside, shifted, source, value)
            return nest.store(ring, value, place.row % windowed.parts.rows.reach, column, block, lane)

        return store


def _computed(block: Block, expression: Any, place: tuple[Any, ...], source: Any, value: Any) -> Any:
    """An expression of a block at a place, with a value for what it reads of a buffer."""
    own = {axis.var: index for axis, index in zip(block.spatial, place, strict=True)}
    return nest.replace_loads(nest.substitute(expression, own), source, nest.always(value))
