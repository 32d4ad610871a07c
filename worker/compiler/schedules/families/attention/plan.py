"""The cost model of attention: which register tiles to use, how many keys a window and a task get.

A tile of scores is ``keys`` by ``vectors`` vectors of queries; each of the ``depth`` steps is one
multiply-add per vector. A tile of the result is ``rows`` queries by ``columns`` vectors of features; each
key is one multiply-add per vector. For a group of queries the model adds up::

    scores    tiles of keys * (depth * step + 10)
    powers    keys * vectors * 14
    result    tiles of the result * (keys * max(step, L2 bandwidth) + 10)

where a ``step`` is the slowest of arithmetic, loads and latency, as in ``families.matmul.plan``. The tiles
with the fewest cycles win.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from worker.compiler.schedules.processors import CYCLES_PER_THREAD, Machine, threads_pay

_LOADS_PER_CYCLE = 2
_RESERVED_REGISTERS = 1
"""Holds the number that a row multiplies by."""

_MAX_KEYS = 12
_MAX_VECTORS = 4
_MAX_COLUMNS = 8
_TILE_CYCLES = 10
_EXP_CYCLES = 14
"""The cost of a vector of scores between the products: scale, maximum, exponential, sum."""

_MIN_QUERIES = 4
"""With fewer queries, each is a group of its own, with the keys in the lanes."""

_ROW_KEYS = 8
_MAX_GROUPS = 8
_TASKS_PER_THREAD = 4
_MAX_WHOLE = 256
_MIN_WINDOW = 32
_GUESSED_SIZE = 256
"""The number of queries, or keys, to plan for if it is dynamic."""

_L2_SHARE = 8
_L2_BYTES_PER_CYCLE = 24


@dataclass(frozen=True)
class AttentionShape:
    """``batches`` times ``queries`` by ``keys`` scores of ``depth`` products, ``width`` results per query.

    If the number of queries or keys is known only at run time, the value here is a guess.
    """

    batches: int
    queries: int
    keys: int
    depth: int
    width: int
    bits: int
    dynamic_queries: bool = False
    dynamic_keys: bool = False


@dataclass(frozen=True)
class AttentionTile:
    """The register tiles of scores and of the result.

    Attributes:
        lanes: queries in a vector; 1 if each query is a group of its own.
        vectors: vectors of queries.
        keys: keys of a tile of scores.
        rows: queries of a tile of the result; a divisor of ``queries``.
        columns: vectors of a tile of the result.
        column_lanes: elements of such a vector.
    """

    lanes: int
    vectors: int
    keys: int
    rows: int
    columns: int
    column_lanes: int

    @property
    def queries(self) -> int:
        """The queries of a group."""
        return self.lanes * self.vectors

    @property
    def width(self) -> int:
        """Elements of a tile's row of the result."""
        return self.columns * self.column_lanes


@dataclass(frozen=True)
class AttentionPlan:
    """How attention is computed.

    Attributes:
        tile: the register tiles.
        window: keys of a window; if the number of keys is dynamic, the last window also takes the rest.
        groups: the most groups of queries of a task; each window serves them all, one after another.
        parallel: whether to use several threads.
    """

    tile: AttentionTile
    window: int
    groups: int
    parallel: bool

    @property
    def needs(self) -> tuple[int, int]:
        """The fewest queries and keys that the plan can compute."""
        return self.tile.queries, self.tile.keys


def plan_attention(shape: AttentionShape, machine: Machine) -> AttentionPlan:
    """The plan that the model expects to be fastest."""
    tile = min(_tiles(shape, machine), key=lambda tile: _cycles(tile, shape, machine))
    window = _limit(shape, machine) if shape.dynamic_keys else _window(tile, shape, machine)
    groups = ceil(shape.queries / tile.queries)
    parallel = threads_pay(machine.threads, _cycles(tile, shape, machine), CYCLES_PER_THREAD)
    return AttentionPlan(tile, window, _groups(groups, shape, machine, parallel), parallel)


def attention_versions(shape: AttentionShape, machine: Machine) -> tuple[AttentionPlan, ...]:
    """The plans to choose among at run time: the first whose ``needs`` are met computes the function.

    Known sizes need one plan. Dynamic queries get one plan for many and one for single queries; dynamic keys
    get one more for single keys. A plan between these would cost more compile time than it saves.
    """
    many = replace(
        shape,
        queries=_GUESSED_SIZE if shape.dynamic_queries else shape.queries,
        keys=_GUESSED_SIZE if shape.dynamic_keys else shape.keys,
    )
    sizes = [(many.queries, many.keys)]
    if shape.dynamic_queries:
        sizes.append((1, many.keys))
    if shape.dynamic_keys:
        sizes.append((1, 1))
    plans = (plan_attention(replace(many, queries=queries, keys=keys), machine) for queries, keys in sizes)
    return tuple({plan.needs: plan for plan in plans}.values())


def _tiles(shape: AttentionShape, machine: Machine) -> Iterator[AttentionTile]:
    full = machine.lanes(shape.bits)
    column_lanes = _power_within(min(full, shape.width))
    if shape.queries < _MIN_QUERIES:
        for columns in range(1, min(_MAX_COLUMNS, shape.width // column_lanes) + 1):
            yield AttentionTile(1, 1, min(_ROW_KEYS, shape.keys), 1, columns, column_lanes)
        return
    lanes = _power_within(min(full, shape.queries))
    for vectors in range(1, min(_MAX_VECTORS, shape.queries // lanes) + 1):
        sides = [keys for keys in range(1, _MAX_KEYS + 1) if _fits(keys, vectors, machine)]
        keys = max(sides, key=lambda keys: _use(keys, vectors, shape, machine))
        for rows in (number for number in range(1, 13) if lanes * vectors % number == 0):
            for columns in range(1, min(_MAX_COLUMNS, shape.width // column_lanes) + 1):
                if _fits(rows, columns, machine):
                    yield AttentionTile(lanes, vectors, min(keys, shape.keys), rows, columns, column_lanes)


def _power_within(limit: int) -> int:
    """The greatest power of two up to a limit."""
    return 1 << (limit.bit_length() - 1)


def _fits(rows: int, vectors: int, machine: Machine) -> bool:
    """Whether a tile, the vectors that its rows share and one factor fit the registers."""
    return rows * vectors + vectors + _RESERVED_REGISTERS <= machine.registers


def _use(keys: int, vectors: int, shape: AttentionShape, machine: Machine) -> tuple[float, int]:
    """Scores per cycle, with the overlap of the last tile; ties go to more keys."""
    cycles = ceil(shape.keys / keys) * (_step(keys, vectors, machine) * shape.depth + _TILE_CYCLES)
    return vectors / cycles, keys


def _step(rows: int, vectors: int, machine: Machine) -> float:
    return max(
        rows * vectors / machine.fma_ports,
        (rows + vectors) / _LOADS_PER_CYCLE,
        machine.fma_latency,
    )


def _cycles(tile: AttentionTile, shape: AttentionShape, machine: Machine) -> float:
    """Cycles of the whole function on one thread."""
    groups = shape.batches * ceil(shape.queries / tile.queries)
    of_scores = _step(tile.keys, tile.vectors, machine) * shape.depth + _TILE_CYCLES
    scores = ceil(shape.keys / tile.keys) * of_scores
    powers = shape.keys * tile.vectors * _EXP_CYCLES
    tiles = tile.queries // tile.rows * ceil(shape.width / tile.width)
    # Each tile reads the values of a window from L2.
    far = tile.width * shape.bits / 8 / _L2_BYTES_PER_CYCLE
    result = tiles * (max(far, _step(tile.rows, tile.columns, machine)) * shape.keys + _TILE_CYCLES)
    return groups * (scores + powers + result)


def _window(tile: AttentionTile, shape: AttentionShape, machine: Machine) -> int:
    """All keys if they are few, else a part whose keys and values fill a fraction of L2.

    The last window has at least a tile's keys.
    """
    if shape.keys <= _MAX_WHOLE:
        return shape.keys
    parts = ceil(shape.keys / _limit(shape, machine))
    window = ceil(shape.keys / parts)
    while 0 < shape.keys % window < tile.keys:
        window += 1
    return window


def _limit(shape: AttentionShape, machine: Machine) -> int:
    """The most keys of a window."""
    bytes_per_key = (shape.depth + shape.width) * shape.bits // 8
    return min(_MAX_WHOLE, max(_MIN_WINDOW, machine.l2_bytes // _L2_SHARE // bytes_per_key))


def _groups(groups: int, shape: AttentionShape, machine: Machine, parallel: bool) -> int:
    """The most groups of a task: as many as leave the busiest thread the fewest groups.

    Of these, the most that leave each thread four tasks, since users may run more threads.
    """
    threads = machine.threads if parallel else 1

    def merit(most: int) -> tuple[int, bool, int]:
        chunks = ceil(groups / most)
        tasks = shape.batches * chunks
        busiest = ceil(ceil(tasks / threads) * groups / chunks)
        return busiest, parallel and tasks < _TASKS_PER_THREAD * threads, -most

    most = min(range(1, min(groups, _MAX_GROUPS) + 1), key=merit)
    return ceil(groups / ceil(groups / most))
