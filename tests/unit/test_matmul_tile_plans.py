"""Which products Intel's tile registers compute, and how."""

from dataclasses import replace
from math import ceil

import pytest
import tvm

from worker.compiler.schedules.families.matmul.plan import MatmulShape, Unit
from worker.compiler.schedules.families.matmul.tile_plan import (
    PANEL,
    faster_by_tiles,
    tile_cycles,
    tile_plans,
)
from worker.compiler.schedules.processors import machine_from, machine_of

XEON = replace(machine_from("emeraldrapids", frozenset({"avx512f"}), threads=2), has_tiles=True)
SLOW_VECTORS = replace(XEON, fma_ports=0.1)
MACHINES = {
    "two threads": XEON,
    "one thread": replace(XEON, threads=1),
    "many threads": replace(XEON, threads=48),
    "a small cache": replace(XEON, l2_bytes=64 * 1024),
}
SHAPES = [
    MatmulShape(rows, depth, columns, 32)
    for rows in (32, 33, 100, 197, 1576, 25088)
    for depth in (32, 80, 768, 3072)
    for columns in (32, 70, 160, 768, 3072)
]


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "expected"),
    [
        (1024, 1024, 1024, True),
        (197, 768, 3072, True),
        (1576, 3072, 768, True),
        (64, 64, 64, False),
        (33, 352, 33, False),
        (25088, 32, 32, False),
    ],
)
def test_tiles_are_faster_where_splitting_the_factors_takes_a_small_part_of_the_time(
    rows: int, depth: int, columns: int, expected: bool
) -> None:
    assert faster_by_tiles(MatmulShape(rows, depth, columns, 32), XEON) is expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param(MatmulShape(256, 256, 256, 32), True, id="one that fills tiles"),
        pytest.param(MatmulShape(32, 32, 32, 32), True, id="one that just fills them"),
        pytest.param(MatmulShape(31, 256, 256, 32), False, id="few rows"),
        pytest.param(MatmulShape(256, 256, 31, 32), False, id="few columns"),
        pytest.param(MatmulShape(256, 250, 256, 32), False, id="a depth that is no multiple of 16"),
        pytest.param(MatmulShape(256, 48, 256, 32), True, id="a depth that ends with half a step"),
        pytest.param(MatmulShape(256, 256, 256, 16), False, id="half precision"),
        pytest.param(MatmulShape(256, 256, 256, 64), False, id="double precision"),
        pytest.param(
            MatmulShape(256, 256, 256, 32, unit=Unit(1, 4, 8)), False, id="groups of narrow numbers"
        ),
    ],
)
def test_tiles_compute_products_of_float32_that_fill_them(shape: MatmulShape, expected: bool) -> None:
    assert faster_by_tiles(shape, SLOW_VECTORS) is expected
    assert not faster_by_tiles(shape, replace(SLOW_VECTORS, has_tiles=False))


@pytest.mark.parametrize("name", MACHINES)
def test_plans_differ_and_come_in_the_order_of_their_cycles(name: str) -> None:
    machine = MACHINES[name]
    for shape in SHAPES:
        plans = tile_plans(shape, machine)
        cycles = [tile_cycles(plan, shape, machine) for plan in plans]
        assert 1 <= len(plans) == len(set(plans)) <= 6
        assert cycles == sorted(cycles)


@pytest.mark.parametrize("name", MACHINES)
def test_every_task_has_rows_and_panels_and_every_part_has_steps(name: str) -> None:
    machine = MACHINES[name]
    for shape in SHAPES:
        pairs, panels, steps = ceil(shape.rows / PANEL), ceil(shape.columns / PANEL), ceil(shape.depth / 32)
        for plan in tile_plans(shape, machine):
            assert 1 <= plan.chunk_tiles <= pairs
            assert 1 <= plan.groups <= panels
            assert 1 <= plan.part_steps <= steps
            assert not plan.parallel or machine.threads > 1


@pytest.mark.parametrize("name", MACHINES)
def test_half_of_the_cache_holds_the_parts_of_a_chunks_rows(name: str) -> None:
    machine = MACHINES[name]
    for shape in SHAPES:
        for plan in tile_plans(shape, machine):
            split_bytes = plan.chunk_tiles * PANEL * plan.part_steps * 32 * 3 * 2
            assert plan.part_steps == 1 or split_bytes <= machine.l2_bytes / 2


@pytest.mark.parametrize(("rows", "parallel"), [(32, False), (1024, True)])
def test_threads_share_a_product_if_each_gets_enough(rows: int, parallel: bool) -> None:
    plans = tile_plans(MatmulShape(rows, 32, 32, 32), XEON)
    assert {plan.parallel for plan in plans} == {parallel}


@pytest.mark.parametrize(
    ("triple", "mcpu", "expected"),
    [
        ("x86_64-unknown-linux-gnu", "sapphirerapids", True),
        ("x86_64-unknown-linux-gnu", "emeraldrapids", True),
        ("x86_64-unknown-linux-gnu", "icelake-server", False),
        ("x86_64-unknown-linux-gnu", "x86-64-v4", False),
        ("x86_64-unknown-linux-gnu", "znver4", False),
        ("aarch64-unknown-linux-gnu", "neoverse-v2", False),
        ("x86_64-pc-windows-msvc", "emeraldrapids", False),
        ("x86_64-apple-macosx", "emeraldrapids", False),
    ],
)
def test_linux_gives_programs_the_tiles_of_processors_that_have_them(
    triple: str, mcpu: str, expected: bool
) -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu})

    assert machine_of(target).has_tiles is expected


@pytest.mark.parametrize("feature", ["-amx-bf16", "-amx-tile"])
def test_a_target_may_exclude_tiles(feature: str) -> None:
    config = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "emeraldrapids"}

    assert not machine_of(tvm.target.Target(config | {"mattr": [feature]})).has_tiles
