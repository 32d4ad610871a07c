"""How often a candidate is timed."""

import pytest

from worker.candidates.measuring import TimingPlan, is_clearly_slower, timing_plan
from worker.candidates.requests import Evaluation

EVALUATION = Evaluation(repeats=8, repeat_seconds=0.0015)


@pytest.mark.parametrize(
    ("call_seconds", "rival_seconds", "plan"),
    [
        (0.0001, None, TimingPlan(repeats=8, calls=15)),
        (0.0001, 0.0001, TimingPlan(repeats=8, calls=15)),
        (0.00014, 0.0001, TimingPlan(repeats=8, calls=10)),
        (0.00016, 0.0001, TimingPlan(repeats=4, calls=1)),
        (0.01, None, TimingPlan(repeats=4, calls=1)),
        (0.3, 0.0001, TimingPlan(repeats=1, calls=1)),
    ],
)
def test_a_candidate_that_is_clearly_slower_than_the_best_is_called_less(
    call_seconds: float, rival_seconds: float | None, plan: TimingPlan
) -> None:
    assert timing_plan(EVALUATION, call_seconds, rival_seconds) == plan


@pytest.mark.parametrize(
    ("seconds", "rival_seconds", "expected"), [(1.0, None, False), (1.5, 1.0, False), (1.6, 1.0, True)]
)
def test_without_a_rival_nothing_is_slower(
    seconds: float, rival_seconds: float | None, expected: bool
) -> None:
    assert is_clearly_slower(seconds, rival_seconds) is expected
