"""A model's history, and its chart."""

import math
from datetime import timedelta

import pytest
from gate_samples import a_report
from report_samples import CREATED_AT, MODEL, latency

from app.console.charts import LARGEST, SMALLEST, Line, Point, axis, chart
from app.console.history import MOST_JUDGED, Series, history, is_suspicious
from bessemer.contract.job import Compilation, Figures, JobState
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import PresetTarget
from bessemer.gate.policy import Verdict


def report_of(job: Compilation) -> Report:
    assert job.figures is not None
    p50_ms = job.figures.latency.p50_ms
    return a_report(ratio=p50_ms / 4, p50_ms=p50_ms, library_bytes=job.figures.library_bytes)


def figures(p50_ms: float, library_bytes: int = 1000) -> Figures:
    report = a_report(ratio=p50_ms / 4 if 0 < p50_ms < 1e9 else None, p50_ms=1.0)
    assert report.benchmark is not None
    return Figures(
        latency=latency(p50_ms),
        baselines=report.benchmark.baselines,
        library_bytes=library_bytes,
        peak_memory_bytes=2000,
        max_absolute_error=0.0,
    )


def jobs(*medians: float | None, target: str = "host", **fields: object) -> list[Compilation]:
    """Compilations with these medians, newest first as the store returns them."""
    found = [
        Compilation(
            id=f"job-{target}-{index:04}",
            state=JobState.SUCCEEDED,
            request=CompilationRequest(model=MODEL, target=PresetTarget(preset=target)),
            figures=None if median is None else figures(median),
            created_at=CREATED_AT + timedelta(days=index),
        ).model_copy(update=fields)
        for index, median in enumerate(medians)
    ]
    return found[::-1]


def verdicts(series: Series) -> list[Verdict]:
    return [step.verdict for step in series.steps]


def test_a_compilation_that_a_gate_would_stop_is_marked_and_the_next_one_is_not() -> None:
    (series,) = history(jobs(2.0, 2.05, 3.0, 3.0, 1.0), report_of)
    assert verdicts(series) == [
        Verdict.PASSED,
        Verdict.PASSED,
        Verdict.SLOWER,
        Verdict.PASSED,
        Verdict.PASSED,
    ]
    assert series.regressions == 1
    assert "latency" in series.steps[2].reasons[0]
    assert [step.change for step in series.steps][2:4] == ["+46.3 %", "the same"]


def test_each_target_has_its_own_series_and_what_was_not_measured_none() -> None:
    found = history(jobs(2.0, target="x86-64-v3") + jobs(1.0, None, 1.0), report_of)
    assert [(series.target, len(series.steps)) for series in found] == [("host", 2), ("x86-64-v3", 1)]


def test_results_of_an_earlier_compilation_are_no_points() -> None:
    assert history(jobs(2.0, cached=True), report_of) == ()


def test_reports_are_read_only_where_a_figure_grew_and_only_so_many() -> None:
    asked: list[str] = []

    def report(job: Compilation) -> Report:
        asked.append(job.id)
        return report_of(job)

    history(jobs(2.0, 2.1, 2.0, 1.0), report)
    assert asked == []
    history(jobs(*(2.0 * 1.2**index for index in range(MOST_JUDGED + 10))), report)
    assert len(asked) == 2 * MOST_JUDGED


def test_a_report_that_cannot_be_read_marks_nothing() -> None:
    (series,) = history(jobs(2.0, 4.0), lambda _: None)
    assert verdicts(series) == [Verdict.PASSED, Verdict.PASSED]


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (figures(2.0), figures(2.0), False),
        (figures(2.3), figures(2.0), True),
        (figures(2.0, 1200), figures(2.0), True),
        (figures(math.nan), figures(2.0), False),
        (None, figures(2.0), False),
    ],
)
def test_a_figure_that_grew_is_suspicious(
    now: Figures | None, before: Figures | None, expected: bool
) -> None:
    assert is_suspicious(now, before) is expected


@pytest.mark.parametrize("median", [math.nan, math.inf, -1.0, 0.0, 1e300, 1e-300])
def test_a_number_that_nothing_takes_is_not_drawn(median: float) -> None:
    (series,) = history(jobs(2.0, median, 2.0), report_of)
    drawn = series.chart(lambda job: f"/{job.id}")
    assert drawn is not None and len(drawn.lines[1].points) == 2


@pytest.mark.parametrize(
    ("least", "greatest"),
    [
        (1.0, 1.0),
        (0.0421, 0.0433),
        (1.0, 10.0),
        (SMALLEST, SMALLEST),
        (LARGEST, LARGEST),
        (SMALLEST, LARGEST),
    ],
)
def test_an_axis_encloses_its_values_in_few_round_steps(least: float, greatest: float) -> None:
    ticks = axis(least, greatest)
    assert ticks[0] <= least and ticks[-1] >= greatest * (1 - 1e-9)
    assert 2 <= len(ticks) <= 8
    assert list(ticks) == sorted(set(ticks))


def test_points_stay_within_the_picture_and_gaps_are_skipped() -> None:
    points = tuple(
        None if index % 3 == 2 else Point(float(index + 1), f"d{index}", "", "/x", "") for index in range(50)
    )
    drawn = chart((Line("ours", "library", points),), str)
    assert drawn is not None
    (line,) = drawn.lines
    assert len(line.points) == 34
    assert all(drawn.left <= at.x <= drawn.right and 0 <= at.y <= drawn.bottom for at in line.points)
    assert 1 < len(drawn.dates) <= 8


def test_nothing_makes_no_chart() -> None:
    assert chart((Line("ours", "library", (None, None)),), str) is None
