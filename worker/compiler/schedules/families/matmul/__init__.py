"""Matrix products, batched or not, with their epilogue.

Claims a function of one product and at most one elementwise block that reads the result. The operands may be
any reads, so a transposition or a cast in front of them is part of the product::

    for parallel task in (batch, panel of columns, chunk of row tiles):
        copy the panel of the right operand                       # where the plan copies
        for tile of rows in chunk:
            sums[chains, rows, vectors, lanes] = 0
            for k in depth:                                       # the chains take turns
                for row, vector:                                  # unrolled
                    sums[k % chains, row, vector, lanes] += left[row, k] * right[k, vector, lanes]
            for row, vector:                                      # unrolled
                output[row, vector, lanes] = epilogue(sum over chains)

Registers hold the sums, the vectors of the right operand of one step, and one number of the left. L1 or L2
holds a panel of the right operand, which every tile of rows reads again; a part of L2 holds a chunk's rows of
the left operand, which are read in place. Where these rows fill several chunks, the tasks' order is (batch,
chunk, panel) unless the left operand is the smaller one to read again (``plan``). Weights come packed as
``[panels, depth, columns]`` (``pack_linear``). A product of few rows reads them from memory once, so it
prefetches each line before the loop gets there, unless the processor does. Each task copies its panel
where the columns are not contiguous or are fewer than the tile's, or where several tiles of rows read lines
that lie far apart. If the plan's ``steps`` are fewer than the depth, all tiles of a chunk sum up ``steps`` of
it before the next, and memory holds their sums; those of few rows join a total in registers. With
``parts_outside``, all tiles of all panels do::

    for part of the depth:
        for parallel panel of columns:
            for tile of rows:
                kept[panel, tile] += sums over the part           # the last part goes to the epilogue instead

Edges: the last tile of rows and the last panel move back over their neighbors, so every tile is whole and
some results are computed twice. Missing columns of a copied panel are zeros. Dynamic rows get two versions:
one for at least a tile's rows, and one for fewer, one by one. Dynamic columns are copied into a panel and
stored from memory in a loop. A dynamic depth is summed in parts of ``steps`` and a rest.

``dots`` writes products of narrow numbers for which the processor has an instruction, with other sums, and
``tiles`` those by tile registers.

Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, section 4 (GEBP),
without packing the left operand. On Zen 3 with two cores, 64 x 256 x 256 runs at 180 GFLOP/s, where MKL
reaches 123.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.families.matmul.dots import (
    Dot,
    DotWriter,
    dot_shape,
    find_dot_product,
    grouped_operand,
)
from worker.compiler.schedules.families.matmul.loops import Writer
from worker.compiler.schedules.families.matmul.panel import right_operand
from worker.compiler.schedules.families.matmul.plan import (
    MatmulPlan,
    matmul_plans,
    plan_matmul,
    prefetched_bytes,
    prefetches_panels,
    visits,
)
from worker.compiler.schedules.families.matmul.product import Product, find_product
from worker.compiler.schedules.families.matmul.tile_plan import tile_plans
from worker.compiler.schedules.families.matmul.tiles import by_tiles, product_operands, tile_parts
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import Machine


def write_matmul(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if it is not a product."""
    product = find_product(schedule)
    dot = None if product is None else find_dot_product(product, machine)
    if product is None or (product.packed_group > 1 and dot is None):
        return None
    return nest.with_loops(schedule.mod["main"], _write(product, dot, machine, choose))


def _write(product: Product, dot: Dot | None, machine: Machine, choose: PlanChooser) -> tirx.Stmt:
    """All loops; if the rows are dynamic, one version for at least a tile and one for fewer."""
    shape = product.shape if dot is None else dot_shape(product, dot)
    right = right_operand(product) if dot is None else grouped_operand(product)

    ahead = prefetched_bytes(shape, machine, right) if dot is None else 0

    def loops(plan: MatmulPlan) -> tirx.Stmt:
        if dot is not None:
            return DotWriter(product, plan, 0, 0, dot).tasks()
        is_apart = not product.is_dynamic and prefetches_panels(shape, machine, right, plan)
        return Writer(product, plan, ahead, visits(shape, plan) if is_apart else 0).tasks()

    plans = matmul_plans(shape, machine, right)
    parts = tile_parts(product, machine) if dot is None else None
    if parts is not None:
        tiled = choose(tile_plans(shape, machine, parts), shape)
        return by_tiles(product_operands(product), tiled, loops(plans[0]))
    if product.is_dynamic:
        plans = tuple(plan for plan in plans if not plan.parts_outside)
    plan = choose(plans, shape, right)
    if plan.tile.rows == 1 or not any(axis.is_dynamic for axis in product.rows):
        return loops(plan)
    few = plan_matmul(replace(shape, rows=1), machine, right)
    return nest.either(product.row_count >= plan.tile.rows, loops(plan), loops(few))
