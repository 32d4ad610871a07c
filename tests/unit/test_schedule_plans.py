"""Plans of a family: each listed once, all legal, the cost model's favorite first."""

from collections.abc import Sequence
from typing import Any

import pytest

from worker.compiler.schedules.families.matmul.plan import (
    MatmulShape,
    RightOperand,
    matmul_plans,
    plan_matmul,
)
from worker.compiler.schedules.plans import by_rank, either
from worker.compiler.schedules.processors import Machine
from worker.compiler.tuning.trial_budget import beats, best_of, may_beat, next_plans

AVX2 = Machine(vector_bits=256, registers=16, threads=2)
SHAPES = [(1, 784, 128), (2, 64, 10), (29, 40, 37), (64, 256, 1024), (197, 768, 768), (61, 3072, 96)]
OPERANDS = {
    "in place": RightOperand(),
    "packed": RightOperand(columns=16),
    "scattered": RightOperand(contiguous=False),
    "far": RightOperand(far=True),
}


def test_combinations_that_lose_least_come_first() -> None:
    assert by_rank("ab", (1, 2, 3)) == (("a", 1), ("a", 2), ("b", 1), ("a", 3), ("b", 2), ("b", 3))


@pytest.mark.parametrize("expected", [True, False])
def test_the_expected_truth_value_comes_first(expected: bool) -> None:
    assert either(expected) == (expected, not expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPERANDS)
def test_a_products_plans_differ_and_cover_its_rows(name: str, shape: tuple[int, int, int]) -> None:
    rows, *_ = shape
    plans = matmul_plans(MatmulShape(*shape, 32), AVX2, OPERANDS[name])
    assert len(set(plans)) == len(plans)
    assert plans[0] == plan_matmul(MatmulShape(*shape, 32), AVX2, OPERANDS[name])
    for plan in plans:
        assert plan.tile.rows <= rows
        assert 1 <= plan.chunk_tiles <= -(-rows // plan.tile.rows)
        alike = next(each for each in plans if each.parts_outside is plan.parts_outside)
        assert plan.steps == alike.steps or rows <= 4
        assert not plan.parallel or AVX2.threads > 1


@pytest.mark.parametrize(
    ("name", "copies"),
    [("packed", {False}), ("scattered", {True}), ("in place", {False, True}), ("far", {True, False})],
)
def test_a_panel_is_copied_where_it_must_be_and_may_be_elsewhere(name: str, copies: set[bool]) -> None:
    plans = matmul_plans(MatmulShape(197, 768, 768, 32), AVX2, OPERANDS[name])
    assert {plan.copies for plan in plans} == copies
    assert plans[0].copies is (name in ("scattered", "far"))


PLANS = [{"rows": rows, "copies": copies} for rows, copies in by_rank((4, 6, 2), (0, 1))]


@pytest.mark.parametrize(
    ("measured", "count", "expected"),
    [
        ({}, 2, (0, 1)),
        ({0: 1.0}, 3, (1, 2, 3)),
        ({0: 1.0, 1: 2.0}, 2, (2, 3)),
        ({0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0, 5: 1.0}, 2, (4,)),
        ({0: 2.0, 3: 1.0}, 2, (1, 2)),
        ({0: 2.0, 1: 2.0, 3: 1.0}, 3, (2, 4, 5)),
        ({0: None, 1: None}, 1, (2,)),
        (dict.fromkeys(range(6), 1.0), 4, ()),
    ],
)
def test_the_next_plans_come_from_the_model_and_near_the_best(
    measured: dict[int, float | None], count: int, expected: tuple[int, ...]
) -> None:
    assert next_plans(PLANS, measured, count) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(None, None), ([], None), ([3.0, 1.0, 2.0], 1.0)])
def test_the_best_of_several_measurements_counts(seconds: Sequence[float] | None, expected: Any) -> None:
    assert best_of(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "default", "expected"),
    [(None, 1.0, False), (1.0, None, True), (0.9, 1.0, True), (1.0, 1.0, False)],
)
def test_slower_plans_are_not_measured_again(
    seconds: float | None, default: float | None, expected: bool
) -> None:
    assert may_beat(seconds, default) is expected


@pytest.mark.parametrize(
    ("seconds", "default", "expected"),
    [
        (None, [1.0], False),
        ([1.0], None, True),
        ([1.0, 0.97], [1.1, 1.0], True),
        ([0.99], [1.0], False),
    ],
)
def test_a_record_wins_by_more_than_noise(
    seconds: Sequence[float] | None, default: Sequence[float] | None, expected: bool
) -> None:
    assert beats(seconds, default) is expected
