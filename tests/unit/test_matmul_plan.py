from dataclasses import replace
from math import ceil

import pytest

from worker.compiler.schedules import nest
from worker.compiler.schedules.families.matmul.plan import (
    MatmulPlan,
    MatmulShape,
    MatmulTile,
    RightOperand,
    matmul_plans,
    panels,
    plan_matmul,
    prefetched_bytes,
    prefetches_panels,
    visits,
)
from worker.compiler.schedules.processors import Machine

AVX2 = Machine(vector_bits=256, registers=16, threads=2)
AVX512 = Machine(vector_bits=512, registers=32, threads=2, has_halves=True)
SSE = Machine(vector_bits=128, registers=16, threads=2)
NEON = Machine(vector_bits=128, registers=32, threads=4)
MACHINES = {"avx2": AVX2, "avx512": AVX512, "sse": SSE, "neon": NEON}

SHAPES = [
    (rows, depth, columns, bits)
    for rows in (1, 2, 7, 16, 64, 197)
    for depth in (1, 100, 784, 4096)
    for columns in (1, 10, 13, 128, 1000)
    for bits in (32, 64)
]


def in_registers(tile: MatmulTile) -> int:
    shared = tile.vectors if tile.rows > 1 else 0
    return tile.rows * tile.vectors * tile.chains + shared + 1


@pytest.mark.parametrize("name", MACHINES)
def test_a_tile_fits_the_registers_and_the_rows(name: str) -> None:
    machine = MACHINES[name]
    for rows, depth, columns, bits in SHAPES:
        tile = plan_matmul(MatmulShape(rows, depth, columns, bits), machine).tile
        assert in_registers(tile) <= machine.registers
        assert tile.rows <= rows
        may_be_half = machine.has_halves and rows == 1
        assert tile.lanes == machine.lanes(bits) or (may_be_half and tile.lanes * 2 == machine.lanes(bits))


@pytest.mark.parametrize("name", MACHINES)
def test_every_row_belongs_to_a_chunk(name: str) -> None:
    for rows, depth, columns, bits in SHAPES:
        plan = plan_matmul(MatmulShape(rows, depth, columns, bits), MACHINES[name])
        tiles = -(-rows // plan.tile.rows)
        chunks = -(-tiles // plan.chunk_tiles)
        assert 1 <= plan.chunk_tiles <= tiles
        assert chunks * plan.chunk_tiles >= tiles


@pytest.mark.parametrize(
    ("machine", "rows", "least_multiply_adds"),
    [(AVX2, 64, 8), (AVX512, 64, 8), (AVX512, 512, 12), (SSE, 64, 8)],
)
def test_a_large_product_keeps_the_units_busy(machine: Machine, rows: int, least_multiply_adds: int) -> None:
    tile = plan_matmul(MatmulShape(rows, 256, 1024, 32), machine).tile
    assert tile.rows * tile.vectors * tile.chains >= least_multiply_adds


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_one_row_is_summed_up_in_several_short_chains(machine: Machine) -> None:
    plan = plan_matmul(MatmulShape(1, 784, 128, 32), machine)
    assert plan.tile.vectors * plan.tile.chains >= machine.fma_latency
    assert plan.steps // plan.tile.chains <= 32


@pytest.mark.parametrize(
    ("rows", "columns", "parallel"), [(1, 10, False), (8, 128, False), (64, 256, True), (512, 512, True)]
)
def test_a_small_product_wakes_no_other_thread(rows: int, columns: int, parallel: bool) -> None:
    assert plan_matmul(MatmulShape(rows, 128, columns, 32), AVX2).parallel is parallel


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "threads"),
    [
        (1576, 768, 3072, 2),
        (392, 1024, 4096, 2),
        (1568, 384, 1536, 4),
        (25088, 96, 384, 2),
        (1040, 768, 200, 8),
    ],
)
def test_no_thread_has_many_more_tiles_than_the_others(
    rows: int, depth: int, columns: int, threads: int
) -> None:
    machine = replace(AVX512, threads=threads, l2_bytes=1024 * 1024)
    plan = plan_matmul(MatmulShape(rows, depth, columns, 32), machine, RightOperand(48))
    tiles, side = ceil(rows / plan.tile.rows), panels(columns, plan.tile)
    chunks = ceil(tiles / plan.chunk_tiles)
    tasks = [nest.share(chunk, tiles, plan.chunk_tiles)[1] for chunk in range(chunks) for _ in range(side)]
    each = ceil(len(tasks) / threads)
    busiest = max(sum(tasks[first : first + each]) for first in range(0, len(tasks), each))

    assert plan.chunks_outside
    assert busiest <= 1.04 * tiles * side / threads


@pytest.mark.parametrize(("rows", "columns"), [(8, 100), (5, 128), (12, 80), (8, 1000)])
def test_tiles_of_few_rows_share_out_evenly(rows: int, columns: int) -> None:
    machine = replace(AVX512, fma_ports=1, loads_per_cycle=1, l2_bytes=1024 * 1024)
    tile = plan_matmul(MatmulShape(rows, 5408, columns, 32), machine).tile
    tiles = ceil(rows / tile.rows) * panels(columns, tile)
    assert ceil(tiles / 2) * 2 <= 1.1 * tiles


def test_every_visit_of_a_smaller_chunk_asks_for_its_share_of_the_next_panel() -> None:
    tile = MatmulTile(rows=9, vectors=3, lanes=16, chains=1)
    plan = MatmulPlan(tile, 768, 8, True, False, chunks_outside=True, parts_outside=False)
    assert visits(MatmulShape(197, 768, 3072, 32), plan) == 7


@pytest.mark.parametrize(
    ("depth", "ways", "most_rows"),
    [(512, 8, 14), (768, 8, 14), (1024, 8, 10), (2048, 8, 10), (3072, 8, 10), (3072, 12, 14), (1000, 8, 14)],
)
def test_the_rows_of_a_tile_do_not_displace_each_other(depth: int, ways: int, most_rows: int) -> None:
    machine = replace(AVX512, fma_ports=1, loads_per_cycle=1, l1_bytes=ways * 4096, l1_ways=ways)
    tile = plan_matmul(MatmulShape(392, depth, 768, 32), machine, RightOperand(32)).tile
    assert 7 <= tile.rows <= most_rows


XEON = Machine(512, 32, threads=2, l1_bytes=48 * 1024, l2_bytes=2 * 1024 * 1024, l1_ways=12, has_halves=True)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "outside", "most_bytes"),
    [
        (197, 768, 3072, False, XEON.l2_bytes // 2),
        (1576, 768, 3072, True, XEON.l2_bytes // 4),
        (1024, 8192, 1024, False, XEON.l2_bytes // 2),
        (25088, 96, 384, True, XEON.l1_bytes // 2),
        (3136, 96, 384, True, XEON.l1_bytes // 2),
        (1568, 384, 1536, True, XEON.l2_bytes // 4),
        (1024, 3072, 768, False, XEON.l2_bytes // 2),
        (25088, 96, 8, False, XEON.l2_bytes // 2),
        (4, 100_000, 768, False, XEON.l2_bytes),
    ],
)
def test_the_order_of_tasks_reads_less_from_memory(
    rows: int, depth: int, columns: int, outside: bool, most_bytes: int
) -> None:
    plan = plan_matmul(MatmulShape(rows, depth, columns, 32), XEON, RightOperand(32))
    assert plan.chunks_outside is outside
    assert plan.chunk_tiles * plan.tile.rows * depth * 4 <= most_bytes


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "threads", "steps"),
    [
        (197, 3072, 768, 2, 1024),
        (392, 3072, 768, 2, 768),
        (64, 3072, 768, 2, 1024),
        (49, 3072, 768, 2, None),
        (1024, 3072, 768, 2, None),
        (197, 768, 3072, 2, None),
        (197, 3072, 144, 2, None),
        (197, 3072, 144, 1, 1024),
        (4, 3072, 768, 2, None),
    ],
)
def test_a_part_of_the_depth_stays_in_the_cache_where_the_whole_would_not(
    rows: int, depth: int, columns: int, threads: int, steps: int | None
) -> None:
    shape, machine = MatmulShape(rows, depth, columns, 32), replace(XEON, threads=threads)
    plan = plan_matmul(shape, machine, RightOperand(48))
    assert plan.parts_outside is (steps is not None)
    assert steps is None or plan.steps == steps
    assert steps is None or rows * plan.steps * 4 <= machine.l2_bytes * 3 / 4


def test_a_panel_that_tasks_copy_is_not_copied_for_each_chunk() -> None:
    shape = MatmulShape(25088, 96, 384, 32)
    assert not plan_matmul(shape, XEON, RightOperand(contiguous=False)).chunks_outside


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "prefetched"),
    [(1576, 768, 3072, True), (197, 768, 3072, True), (25088, 384, 512, False), (25088, 96, 384, False)],
)
def test_weights_that_stay_in_the_cache_are_not_prefetched(
    rows: int, depth: int, columns: int, prefetched: bool
) -> None:
    shape, right = MatmulShape(rows, depth, columns, 32), RightOperand(32)
    plan = plan_matmul(shape, XEON, right)
    assert prefetches_panels(shape, XEON, right, plan) is prefetched


def test_weights_are_not_prefetched_where_the_processor_reads_ahead_faster() -> None:
    shape, right = MatmulShape(1, 768, 3072, 32), RightOperand(64)
    assert prefetched_bytes(shape, XEON, right) == 1024
    assert prefetched_bytes(shape, replace(XEON, read_ahead_bytes=0), right) == 0


@pytest.mark.parametrize(("columns", "read"), [(100, 112), (128, 128)])
def test_panels_for_one_row_may_have_half_vectors(columns: int, read: int) -> None:
    shape = MatmulShape(1, 5408, columns, 32)
    tile = plan_matmul(shape, XEON).tile
    assert panels(columns, tile) * tile.columns == read
    packed = plan_matmul(shape, XEON, RightOperand(tile.columns)).tile
    assert (packed.vectors, packed.lanes) == (tile.vectors, tile.lanes)


@pytest.mark.parametrize(("threads", "parallel"), [(1, False), (2, True), (4, False)])
def test_threads_share_a_product_if_each_gets_enough(threads: int, parallel: bool) -> None:
    shape = MatmulShape(1, 784, 128, 32)
    assert plan_matmul(shape, replace(XEON, threads=threads)).parallel is parallel


def test_a_search_tries_both_near_the_threshold_of_many_threads() -> None:
    plans = matmul_plans(MatmulShape(1, 784, 128, 32), replace(XEON, threads=64))
    assert {plan.parallel for plan in plans} == {True, False}


def test_packed_weights_decide_the_width() -> None:
    for columns in (8, 16, 24, 32):
        assert plan_matmul(MatmulShape(7, 100, 37, 32), AVX2, RightOperand(columns)).tile.columns == columns


@pytest.mark.parametrize(("columns", "expected"), [(16, 1), (17, 2), (32, 2), (3, 1)])
def test_panels_cover_the_columns(columns: int, expected: int) -> None:
    assert panels(columns, MatmulTile(rows=4, vectors=2, lanes=8, chains=1)) == expected
