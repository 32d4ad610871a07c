"""Which tiles and threads compute recurrent layers."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from worker.compiler.schedules.processors import Machine
from worker.compiler.schedules.recurrence.cells import GRU, LSTM, RNN_TANH, Cell
from worker.compiler.schedules.recurrence.plan import MAX_ROWS, Recurrence, Tiling, plan_recurrence

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
        ({}, False, True),
        ({"directions": 2}, True, False),
        ({"batch": 8}, True, False),
        ({"units": 64}, False, False),
        ({"length": None}, False, True),
        ({"batch": 2, "units": 4, "length": 2}, False, False),
    ],
)
def test_threads_take_sequences_or_share_steps_with_enough_work(
    change: dict[str, Any], parallel: bool, shared: bool
) -> None:
    plan = plan_recurrence(replace(LAYER, **change), AVX512)
    assert (plan.parallel, plan.shared) == (parallel, shared)


def test_tiles_of_a_shared_step_are_enough_for_all_threads() -> None:
    for threads in (2, 4, 16):
        assert plan_recurrence(LAYER, replace(AVX512, threads=threads)).units.count >= threads
