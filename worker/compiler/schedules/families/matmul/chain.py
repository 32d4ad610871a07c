"""Two products, one right after the other, as in the feed-forward layers of transformers::

    for parallel task in chunks of rows:
        for panel of hidden columns, tile of rows in chunk:
            hidden[rows, columns] = epilogue(left * first weights)        # the tiles of ``loops``
        for panel of columns, tile of rows in chunk:
            output[rows, columns] = epilogue(hidden * second weights)

L2 holds a chunk's rows of the hidden matrix, which many models make four times as wide as their input: it is
never in memory. Each task reads all weights, so chains whose weights outgrow L2 are left as two
functions, as are those whose hidden matrix is not much larger than L2, and those of two products that both
use tile registers.

Edges: the last chunk moves back over its neighbor, and the last tile of a chunk as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import (
    Block,
    Places,
    are_axes,
    element_bits,
    read_blocks,
    same_sizes,
    split_place,
)
from worker.compiler.schedules.families.matmul.dots import find_dot_product
from worker.compiler.schedules.families.matmul.loops import Element, Origin, Writer
from worker.compiler.schedules.families.matmul.panel import right_operand
from worker.compiler.schedules.families.matmul.plan import MatmulPlan, plan_matmul
from worker.compiler.schedules.families.matmul.product import Product, read_product
from worker.compiler.schedules.families.matmul.tiles import tile_parts
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import CYCLES_PER_THREAD, Machine, threads_pay

_HIDDEN_SHARE = 0.05
"""The share of L2 that a chunk of the hidden matrix fills. L1 then holds the rows of the left factor."""
_LEAST_HIDDEN = 2
"""A hidden matrix smaller than this many times L2 is as fast in memory."""
_MOST_WEIGHTS = 1.0
"""Weights of up to this many times L2 are read again by each task."""


@dataclass(frozen=True)
class ProductChainPlan:
    """How a chain is computed: the rows of a task, and whether there are several threads."""

    chunk_rows: int
    parallel: bool


class ProductChain(NamedTuple):
    """Two products, of which the second alone reads the first's result, the hidden matrix."""

    first: Product
    second: Product

    @property
    def hidden_row_bytes(self) -> int:
        """Bytes of a row of the hidden matrix."""
        return self.first.shape.columns * element_bits(self.first.block) // 8

    @property
    def weight_bytes(self) -> int:
        """Bytes of both weights."""
        return sum(each.shape.depth * each.shape.columns * each.shape.bits // 8 for each in self)


def write_product_chain(
    schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser
) -> tirx.PrimFunc | None:
    """Write the loops of two products; None for other functions."""
    chain = find_product_chain(schedule, machine)
    plans = () if chain is None else product_chain_plans(chain, machine)
    if chain is None or not plans:
        return None
    return nest.with_loops(schedule.mod["main"], _tasks(chain, choose(plans), machine))


def find_product_chain(schedule: s_tir.Schedule, machine: Machine) -> ProductChain | None:
    """The products of a function that has two, the second of the first's result; None for other functions."""
    products = [_product(blocks) for blocks in _groups(read_blocks(schedule))]
    if len(products) != 2 or products[0] is None or products[1] is None:
        return None
    chain = ProductChain(products[0], products[1])
    is_chain = all(_is_plain(each, machine) for each in chain) and _reads_only(chain.second, chain.first)
    return chain if is_chain else None


def product_chain_plans(chain: ProductChain, machine: Machine) -> tuple[ProductChainPlan, ...]:
    """The plans worth measuring, best first; none if two functions are expected to be as fast."""
    rows = chain.first.shape.rows
    has_cached_weights = chain.weight_bytes <= _MOST_WEIGHTS * machine.l2_bytes
    if all(tile_parts(each, machine) is not None for each in chain):
        return ()
    if not has_cached_weights or rows * chain.hidden_row_bytes <= _LEAST_HIDDEN * machine.l2_bytes:
        return ()
    multiply_adds = rows * sum(each.shape.depth * each.shape.columns for each in chain)
    lanes = machine.lanes(chain.first.shape.bits)
    parallel = threads_pay(machine.threads, multiply_adds / lanes / machine.fma_ports, CYCLES_PER_THREAD)
    tile = plan_matmul(chain.first.shape, machine, right_operand(chain.first)).tile.rows
    fitting = max(tile, int(_HIDDEN_SHARE * machine.l2_bytes) // chain.hidden_row_bytes)
    sizes = dict.fromkeys(
        _chunk(rows, most, tile, machine.threads) for most in (fitting, max(tile, fitting // 2))
    )
    return tuple(ProductChainPlan(size, parallel) for size in sizes)


def _chunk(rows: int, most: int, tile: int, threads: int) -> int:
    """The rows of a chunk: at most about ``most``, in whole tiles, with equally many chunks per thread."""
    chunks = ceil(ceil(rows / most) / threads) * threads
    return min(rows, ceil(ceil(rows / chunks) / tile) * tile)


def _groups(blocks: tuple[Block, ...]) -> list[list[Block]]:
    """Each block that reduces, with the elementwise blocks that follow it."""
    groups: list[list[Block]] = []
    for block in blocks:
        if block.reduced or not groups:
            groups.append([])
        groups[-1].append(block)
    return groups


def _product(blocks: list[Block]) -> Product | None:
    block, *others = blocks
    return read_product(block, *others) if len(others) < 2 else None


def _is_plain(product: Product, machine: Machine) -> bool:
    """Whether it multiplies rows by packed weights in plain vectors."""
    return (
        product.packed is not None
        and product.packed_group == 1
        and not product.batch
        and bool(product.rows)
        and find_dot_product(product, machine) is None
    )


def _reads_only(second: Product, first: Product) -> bool:
    """Whether a product reads another's result in order, in its left factor and nowhere else."""
    axes = (first.block if first.epilogue is None else first.epilogue).spatial
    elsewhere = (second.right, *(() if second.epilogue is None else (second.stored.value,)))
    loads = _loads(second.left, first.written)
    return (
        are_axes(first.stored.indices, axes)
        and bool(loads)
        and same_sizes(second.rows, axes[:-1])
        and all(are_axes(load.indices, (*second.rows, second.depth)) for load in loads)
        and not any(_loads(each, first.written) for each in elsewhere)
    )


def _loads(expression: Any, buffer: Any) -> list[Any]:
    return [load for load in nest.loads_of(expression) if load.source.same_as(buffer)]


def _tasks(chain: ProductChain, plan: ProductChainPlan, machine: Machine) -> tirx.Stmt:
    rows, size = chain.first.shape.rows, plan.chunk_rows
    index = chain.first.index_dtype
    hidden_shape = (size, chain.first.shape.columns)

    def chunk(first_row: Any) -> tirx.Stmt:
        hidden = nest.workspace(hidden_shape, nest.dtype_of(chain.second.left), "hidden")
        shared = hidden, first_row
        first = _IntoHidden(chain.first, _plan(chain.first, size, machine), 0, 0, *shared, chain.second)
        second = _FromHidden(chain.second, _plan(chain.second, size, machine), 0, 0, *shared)
        return nest.sequence(nest.declare(hidden), first.chunk(), second.chunk())

    def task(number: Any) -> tirx.Stmt:
        return nest.named(tirx.Min(number * size, tirx.IntImm(index, rows - size)), "first", chunk)

    return nest.tasks(nest.ceil_div(rows, size), task, index, parallel=plan.parallel)


def _plan(product: Product, rows: int, machine: Machine) -> MatmulPlan:
    return plan_matmul(replace(product.shape, rows=rows), machine, right_operand(product))


@dataclass(frozen=True)
class _ChunkWriter(Writer):
    """Writes one product of a chunk. The row of an ``Origin`` counts from the chunk's first.

    Attributes:
        hidden: the chunk's rows of the hidden matrix.
        first_row: the chunk's first row.
    """

    hidden: Any
    first_row: Any

    def chunk(self) -> tirx.Stmt:
        """All tiles of the chunk."""
        rows, columns, tile = int(self.hidden.shape[0]), self.product.shape.columns, self.plan.tile
        tiles = ceil(rows / tile.rows)

        def of_panel(panel: Any) -> tirx.Stmt:
            column = self._clamped(panel, tile.columns, columns)

            def of_rows(tile_at: Callable[[Origin], tirx.Stmt]) -> tirx.Stmt:
                def of_row(number: Any) -> tirx.Stmt:
                    row = self._clamped(number, tile.rows, rows)
                    return tile_at(Origin(row, column, panel, {}, None, 0, number))

                return nest.serial(tiles, of_row, self._index)

            return self._all_depth(of_rows, tiles)

        return nest.serial(ceil(columns / tile.columns), of_panel, self._index)

    def _rows(self, row: Any) -> Places:
        return split_place(self.first_row + row, self.product.rows)


@dataclass(frozen=True)
class _IntoHidden(_ChunkWriter):
    """Writes the first product. The hidden matrix has the left factor of the ``second``."""

    second: Product

    def _element(self, value: Element, origin: Origin) -> Element:
        lanes = self.plan.tile.lanes

        def element(r: Any, v: Any, lane: Any) -> tirx.Stmt:
            row, column = origin.row + r, origin.column + v * lanes + lane
            computed = self.product.computed(
                value(r, v, lane), {**self._rows(row), self.product.column.var: column}
            )
            read_at = {**split_place(self.first_row + row, self.second.rows), self.second.depth.var: column}
            factor = nest.substitute(self.second.left, read_at)
            factor = nest.replace_loads(factor, self.product.written, lambda _: computed)
            return nest.store(self.hidden, factor, row, column)

        return element


class _FromHidden(_ChunkWriter):
    """Writes the second product, whose left factor is the hidden matrix."""

    def _left(self, origin: Origin) -> Callable[[Any, Any], Any]:
        return lambda step, r: self.hidden[origin.row + r, step]
