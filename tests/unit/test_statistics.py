import numpy as np
import pytest

from bessemer.contract.report import Latency
from worker.measure.statistics import largest, latency, percentile, round_ratios


@pytest.mark.parametrize(
    ("values", "rank", "expected"),
    [
        ([7.0], 50, 7.0),
        ([1.0, 2.0], 50, 1.5),
        ([3.0, 1.0, 2.0], 0, 1.0),
        ([3.0, 1.0, 2.0], 100, 3.0),
        ([0.0, 10.0], 90, 9.0),
        ([5.0, 5.0, 5.0], 99, 5.0),
    ],
)
def test_a_percentile_interpolates_between_the_closest_ranks(
    values: list[float], rank: float, expected: float
) -> None:
    assert percentile(values, rank) == pytest.approx(expected)


@pytest.mark.parametrize("rank", [0, 10, 50, 90, 99, 100])
def test_percentiles_agree_with_numpy(rank: int) -> None:
    values = np.random.default_rng(0).exponential(size=101).tolist()

    assert percentile(values, rank) == pytest.approx(float(np.percentile(values, rank)))


@pytest.mark.parametrize(("values", "rank"), [([], 50), ([1.0], -1), ([1.0], 101)])
def test_a_percentile_of_no_values_or_out_of_range_is_refused(values: list[float], rank: float) -> None:
    with pytest.raises(ValueError, match=r"no values|lies outside"):
        percentile(values, rank)


def test_a_latency_is_in_milliseconds() -> None:
    found = latency([0.001, 0.002, 0.003])

    assert found.runs == 3
    assert found.min_ms == pytest.approx(1)
    assert found.p50_ms == pytest.approx(2)
    assert found.mean_ms == pytest.approx(2)
    assert found.stddev_ms == pytest.approx((2 / 3) ** 0.5)


@pytest.mark.parametrize(
    ("runs", "known"),
    [
        (1, (False, False)),
        (19, (False, False)),
        (20, (True, False)),
        (199, (True, False)),
        (200, (True, True)),
    ],
)
def test_percentiles_need_enough_runs(runs: int, known: tuple[bool, bool]) -> None:
    found = latency([0.001] * runs)

    assert (found.p90_ms is not None, found.p99_ms is not None) == known


def test_an_older_document_loses_a_percentile_of_too_few_runs() -> None:
    older = {"runs": 3, "min_ms": 1, "p50_ms": 2, "p90_ms": 3, "p99_ms": 4, "mean_ms": 2, "stddev_ms": 1}

    found = Latency.read(older)

    assert (found.p50_ms, found.p90_ms, found.p99_ms) == (2, None, None)


def test_one_run_has_no_deviation() -> None:
    assert latency([0.5]).stddev_ms == 0


def test_a_latency_of_no_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        latency([])


def test_ratios_compare_the_medians_of_neighboring_rounds() -> None:
    spread = round_ratios([[1, 1, 100], [4], [3]], [[2], [2], [3]])

    assert spread.p50 == pytest.approx(1)
    assert spread.p10 == pytest.approx(0.6)
    assert spread.p90 == pytest.approx(1.8)


def test_ratios_need_equal_numbers_of_rounds() -> None:
    with pytest.raises(ValueError, match="zip"):
        round_ratios([[1.0]], [[1.0], [1.0]])


@pytest.mark.parametrize(
    ("values", "expected"), [([], 0.0), ([1.0, 3.0], 3.0), ([float("nan"), 3.0], float("nan"))]
)
def test_nan_is_not_hidden_by_a_larger_number(values: list[float], expected: float) -> None:
    assert str(largest(values)) == str(expected)
