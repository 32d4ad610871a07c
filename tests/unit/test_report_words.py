"""Figures in words."""

import math

import pytest
from report_samples import baseline

from bessemer.contract.options import SearchEnd
from bessemer.contract.report import StoredRecordsUse, TuneResult, TuneVerdict
from bessemer.figures import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1.00"),
        (12.345, "12.3"),
        (999.6, "1,000"),
        (45678, "45,678"),
        (0.00123, "0.00123"),
        (3.6e-7, "3.60e-7"),
        (-2.5e9, "-2.50e9"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (math.nan, "not a number"),
    ],
)
def test_a_number_has_three_digits(value: float, text: str) -> None:
    assert words.three_digits(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.0421, "42.1 µs"),
        (0.5, "500 µs"),
        (3.2, "3.20 ms"),
        (19.4, "19.4 ms"),
        (1500, "1.50 s"),
        (245_000, "4 min 05 s"),
        (math.nan, "not a number"),
    ],
)
def test_a_duration_has_the_unit_that_fits(milliseconds: float, text: str) -> None:
    assert words.duration(milliseconds) == text


@pytest.mark.parametrize(
    ("count_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (46_812_000, "44.6 MiB")]
)
def test_a_size_has_the_unit_that_fits(count_bytes: int, text: str) -> None:
    assert words.size(count_bytes) == text


@pytest.mark.parametrize(("value", "text"), [(9_610, "9,610"), (11_689_512, "11.7 M"), (20_000, "20.0 k")])
def test_a_large_count_is_shortened(value: int, text: str) -> None:
    assert words.count(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.55, "1.8× faster than"),  # noqa: RUF001
        (0.95, "1.05× faster than"),  # noqa: RUF001
        (3.2, "3.2× slower than"),  # noqa: RUF001
        (73.5, "73.5× slower than"),  # noqa: RUF001
        (1.02, "as fast as"),
        (0.0, "not comparable with"),
        (math.nan, "not comparable with"),
    ],
)
def test_a_ratio_is_written_in_words(ratio: float, text: str) -> None:
    assert words.ratio_words(ratio) == text


def test_a_range_of_ratios_is_an_ordered_range_of_speeds() -> None:
    peer = baseline("torch-eager", 10, 0.5).model_copy(update={"ratio_p10": 0.4, "ratio_p90": 0.8})
    assert words.ratio_range(peer) == "1.2× to 2.5×"  # noqa: RUF001


def test_a_range_with_nan_is_omitted() -> None:
    peer = baseline("torch-eager", 10, 0.5).model_copy(update={"ratio_p90": math.nan})
    assert words.ratio_range(peer) == ""


def test_neighboring_float32_values_are_printed_differently() -> None:
    assert words.element(1.2345679) != words.element(1.2345678)
    assert words.element(-6.270817756652832) == "-6.27081776"


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (StoredRecordsUse(hits=2, misses=3), "records had schedules for 2 of 5 functions."),
        (
            StoredRecordsUse(hits=0, misses=2, near=1, near_trials=2),
            "For 1 of the others, the search began with schedules of similar functions: 2 trials.",
        ),
        (
            StoredRecordsUse(hits=0, misses=2, near=1, near_trials=1, misfits=1),
            "similar functions: 1 trial. 1 record does not apply and was skipped.",
        ),
        (StoredRecordsUse(hits=0, misses=1, misfits=4), "0 of 1 function. 4 records do not apply"),
        (StoredRecordsUse(hits=0, misses=1, passed_over=3), "passed over 3 candidates that did not compile"),
        (StoredRecordsUse(hits=1, misses=0, restored_trials=8), "An earlier attempt had measured 8 trials."),
        (StoredRecordsUse(hits=1, misses=0, dropped="it crashed"), "uses the default schedules: with"),
    ],
)
def test_the_use_of_tuning_records_is_told_in_words(use: StoredRecordsUse, text: str) -> None:
    assert text in words.records_used(use)


@pytest.mark.parametrize(
    ("rankers", "text"),
    [
        ({}, ""),
        (
            {"analytic": 3},
            "Before measuring, the analytic model of each family ranked the plans of 3 functions.",
        ),
        (
            {"analytic": 2, "mine": 1},
            "Before measuring, the analytic model of each family ranked the plans of 2 functions and the "
            "cost model “mine” ranked the plans of 1 function.",
        ),
    ],
)
def test_the_rankers_of_plans_are_told_in_words(rankers: dict[str, int], text: str) -> None:
    assert words.rankers_used(TuneResult(trials=0, seconds=0, tasks=(), rankers=rankers)) == text


@pytest.mark.parametrize(
    ("trials", "enough_seconds", "ended_by", "end"),
    [
        (1, 42.5, SearchEnd.SECONDS, ": 1 candidate for 17 functions. About 50 s would allow one candidate "),
        (0, None, SearchEnd.SECONDS, ": 0 candidates for 17 functions."),
        (2, math.inf, SearchEnd.SECONDS, ": 2 candidates for 17 functions."),
        (2, math.nan, SearchEnd.JOB_TIME, ": 2 candidates for 17 functions."),
        (17, None, SearchEnd.SECONDS, ""),
        (2, 42.5, SearchEnd.STOPPED, ""),
    ],
)
def test_a_search_with_too_little_time_says_what_would_be_enough(
    trials: int, enough_seconds: float | None, ended_by: SearchEnd, end: str
) -> None:
    verdict = TuneVerdict(trials=trials, ended_by=ended_by, workloads=17, enough_seconds=enough_seconds)
    text = words.short_search(verdict)
    assert text.partition("model")[2].startswith(end) and bool(text) is bool(end)
