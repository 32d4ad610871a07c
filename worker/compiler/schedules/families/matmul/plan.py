"""The cost model of matrix products: ranks register tiles and ways to divide the work.

One step of the depth multiplies ``rows`` numbers of the left operand by ``vectors`` vectors of the right one.
It takes as many cycles as the slowest of::

    rows * vectors / fma_ports                arithmetic
    (rows + vectors) / loads_per_cycle        loads
    fma_latency / chains                      a sum waits for its previous multiply-add
    bytes from L2 / 24                        a row of the panel, if a panel outgrows half of L1, and a line
                                              of each row, if the rows displace each other in L1

Consecutive rows of a tile lie one row of the left operand apart, which counts as ``depth`` elements. If that
is a multiple of a way of L1, such as 4 KiB, the rows share its sets: on Zen 4, whose sets hold eight lines, a
layer of 3,072 inputs runs at 210 GFLOP/s with tiles of up to ten rows and at 156 with fourteen.

The product takes ``tiles * (depth * step + 5 * rows * vectors)`` cycles. The registers must hold
``rows * vectors * chains`` sums, the vectors that several rows share, and one number. ``chains`` sets of sums
hide the latency of multiply-adds where a tile alone is too small; they are added up at the end.

Beyond the caches, the order of the tasks decides what is read again::

    panels outside chunks    the left operand once for each panel, unless half of L2 holds it; weights once
    chunks outside panels    the weights once for each chunk, unless half of L2 holds them; the rest once
    parts of the depth outside panels    both once, and the sums once for each part

Parts are outside if weights are packed, the depth is summed in parts anyway, and L2 holds all rows of a part,
of at least ``_LEAST_STEPS``, but not those of the whole depth beside two panels. Threads must also be able to
share the panels evenly. Otherwise chunks are outside if that reads fewer bytes, and if a chunk has enough
tiles to hide how slowly weights come from memory. A chunk's rows then fill a quarter of L2, beside the
results and the prefetched panels; if half of L2 holds all weights, they fill half of L1 instead, so that a
tile's results soon are whole rows.

An instruction that multiplies groups (``Unit``) takes several steps of the depth, and may take several rows:
its rows are full, its registers hold a group of every row, and it has one chain.

Source: the register and cache blocking of Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, gcd

from worker.compiler.schedules.plans import by_rank, either
from worker.compiler.schedules.processors import (
    CACHE_LINE,
    CYCLES_PER_THREAD,
    LARGE_WEIGHTS,
    Machine,
    least_work,
    threads_pay,
)

_MAX_ROWS = 14
_MAX_VECTORS = 8
_MAX_CHAINS = 8
_RESERVED_REGISTERS = 1
"""Holds the number of the left operand."""

_L2_BYTES_PER_CYCLE = 24
"""Bandwidth of L2, for panels of the right operand that do not fit L1."""

_OVERLAPPING_LINES = 2
"""Lines beyond the associativity of L1 that cost nothing: later loads begin before earlier ones end."""

_TILE_CYCLES = 20
"""The cost of a tile of four vectors besides its multiply-adds: clear, store, compute addresses."""


_DOUBT = 8
"""Within this factor of the threshold, the search measures with and without threads."""

_MIN_TILES_TO_COPY = 4
_MAX_TILES = 20

_MOST_VISITS = 64
"""With more tiles of rows than this, the first tile's wait for a panel no longer counts."""

_CHUNK_PART = 4
"""A chunk fills this part of L2 if chunks are outside panels."""

_PART_OF_L2 = 0.75
"""All rows of a part of the depth fill at most this much of L2 if the parts are outside."""

_FILLED_L2 = 0.875
"""Beyond this part of L2, each panel displaces what the next one reads."""

_LEAST_STEPS = 512
"""With fewer, reading and writing the sums takes longer than reading the left operand again."""

_MANY_PANELS = 8
"""With this many panels per thread, the remainder does not keep the other threads waiting for long."""

_MANY_CHUNKS = 8
"""With this many chunks per thread, it does not matter which thread has the larger ones."""

_LEAST_TILES = 8
"""For fewer tiles of rows, weights come from beyond L2 more slowly than the tiles multiply them."""

_HALVES = (5, 7)
"""How many half vectors a panel may have. Narrower panels cost more per column than they save."""

_STEPS_PER_SUM = 32
_MAX_STEPS = 1024
FEW_ROWS = 4


@dataclass(frozen=True)
class Unit:
    """What one instruction multiplies.

    Attributes:
        rows: rows of the left operand.
        group: steps of the depth.
        bits: the width of the operands' elements.
    """

    rows: int
    group: int
    bits: int


@dataclass(frozen=True)
class MatmulShape:
    """``batches`` products of ``rows`` by ``depth`` and ``depth`` by ``columns``, of ``bits`` bits.

    ``unit`` is set if an instruction multiplies groups of narrower elements.
    """

    rows: int
    depth: int
    columns: int
    bits: int
    batches: int = 1
    unit: Unit | None = None

    @property
    def steps(self) -> int:
        """The multiply-adds of a sum."""
        return self.depth if self.unit is None else ceil(self.depth / self.unit.group)

    @property
    def step_bytes(self) -> int:
        """Bytes of one column of the right operand that one step reads."""
        return (self.bits if self.unit is None else self.unit.group * self.unit.bits) // 8


@dataclass(frozen=True)
class MatmulTile:
    """A register tile: ``chains`` sets of ``rows`` times ``vectors`` vectors of ``lanes`` elements."""

    rows: int
    vectors: int
    lanes: int
    chains: int

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return self.vectors * self.lanes


@dataclass(frozen=True)
class RightOperand:
    """How the right operand lies in memory.

    Attributes:
        columns: width of a panel if the operand is already packed; packed panels are read in place.
        contiguous: whether neighboring columns are adjacent in memory; if not, each task copies its panel.
        far: whether consecutive steps of the depth are far apart in memory, so that a copy that is read
            often pays.
    """

    columns: int | None = None
    contiguous: bool = True
    far: bool = False


IN_PLACE = RightOperand()
"""A row-major matrix."""


@dataclass(frozen=True)
class MatmulPlan:
    """How a product is computed.

    Attributes:
        tile: the register tile.
        steps: the depth to sum before the sums join the total; rounding errors grow with it.
        chunk_tiles: the most tiles of rows that one task computes with the same columns of the right operand.
        parallel: whether to use several threads.
        copies: whether each task copies its columns of the right operand into a panel.
        chunks_outside: whether tasks order chunks outside panels, instead of panels outside chunks.
        parts_outside: whether all tiles sum up ``steps`` of the depth before the next; there is one chunk.
    """

    tile: MatmulTile
    steps: int
    chunk_tiles: int
    parallel: bool
    copies: bool
    chunks_outside: bool
    parts_outside: bool


def plan_matmul(shape: MatmulShape, machine: Machine, right: RightOperand = IN_PLACE) -> MatmulPlan:
    """The plan that the model expects to be fastest.

    Args:
        shape: the product.
        machine: the processor.
        right: how the right operand lies in memory.
    """
    return matmul_plans(shape, machine, right)[0]


@lru_cache(maxsize=1024)
def matmul_plans(
    shape: MatmulShape, machine: Machine, right: RightOperand = IN_PLACE
) -> tuple[MatmulPlan, ...]:
    """The plans worth measuring, the ones that the model expects to be fastest first.

    Args:
        shape: the product.
        machine: the processor.
        right: how the right operand lies in memory.
    """
    possible = dict.fromkeys(_tiles(shape, machine, right.columns))
    tiles = sorted(possible, key=lambda tile: _cost(tile, shape, machine))
    ranked = (
        (rank + own_rank, plan)
        for rank, tile in enumerate(tiles[:_MAX_TILES])
        for own_rank, plan in enumerate(_plans_with(tile, shape, machine, right))
    )
    return tuple(plan for _, plan in sorted(ranked, key=lambda entry: entry[0]))


def prefetched_bytes(shape: MatmulShape, machine: Machine, right: RightOperand) -> int:
    """How far to prefetch packed weights; 0 where they stay in a cache or are read by many rows."""
    weight_bytes = shape.batches * shape.depth * shape.columns * shape.bits // 8
    is_read_once = right.columns is not None and shape.rows <= FEW_ROWS
    return machine.read_ahead_bytes if is_read_once and weight_bytes > machine.l2_bytes else 0


def prefetches_panels(shape: MatmulShape, machine: Machine, right: RightOperand, plan: MatmulPlan) -> bool:
    """Whether tasks ask for the next panel of packed weights while they compute with one.

    Otherwise the first tile of rows waits for memory at each panel. Weights that stay in L2 while one chunk
    comes after another need no prefetch.
    """
    weight_bytes = shape.batches * shape.depth * shape.columns * shape.bits // 8
    stays = plan.chunks_outside and _weights_stay(shape, machine)
    return (
        right.columns is not None
        and shape.rows > FEW_ROWS
        and weight_bytes > LARGE_WEIGHTS * machine.l2_bytes
        and not stays
    )


def visits(shape: MatmulShape, plan: MatmulPlan) -> int:
    """The fewest tiles of rows that a thread computes with a panel before the next one; 0 if too many."""
    tiles = ceil(shape.rows / plan.tile.rows)
    found = tiles // ceil(tiles / plan.chunk_tiles) if plan.chunks_outside else tiles
    return found if found <= min(_MOST_VISITS, shape.steps) else 0


def panels(columns: int, tile: MatmulTile) -> int:
    """The number of tiles in a row of the output; the last one may overlap its neighbor."""
    return ceil(columns / tile.columns)


def _plans_with(
    tile: MatmulTile, shape: MatmulShape, machine: Machine, right: RightOperand
) -> Iterator[MatmulPlan]:
    """The plans with one tile, the model's choice first."""
    cycles, side = _cycles(tile, shape, machine), panels(shape.columns, tile)
    copied = _copies(tile, shape, right)
    outside = not copied[0] and _reads_less_outside(tile, shape, machine)
    parallel = threads_pay(machine.threads, cycles, CYCLES_PER_THREAD)
    doubtful = machine.threads > 1 and _is_near(cycles, least_work(machine.threads, CYCLES_PER_THREAD))
    by_parts = _plan_by_parts(tile, shape, machine, right, parallel)
    gains = not _whole_depth_stays(tile, shape, machine)
    if by_parts is not None and gains:
        yield by_parts
    fitting = _chunk_tiles(tile, shape, machine, parallel, outside)
    combinations = by_rank(
        _chunks(fitting, ceil(shape.rows / tile.rows)),
        copied,
        either(parallel) if doubtful else (parallel,),
        either(outside) if side > 1 else (False,),
    )
    for chunk, copies, at_once, is_outside in combinations:
        if chunk * tile.rows < shape.rows or not is_outside:
            yield MatmulPlan(
                tile, _steps(tile, shape), chunk, at_once, copies, is_outside, parts_outside=False
            )
    if by_parts is not None and not gains:
        yield by_parts


def _plan_by_parts(
    tile: MatmulTile, shape: MatmulShape, machine: Machine, right: RightOperand, parallel: bool
) -> MatmulPlan | None:
    """The plan with the parts of the depth outside; None for other operands, or if threads would idle.

    There is none for a single tile of rows either, since it reads each panel once.
    """
    side = panels(shape.columns, tile)
    is_even = not parallel or side % machine.threads == 0 or side >= _MANY_PANELS * machine.threads
    is_one = shape.batches == 1 and shape.unit is None and right.columns is not None
    if shape.depth <= _MAX_STEPS or shape.rows <= max(FEW_ROWS, tile.rows) or not (is_even and is_one):
        return None
    fitting = int(_PART_OF_L2 * machine.l2_bytes) // (shape.rows * shape.bits // 8)
    parts = ceil(shape.depth / min(fitting, _MAX_STEPS)) if fitting else shape.depth
    steps = ceil(shape.depth / parts / tile.chains) * tile.chains
    if steps < _LEAST_STEPS:
        return None
    tiles = ceil(shape.rows / tile.rows)
    return MatmulPlan(tile, steps, tiles, parallel, copies=False, chunks_outside=False, parts_outside=True)


def _whole_depth_stays(tile: MatmulTile, shape: MatmulShape, machine: Machine) -> bool:
    """Whether L2 holds the left operand with all of its depth, a panel and the next one."""
    left, panel = shape.rows * _row_bytes(shape), shape.steps * shape.step_bytes * tile.columns
    return left < machine.l2_bytes // 2 and left + 2 * panel <= _FILLED_L2 * machine.l2_bytes


def _chunks(fitting: int, tiles: int) -> tuple[int, ...]:
    """The chunk that fits the cache, then a smaller and a larger one if they change the number of chunks."""
    sizes = (fitting, ceil(fitting / 2), min(2 * fitting, tiles))
    return (fitting, *dict.fromkeys(size for size in sizes if ceil(tiles / size) != ceil(tiles / fitting)))


def _copies(tile: MatmulTile, shape: MatmulShape, right: RightOperand) -> tuple[bool, ...]:
    """Whether a task copies its panel; both choices, the better first, if neither is necessary."""
    if right.columns is not None:
        return (False,)
    if shape.columns < tile.columns or not right.contiguous:
        return (True,)
    tiles = ceil(shape.rows / tile.rows)
    return either(right.far and tiles >= _MIN_TILES_TO_COPY) if tiles > 1 else (False,)


def _is_near(number: float, other: float) -> bool:
    return other / _DOUBT <= number <= other * _DOUBT


def _tiles(shape: MatmulShape, machine: Machine, columns: int | None) -> Iterator[MatmulTile]:
    for lanes in _lane_counts(shape, machine, columns):
        yield from _tiles_of(lanes, shape, machine, columns)


def _tiles_of(lanes: int, shape: MatmulShape, machine: Machine, columns: int | None) -> Iterator[MatmulTile]:
    counts = range(1, _MAX_VECTORS + 1) if lanes == machine.lanes(shape.bits) else _HALVES
    widths = counts if columns is None else (max(1, columns // lanes),)
    widest = max(1, ceil(shape.columns / lanes)) if columns is None else _MAX_VECTORS
    for vectors in widths:
        for rows in _row_counts(shape):
            for chains in _chain_counts(rows * vectors, shape, machine):
                tile = MatmulTile(rows, vectors, lanes, chains)
                if vectors <= widest and _registers(tile, shape) <= machine.registers:
                    yield tile
    if columns is not None:
        yield MatmulTile(1, max(1, columns // lanes), lanes, 1)


def _lane_counts(shape: MatmulShape, machine: Machine, columns: int | None) -> tuple[int, ...]:
    """The lanes to try: those of a register, and of half a long one if one row reads the weights.

    Such a product takes as long as its weights take to arrive, and panels of an odd number of half vectors
    read fewer columns twice: on Zen 4, 100 columns take 15.1 µs with two panels of 56 and 16.5 µs with two
    of 64.
    """
    whole = machine.lanes(shape.bits)
    half = max(1, whole // 2)
    if columns is not None:
        return (half if columns % whole and columns % half == 0 else whole,)
    return (whole, half) if machine.has_halves and shape.rows == 1 and shape.unit is None else (whole,)


def _row_counts(shape: MatmulShape) -> Iterator[int]:
    """The rows of a tile: a single one, or those of whole instructions."""
    for rows in range(1, min(shape.rows, _MAX_ROWS) + 1):
        if rows == 1 or shape.unit is None or rows % shape.unit.rows == 0:
            yield rows


def _chain_counts(accumulators: int, shape: MatmulShape, machine: Machine) -> tuple[int, ...]:
    """The numbers of chains to consider; instructions of groups have one."""
    if shape.unit is not None:
        return (1,)
    chains = _chains(accumulators, machine)
    return (chains, 2 * chains)


def _chains(accumulators: int, machine: Machine) -> int:
    """The number of chains that keeps the multiply-add units busy."""
    wanted, chains = machine.fma_latency * machine.fma_ports, 1
    while accumulators * chains < wanted and chains < _MAX_CHAINS:
        chains *= 2
    return chains


def _registers(tile: MatmulTile, shape: MatmulShape) -> int:
    if shape.unit is not None:
        paired = ceil(tile.rows / shape.unit.rows)
        return shape.unit.rows * tile.vectors * (paired + 1) + paired
    shared = tile.vectors if tile.rows > 1 else 0
    return tile.rows * tile.vectors * tile.chains + shared + _RESERVED_REGISTERS


def plan_cycles(plan: MatmulPlan, shape: MatmulShape, machine: Machine) -> float:
    """The cycles of the thread with the most work, by a plan's tile."""
    return _cost(plan.tile, shape, machine)[0] / (machine.threads if plan.parallel else 1)


def _step_cycles(tile: MatmulTile, shape: MatmulShape, machine: Machine) -> float:
    """Cycles of one step of the depth, see above."""
    taken = 1 if shape.unit is None else shape.unit.rows
    arithmetic = ceil(tile.rows / taken) * taken * tile.vectors / machine.fma_ports
    loads = (tile.rows + taken * tile.vectors) / machine.loads_per_cycle
    row_bytes = tile.columns * shape.step_bytes
    near_bytes = row_bytes if row_bytes * shape.steps > machine.l1_bytes // 2 else 0
    if _rows_displace_each_other(tile, shape, machine):
        near_bytes += tile.rows * CACHE_LINE
    return max(arithmetic, loads, machine.fma_latency / tile.chains, near_bytes / _L2_BYTES_PER_CYCLE)


def _rows_displace_each_other(tile: MatmulTile, shape: MatmulShape, machine: Machine) -> bool:
    """Whether more rows of the left operand share a set of L1 than it keeps while a step loads them."""
    way = machine.l1_bytes // machine.l1_ways
    places = way // max(CACHE_LINE, gcd(_row_bytes(shape), way))
    return ceil(tile.rows / places) > machine.l1_ways + _OVERLAPPING_LINES


def _cycles(tile: MatmulTile, shape: MatmulShape, machine: Machine) -> float:
    """Cycles of the whole product on one thread."""
    tiles = shape.batches * ceil(shape.rows / tile.rows) * panels(shape.columns, tile)
    return tiles * (
        shape.steps * _step_cycles(tile, shape, machine) + _TILE_CYCLES * tile.rows * tile.vectors / 4
    )


def _cost(tile: MatmulTile, shape: MatmulShape, machine: Machine) -> tuple[float, int, int]:
    """Cycles, with the imbalance of threads; ties go to the larger tile, then to fewer chains."""
    tasks = shape.batches * ceil(shape.rows / tile.rows) * panels(shape.columns, tile)
    unequal = ceil(tasks / machine.threads) * machine.threads / tasks
    return _cycles(tile, shape, machine) * unequal, -tile.rows * tile.vectors, tile.chains


def _steps(tile: MatmulTile, shape: MatmulShape) -> int:
    """The steps of a part of the depth; with few rows, joining the total more often costs nothing."""
    if shape.rows > FEW_ROWS or shape.unit is not None:
        return min(shape.depth, _MAX_STEPS)
    return min(shape.depth, _STEPS_PER_SUM * tile.chains)


def _row_bytes(shape: MatmulShape) -> int:
    """Bytes of a row of the left operand."""
    return shape.depth * (shape.bits if shape.unit is None else shape.unit.bits) // 8


def _right_bytes(shape: MatmulShape) -> int:
    """Bytes of the right operand of one product."""
    return shape.steps * shape.step_bytes * shape.columns


def _weights_stay(shape: MatmulShape, machine: Machine) -> bool:
    """Whether half of L2 holds the right operand."""
    return _right_bytes(shape) <= machine.l2_bytes // 2


def _reads_less_outside(tile: MatmulTile, shape: MatmulShape, machine: Machine) -> bool:
    """Whether chunks outside panels read fewer bytes from beyond L2 than panels outside chunks."""
    left, right = shape.rows * _row_bytes(shape), _right_bytes(shape)
    chunk, stay = machine.l2_bytes // _CHUNK_PART, _weights_stay(shape, machine)
    is_short = chunk < _LEAST_TILES * tile.rows * _row_bytes(shape)
    if left <= machine.l2_bytes // 2 or (is_short and not stay):
        return False
    outside = left + (right if stay else ceil(left / chunk) * right)
    return outside < panels(shape.columns, tile) * left + right


def _chunk_tiles(
    tile: MatmulTile, shape: MatmulShape, machine: Machine, parallel: bool, outside: bool
) -> int:
    """The tiles whose rows of the left operand fill their part of a cache; fewer if threads would idle."""
    tiles = ceil(shape.rows / tile.rows)
    space = machine.l2_bytes // (_CHUNK_PART if outside else 2)
    if outside and _weights_stay(shape, machine):
        space = machine.l1_bytes // 2
    fitting = max(1, space // max(1, _row_bytes(shape) * tile.rows))
    chunks = ceil(tiles / fitting)
    if parallel:
        side = shape.batches * panels(shape.columns, tile)
        while side * chunks < 4 * machine.threads and (side * chunks) % machine.threads and chunks < tiles:
            chunks += 1
        if outside and chunks < _MANY_CHUNKS * machine.threads:
            chunks = _even(chunks, tiles, side, machine.threads)
    return ceil(tiles / chunks)


def _even(chunks: int, tiles: int, side: int, threads: int) -> int:
    """The given number of chunks, or up to twice as many, so that the busiest thread has the fewest tiles.

    Args:
        chunks: the number of chunks.
        tiles: the tiles of rows in all chunks.
        side: the panels that each chunk is multiplied with.
        threads: each takes the same number of consecutive tasks; the last ones may get fewer.
    """

    def busiest(count: int) -> int:
        def before(task: int) -> int:
            whole, rest = divmod(task, side)
            first, following = whole * tiles // count, (whole + 1) * tiles // count
            return first * side + rest * (following - first)

        tasks = count * side
        each = ceil(tasks / threads)
        ends = [min(each * thread, tasks) for thread in range(threads + 1)]
        return max(before(end) - before(start) for start, end in pairwise(ends))

    counts = {ceil(tiles / ceil(tiles / count)) for count in range(chunks, min(2 * chunks, tiles) + 1)}
    return min(counts, key=lambda count: (busiest(count), count))
