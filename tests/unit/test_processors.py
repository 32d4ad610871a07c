"""The processor that a name stands for, and its tiles."""

from math import ceil

import pytest

from worker.compiler.schedules.families.matmul.plan import MatmulShape, panels, plan_matmul
from worker.compiler.schedules.processors import (
    AVX,
    AVX2,
    AVX512,
    NEON,
    PROCESSORS,
    SSE,
    Machine,
    Tile,
    choose_tile,
    machine_from,
    processor_of,
)

X86_64_V2 = frozenset({"sse4.2"})
X86_64_V3 = X86_64_V2 | {"avx", "avx2", "fma"}
X86_64_V4 = X86_64_V3 | {"avx512f", "avx512vl"}
ARMV8 = frozenset({"neon", "fp-armv8"})
SVE = ARMV8 | {"sve"}


def machine(mcpu: str, features: frozenset[str]) -> Machine:
    return machine_from(mcpu, features, threads=2)


MACHINES = {
    "x86-64-v2": machine("x86-64-v2", X86_64_V2),
    "x86-64-v3": machine("x86-64-v3", X86_64_V3),
    "x86-64-v4": machine("x86-64-v4", X86_64_V4),
    "haswell": machine("haswell", X86_64_V3),
    "skylake-avx512": machine("skylake-avx512", X86_64_V4),
    "icelake-client": machine("icelake-client", X86_64_V4),
    "sapphirerapids": machine("sapphirerapids", X86_64_V4),
    "znver3": machine("znver3", X86_64_V3),
    "znver4": machine("znver4", X86_64_V4),
    "znver5": machine("znver5", X86_64_V4),
    "neoverse-n1": machine("neoverse-n1", ARMV8),
    "neoverse-v1": machine("neoverse-v1", SVE),
    "cortex-a53": machine("cortex-a53", ARMV8),
    "cortex-a72": machine("cortex-a72", ARMV8),
    "apple-m1": machine("apple-m1", ARMV8),
}


@pytest.mark.parametrize(
    ("mcpu", "features", "expected"),
    [
        ("znver3", X86_64_V3, PROCESSORS["znver3"]),
        ("x86-64-v2", X86_64_V2, SSE),
        ("x86-64-v3", X86_64_V3, AVX2),
        ("x86-64-v4", X86_64_V4, AVX512),
        ("sandybridge", X86_64_V2 | {"avx"}, AVX),
        ("", X86_64_V2, SSE),
        ("generic", ARMV8, NEON),
        ("a-core-of-next-year", SVE, NEON),
        ("neoverse-v1", SVE, PROCESSORS["neoverse-v1"]),
        ("skylake-avx512", X86_64_V3, AVX2),
    ],
)
def test_a_processor_is_found_by_its_name_or_else_by_its_features(
    mcpu: str, features: frozenset[str], expected: object
) -> None:
    assert processor_of(mcpu, features) == expected


@pytest.mark.parametrize("name", PROCESSORS)
def test_every_processor_of_the_table_is_plausible_and_has_a_source(name: str) -> None:
    processor = PROCESSORS[name]

    assert processor.vector_bits in (128, 256, 512)
    assert processor.registers in (16, 32)
    assert 1 <= processor.fma_ports <= 4
    assert 4 <= processor.fma_latency <= 9
    assert 0.5 <= processor.loads_per_cycle <= 3
    assert 16 <= processor.l1_kib < processor.l2_kib
    assert len(processor.source) > 10


@pytest.mark.parametrize(
    ("mcpu", "features", "bits", "scalable"),
    [
        ("a64fx", SVE, 512, True),
        ("a64fx", ARMV8, 128, False),
        ("neoverse-v1", SVE, 128, False),
        ("unknown", SVE, 128, False),
    ],
)
def test_vectors_of_sve_are_those_of_a_processor_that_has_them(
    mcpu: str, features: frozenset[str], bits: int, scalable: bool
) -> None:
    found = machine(mcpu, features)

    assert (found.vector_bits, found.scalable) == (bits, scalable)


def test_a_machine_counts_in_bytes() -> None:
    known = machine_from("znver4", X86_64_V4, threads=16)

    assert (known.vector_bits, known.registers, known.threads) == (512, 32, 16)
    assert (known.l1_bytes, known.l2_bytes) == (32 * 1024, 1024 * 1024)
    assert known.lanes(32) == 16
    assert known.lanes(64) == 8


@pytest.mark.parametrize(
    ("name", "square", "remainder", "one_row"),
    [
        ("x86-64-v2", (8, 1, 1), (7, 1, 1), (1, 5, 1)),
        ("x86-64-v3", (4, 2, 1), (4, 2, 1), (1, 7, 2)),
        ("x86-64-v4", (8, 2, 1), (4, 1, 2), (1, 7, 2)),
        ("znver3", (4, 2, 1), (4, 2, 1), (1, 7, 2)),
        ("znver4", (8, 2, 1), (4, 1, 1), (1, 7, 1)),
        ("neoverse-n1", (8, 2, 1), (7, 2, 1), (1, 5, 2)),
        ("neoverse-v1", (8, 2, 1), (7, 2, 2), (1, 2, 8)),
        ("cortex-a53", (4, 4, 1), (4, 4, 1), (1, 7, 1)),
        ("cortex-a72", (4, 4, 1), (4, 4, 1), (1, 7, 2)),
    ],
)
def test_each_processor_gets_its_tile_of_a_product(
    name: str, square: tuple[int, ...], remainder: tuple[int, ...], one_row: tuple[int, ...]
) -> None:
    shapes = ((512, 512, 512), (7, 1000, 13), (1, 768, 1000))
    tiles = [plan_matmul(MatmulShape(*shape, bits=32), MACHINES[name]).tile for shape in shapes]

    assert [(tile.rows, tile.vectors, tile.chains) for tile in tiles] == [square, remainder, one_row]


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(
    "shape", [(512, 512, 512), (7, 1000, 13), (13, 7, 1000), (197, 768, 3072), (1, 1, 1)]
)
def test_a_products_tile_fits_and_covers_the_product(name: str, shape: tuple[int, int, int]) -> None:
    rows, _, columns = shape
    known = MACHINES[name]
    tile = plan_matmul(MatmulShape(*shape, bits=32), known).tile

    shared = tile.vectors if tile.rows > 1 else 0
    assert tile.rows * tile.vectors * tile.chains + shared < known.registers
    assert tile.rows <= rows
    assert panels(columns, tile) == ceil(columns / tile.columns)


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("x86-64-v3", 1000, Tile(7, 1, 8)),
        ("x86-64-v4", 13, Tile(7, 1, 13)),
        ("neoverse-n1", 1000, Tile(7, 2, 4)),
        ("x86-64-v3", 13, None),
    ],
)
def test_the_general_rules_tile_takes_divisors_only(name: str, columns: int, expected: Tile | None) -> None:
    assert choose_tile(columns, 7, 32, MACHINES[name]) == expected
