"""Generations of plans in a large space are new, of the family, and near what was fast."""

from itertools import product
from random import Random

import pytest

from worker.compiler.schedules.plans import Numbers
from worker.compiler.tuning.evolution import nearest_plans, next_generation, with_advice

PLANS: list[Numbers] = [
    {"blocks": blocks, "columns": columns, "unrolls": unrolls}
    for blocks, columns, unrolls in product((1, 2, 4, 8), range(1, 29), (1, 0))
    if blocks * columns <= 30
]


def seconds(plan: Numbers) -> float:
    """A landscape with its valley far from the family's first plan."""
    return 1 + abs(plan["blocks"] - 4) + abs(plan["columns"] - 7) / 4 + plan["unrolls"] / 2


def test_a_generation_consists_of_different_plans_that_were_not_measured() -> None:
    measured = {index: seconds(PLANS[index]) for index in range(0, len(PLANS), 2)}
    chosen = next_generation(PLANS, measured, (3, 4), 8, Random(0))
    assert len(set(chosen)) == 8
    assert not set(chosen) & set(measured)


def test_a_generation_ends_with_what_is_left() -> None:
    measured: dict[int, float | None] = dict.fromkeys(range(len(PLANS) - 3), 1.0)
    assert len(next_generation(PLANS, measured, (), 8, Random(0))) == 3


def test_plans_that_similar_functions_are_fast_with_come_first() -> None:
    assert next_generation(PLANS, {0: 1.0}, (40, 50, 40), 8, Random(0))[:2] == (40, 50)


@pytest.mark.parametrize(
    ("advised", "count", "expected"),
    [
        ((), 4, (1, 2, 3, 4)),
        ((7, 8), 4, (7, 8, 1, 2)),
        ((7, 8, 9), 4, (7, 8, 1, 2)),
        ((7, 8), 1, (7,)),
        ((5, 0, 7), 4, (7, 1, 2, 3)),
        ((2,), 4, (2, 1, 3, 4)),
    ],
)
def test_half_of_a_small_space_s_candidates_are_those_of_similar_functions(
    advised: tuple[int, ...], count: int, expected: tuple[int, ...]
) -> None:
    measured: dict[int, float | None] = {0: 1.0, 5: None}
    assert with_advice((1, 2, 3, 4), advised, measured, count) == expected


def test_without_anything_measured_the_order_decides() -> None:
    assert next_generation(PLANS, {0: None}, (), 3, Random(0)) == (1, 2, 3)


@pytest.mark.parametrize("seed", range(5))
def test_generations_find_a_valley_far_from_the_first_plans(seed: int) -> None:
    measured: dict[int, float | None] = {0: seconds(PLANS[0])}
    random = Random(seed)
    while len(measured) < 65:
        for index in next_generation(PLANS, measured, (), 8, random):
            measured[index] = seconds(PLANS[index])
    in_order = min(map(seconds, PLANS[:65]))
    assert min(value for value in measured.values() if value is not None) <= 1.5 < in_order


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"blocks": 4, "columns": 7, "unrolls": 0}, {"blocks": 4, "columns": 7, "unrolls": 0}),
        ({"blocks": 8, "columns": 20, "unrolls": 1}, {"blocks": 2, "columns": 15, "unrolls": 1}),
        ({"tiles": 4}, None),
    ],
)
def test_the_plan_of_another_function_stands_for_the_most_similar_one(
    wanted: Numbers, expected: Numbers | None
) -> None:
    found = nearest_plans(PLANS, [wanted])
    assert [PLANS[index] for index in found] == ([] if expected is None else [expected])
