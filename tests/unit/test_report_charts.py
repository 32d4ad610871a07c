"""The geometry of the charts."""

import math

import pytest
from report_samples import functions, latency, task

from bessemer.contract.report import BuiltFunctions, SearchPoint, StageTime
from bessemer.contract.stage import Stage
from bessemer.figures import charts
from bessemer.figures.charts import LatencyRun


def test_bars_are_in_proportion_and_whiskers_lie_beyond_them() -> None:
    ours, theirs = charts.latency_chart(
        [LatencyRun("ours", latency(10)), LatencyRun("theirs", latency(20))]
    ).rows
    assert theirs.p50 == pytest.approx(2 * ours.p50, abs=0.02)
    assert ours.p90 is not None
    assert ours.p99 is not None
    assert ours.p50 < ours.p90 < ours.p99 <= 100
    assert (ours.ours, theirs.ours) == (True, False)


def test_one_stray_run_does_not_flatten_the_bars() -> None:
    stray = latency(10).model_copy(update={"p99_ms": 5000.0})
    (row,) = charts.latency_chart([LatencyRun("ours", stray)]).rows
    assert row.cut
    assert row.p50 > 30


def test_the_axis_starts_at_zero_and_has_round_marks() -> None:
    chart = charts.latency_chart([LatencyRun("ours", latency(19.4))])
    assert [tick.label for tick in chart.ticks] == ["0", "10.0 ms", "20.0 ms"]


def test_spreads_share_the_place_of_the_median() -> None:
    first, second = charts.spread_chart(
        [LatencyRun("ours", latency(0.1)), LatencyRun("theirs", latency(30, 0.3))]
    ).rows
    assert first.p50 == second.p50
    assert first.mean is not None
    assert first.p90 is not None
    assert first.p99 is not None
    assert first.minimum < first.p50 < first.mean < first.p90 < first.p99


def test_a_mean_beyond_the_axis_is_not_drawn_at_its_end() -> None:
    stray = latency(10).model_copy(update={"mean_ms": 400.0, "p99_ms": 5000.0})
    (row,) = charts.spread_chart([LatencyRun("ours", stray)]).rows
    assert row.mean is None


@pytest.mark.parametrize("p50", [0.0, math.nan, math.inf])
def test_an_invalid_latency_still_draws(p50: float) -> None:
    rows = [LatencyRun("ours", latency(p50)), LatencyRun("theirs", latency(1))]
    for row in charts.latency_chart(rows).rows:
        assert 0 <= row.p50 <= 100
    for spread in charts.spread_chart(rows).rows:
        assert 0 <= spread.minimum <= 100


def test_the_functions_beyond_fifteen_are_one_bar() -> None:
    bars = charts.function_bars(functions(24))
    assert len(bars) == 16
    assert bars[-1].label == "9 more functions"
    assert bars[0].width == 100
    assert [bar.width for bar in bars[:15]] == sorted((bar.width for bar in bars[:15]), reverse=True)


def test_each_stage_begins_where_the_one_before_ended() -> None:
    times = [(Stage.CAPTURE, 1.0), (Stage.TRANSLATE, 2.0), (Stage.OPTIMIZE, 1.0)]
    bars = charts.stage_bars([StageTime(stage=stage, seconds=seconds) for stage, seconds in times])
    assert [(bar.start, bar.width) for bar in bars] == [(0, 25), (25, 50), (75, 25)]
    assert [bar.strong for bar in bars] == [False, True, False]


@pytest.mark.parametrize(("searches", "note"), [(True, ""), (False, " (no search)")])
def test_the_stage_tune_says_if_nothing_was_searched(searches: bool, note: str) -> None:
    stages = [StageTime(stage=stage, seconds=1.0) for stage in (Stage.TUNE, Stage.BUILD)]
    values = [bar.value for bar in charts.stage_bars(stages, searches)]
    assert values == [f"1.00 s{note}", "1.00 s"]


@pytest.mark.parametrize(
    ("built", "note"),
    [
        (None, ""),
        (BuiltFunctions(compiled=14, cached=0), ""),
        (BuiltFunctions(compiled=2, cached=12), " (12 of 14 functions from the worker's cache)"),
    ],
)
def test_the_stage_build_says_which_functions_the_cache_had(built: BuiltFunctions | None, note: str) -> None:
    stages = [StageTime(stage=stage, seconds=1.0) for stage in (Stage.TUNE, Stage.BUILD)]
    assert [bar.value for bar in charts.stage_bars(stages, True, built)] == ["1.00 s", f"1.00 s{note}"]


def test_a_tuning_curve_falls_from_the_first_success_to_the_best() -> None:
    sample = task("dense", 1, 2.0, 20).model_copy(update={"history_ms": (math.inf, 4.0, 4.0, 2.0, 1.0)})
    curve = charts.tuning_curve(sample)
    assert curve is not None
    assert (curve.first, curve.best) == ("4.00 ms", "1.00 ms")
    assert curve.line == "M75.0,6.0H150.0V6.0H225.0V50.0H300.0V72.0"


def test_a_tuning_curve_shows_the_default_where_it_was_measured() -> None:
    sample = task("dense", 1, 2.0, 20).model_copy(update={"history_ms": (4.0, 1.0), "default_ms": 5.0})
    curve = charts.tuning_curve(sample)
    assert curve is not None
    assert (curve.first, curve.best) == ("5.00 ms", "1.00 ms")


def test_a_function_that_took_no_time_has_no_bar() -> None:
    idle = functions(1)[0].model_copy(update={"name": "runtime", "milliseconds": 0.0})
    assert [bar.label for bar in charts.function_bars((*functions(1), idle))] == [
        bar.label for bar in charts.function_bars(functions(1))
    ]


def test_a_workload_without_a_success_has_no_curve() -> None:
    sample = task("dense", 1, 2.0, 20).model_copy(update={"history_ms": (math.inf, math.inf)})
    assert charts.tuning_curve(sample) is None


def test_nothing_to_draw_gives_no_bars() -> None:
    assert charts.function_bars(()) == ()
    assert charts.stage_bars(()) == ()


@pytest.mark.parametrize(("runs", "known"), [(19, (False, False)), (20, (True, False)), (200, (True, True))])
def test_a_percentile_of_too_few_runs_is_not_drawn(runs: int, known: tuple[bool, bool]) -> None:
    rows = [LatencyRun("ours", latency(10, runs=runs))]
    (bar,) = charts.latency_chart(rows).rows
    (band,) = charts.spread_chart(rows).rows
    assert (bar.p90 is not None, bar.p99 is not None) == known
    assert (band.p90 is not None, band.p99 is not None) == known


def search_points(*latencies: float) -> list[SearchPoint]:
    return [SearchPoint(seconds=2.0 * i, trials=8 * i, latency_ms=ms) for i, ms in enumerate(latencies)]


def test_the_models_curve_falls_over_the_seconds_of_the_search() -> None:
    curve = charts.model_curve(search_points(10.0, 10.0, 5.0), 10.0, {})
    assert curve is not None
    assert (curve.first, curve.last) == ("10.0 ms", "5.00 ms")
    assert curve.change == "10.0 ms → 5.00 ms"
    assert curve.line == "M0,10.71H48.08V10.71H96.15V55.36"


def test_a_search_that_found_nothing_says_so() -> None:
    curve = charts.model_curve(search_points(10.0, 10.0), 10.0, {})
    assert curve is not None
    assert curve.change == "10.0 ms throughout"


def test_lines_to_beat_have_labels_that_do_not_overlap_and_far_ones_are_named() -> None:
    curve = charts.model_curve(search_points(10.0, 5.0), 10.0, {"torch eager": 10.2, "ONNX Runtime": 90.0})
    assert curve is not None
    assert [(line.label, line.is_untuned) for line in curve.lines] == [
        ("torch eager 10.2 ms", False),
        ("untuned 10.0 ms", True),
    ]
    upper, lower = curve.lines
    assert upper.y < lower.y
    assert lower.label_y - upper.label_y >= 17
    assert curve.above == ("ONNX Runtime 90.0 ms",)


@pytest.mark.parametrize("latencies", [(), (10.0,)])
def test_a_search_without_rounds_has_no_curve(latencies: tuple[float, ...]) -> None:
    assert charts.model_curve(search_points(*latencies), 10.0, {}) is None
