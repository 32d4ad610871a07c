"""The simulation of tenants that share workers."""

from collections.abc import Sequence

import pytest

from benchmarks.fairness.simulation import FirstComeFirstServed, InTurns, Job, Line, jain_index, simulate


@pytest.mark.parametrize(
    ("shares", "index"), [([5.0] * 4, 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 1.0, 0.0, 0.0], 0.5)]
)
def test_jains_index_is_1_for_equal_shares_and_1_over_n_if_one_has_all(
    shares: list[float], index: float
) -> None:
    assert jain_index(shares) == index


def jobs_of(tenants: str, at: float = 0.0, seconds: float = 10.0) -> list[Job]:
    return [Job(at, tenant, seconds) for tenant in tenants]


@pytest.mark.parametrize(
    ("line", "slots", "started"),
    [
        (FirstComeFirstServed(), 1, [0, 10, 20, 30, 40]),
        (InTurns(), 1, [0, 20, 40, 10, 30]),
        (FirstComeFirstServed(), 2, [0, 0, 10, 10, 20]),
        (InTurns(), 2, [0, 10, 20, 0, 10]),
    ],
    ids=["in order", "in turns", "in order on two slots", "in turns on two slots"],
)
def test_jobs_start_in_the_order_of_the_line(line: Line, slots: int, started: Sequence[float]) -> None:
    run = simulate(jobs_of("aaabb"), line, slots)
    assert run.started == list(started)


def test_a_run_says_how_many_jobs_were_taken_while_a_job_waited() -> None:
    run = simulate([*jobs_of("aaaa"), *jobs_of("b", at=15.0)], InTurns(), 1)
    assert run.started[4] == 20.0
    assert run.claims[4] == (2, 3)


def test_a_run_can_end_early() -> None:
    run = simulate(jobs_of("aaa"), InTurns(), 1, until_claims=2)
    assert (run.started, run.ended) == ([0.0, 10.0, float("inf")], 10.0)
