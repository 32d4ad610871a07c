"""Which tiles and threads compute recurrent layers."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from worker.compiler.schedules.processors import Machine
from worker.compiler.schedules.recurrence.cells import GRU, LSTM, RNN_TANH, Cell
from worker.compiler.schedules.recurrence.plan import MAX_ROWS, Recurrence, Tiling, plan_recurrence
from worker.compiler.schedules.recurrence.stack import plan_stack, take_turns

MACHINES = {
    "sse": Machine(vector_bits=128, registers=16, threads=2),
    "avx2": Machine(vector_bits=256, registers=16, threads=2),
    "avx512": Machine(vector_bits=512, registers=32, threads=2),
    "neon": Machine(vector_bits=128, registers=32, threads=4),
}
AVX512 = MACHINES["avx512"]
LAYER = Recurrence(
    cell=LSTM,
    directions=1,
    units=256,
    projected=None,
    length=160,
    batch=1,
    batch_first=True,
    has_lengths=False,
    dtype="float32",
)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("cell", [LSTM, GRU, RNN_TANH])
def test_the_sums_of_a_tile_fit_the_registers(name: str, cell: Cell) -> None:
    machine = MACHINES[name]
    for units, batch in product((1, 20, 256, 1000), (1, 2, 7, 64, None)):
        plan = plan_recurrence(replace(LAYER, cell=cell, units=units, batch=batch), machine)
        sums = plan.rows * cell.gates * plan.units.vectors
        assert sums < machine.registers
        assert plan.rows <= min(batch or MAX_ROWS, MAX_ROWS)


@pytest.mark.parametrize(("size", "vectors", "lanes"), [(256, 4, 16), (100, 2, 16), (5, 1, 5), (33, 1, 16)])
def test_tiles_cover_all_units(size: int, vectors: int, lanes: int) -> None:
    tiling = Tiling(size, vectors, lanes)
    assert set(tiling.units) == set(range(size))
    assert len(tiling.units) == tiling.count * tiling.width


@pytest.mark.parametrize(
    ("change", "parallel", "shared"),
    [
        ({}, False, False),
        ({"directions": 2}, True, False),
        ({"batch": 8}, True, False),
        ({"units": 1024}, False, True),
        ({"length": None}, False, False),
        ({"batch": 2, "units": 4, "length": 2}, False, False),
    ],
)
def test_threads_take_sequences_and_share_only_long_steps(
    change: dict[str, Any], parallel: bool, shared: bool
) -> None:
    plan = plan_recurrence(replace(LAYER, **change), AVX512)
    assert (plan.parallel, plan.shared) == (parallel, shared)


@pytest.mark.parametrize(
    "change",
    [
        {"directions": 2},
        {"batch": 8},
        {"batch": None},
        {"length": None},
        {"length": 8},
        {"units": 16},
        {"projected": 64},
    ],
)
def test_layers_are_computed_in_turn_where_a_stack_gains_nothing(change: dict[str, Any]) -> None:
    assert plan_stack(LAYER, 3, AVX512) is not None
    assert plan_stack(replace(LAYER, **change), 3, AVX512) is None
    assert plan_stack(LAYER, 1, AVX512) is None
    assert plan_stack(LAYER, 3, replace(AVX512, threads=1)) is None


@pytest.mark.parametrize(("layers", "parts", "threads"), [(2, 5, 2), (3, 10, 2), (3, 20, 16), (7, 4, 3)])
def test_a_part_follows_the_one_before_it_and_the_one_below_it(layers: int, parts: int, threads: int) -> None:
    turns = take_turns(layers, parts, threads)
    stages = {turn: number for number, stage in enumerate(turns) for turn in stage if turn is not None}
    assert set(stages) == set(product(range(layers), range(parts)))
    assert all(len(stage) <= threads for stage in turns)
    for (layer, part), stage in stages.items():
        assert part == 0 or stages[layer, part - 1] < stage
        assert layer == 0 or stages[layer - 1, part] < stage


def test_two_threads_seldom_rest() -> None:
    assert len(take_turns(3, 20, 2)) <= 32
