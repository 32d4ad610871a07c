"""How long one function may take to compile."""

import pytest

from worker.compiler.codegen.time_limits import (
    LEAST_SECONDS,
    MOST_SECONDS,
    group_seconds,
    group_size,
    last_share_seconds,
    share_seconds,
)


@pytest.mark.parametrize(
    ("left_seconds", "steps", "all_steps", "expected"),
    [
        (1800.0, 5, 1000, LEAST_SECONDS),
        (1800.0, 15, 1000, 13.5),
        (1800.0, 5, 10, MOST_SECONDS),
        (60.0, 5, 10, 15.0),
        (12.0, 5, 100, 6.0),
        (-1.0, 5, 10, 1.0),
    ],
    ids=["small", "in proportion", "large", "short job", "very short job", "no time left"],
)
def test_a_function_has_time_in_proportion_to_its_steps_within_bounds(
    left_seconds: float, steps: int, all_steps: int, expected: float
) -> None:
    assert share_seconds(left_seconds, steps, all_steps) == pytest.approx(expected)


def test_an_unsplittable_function_gets_half_the_remaining_time() -> None:
    assert last_share_seconds(1000.0) == 500.0
    assert last_share_seconds(0.0) == 1.0


@pytest.mark.parametrize(("functions", "size"), [(1, 1), (32, 1), (64, 2), (200, 6), (1000, 8)])
def test_many_functions_are_compiled_in_groups(functions: int, size: int) -> None:
    assert group_size(functions) == size


@pytest.mark.parametrize(
    ("shares", "expected"), [((900.0,), 900.0), ((15.0, 900.0), 15.0), ((900.0, 900.0), MOST_SECONDS)]
)
def test_a_group_does_not_wait_for_its_slowest_function(shares: tuple[float, ...], expected: float) -> None:
    assert group_seconds(shares) == expected
