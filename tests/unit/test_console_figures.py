import math
from datetime import UTC, datetime, timedelta

import pytest
from report_samples import MODEL, functions, latency, rich_report

from app.console.compiler_graph import heat
from app.console.distribution import BINS, density, knots, latency_ridges
from app.console.result import memory_chart
from app.console.time_map import SHOWN_FUNCTIONS, kind_of, lines_of, short_operator, shown_place, time_map
from app.console.timeline import timeline
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.options import TuneOptions
from bessemer.contract.problem import SourcePlace
from bessemer.contract.report import (
    FunctionTime,
    MemoryPoint,
    RunMemory,
    RunTimes,
    StageTime,
)
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from worker.measure.statistics import run_times

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
CONV = SourcePlace(operator="aten.conv2d.default", module_path="stem.0", file="/home/u/net.py", line=12)
RELU = SourcePlace(operator="aten.relu.default", module_path="stem.1", file="/home/u/net.py", line=13)


def function(name: str, milliseconds: float, *places: SourcePlace) -> FunctionTime:
    return FunctionTime(name=name, calls=1, milliseconds=milliseconds, share=0.5, places=places)


def job(state: JobState, **fields: object) -> Compilation:
    request = CompilationRequest(model=MODEL, target=PresetTarget(preset="host"))
    return Compilation.model_validate(
        {"id": "a" * 32, "state": state, "request": request, "created_at": NOON, **fields}
    )


def test_the_peak_of_a_density_is_where_most_runs_are() -> None:
    times = run_times("library", [0.001] * 90 + [0.002] * 10)

    heights = density(knots(latency(1.0), times), 0.0, 2.5)

    assert max(heights) == 1
    assert abs((heights.index(1) + 0.5) * 2.5 / BINS - 1.0) < 0.1


@pytest.mark.parametrize(
    "times",
    [
        None,
        RunTimes(name="library", quantiles_ms=()),
        RunTimes(name="library", quantiles_ms=(math.nan, 1.0)),
        RunTimes(name="library", quantiles_ms=(3.0, 1.0, 2.0)),
        RunTimes(name="library", quantiles_ms=(1.0,) * 41),
        RunTimes(name="library", quantiles_ms=(-1e308, 1e308)),
    ],
)
def test_any_quantiles_have_a_density(times: RunTimes | None) -> None:
    heights = density(knots(latency(1.0), times), 0.5, 2.0)

    assert len(heights) == BINS
    assert all(0 <= height <= 1 for height in heights)


def test_quantiles_are_of_the_sorted_runs() -> None:
    found = run_times("library", [0.003, 0.001, 0.002]).quantiles_ms

    assert len(found) == 41
    assert (found[0], found[20], found[40]) == pytest.approx((1, 2, 3))


def test_the_library_comes_first_and_each_baseline_says_how_it_compares() -> None:
    benchmark = rich_report().benchmark
    assert benchmark is not None

    ridges = latency_ridges(benchmark)

    assert [row.label for row in ridges.rows] == [
        "compiled library",
        "torch eager, 2 threads",
        "torch.compile, 2 threads",
    ]
    assert ridges.rows[0].ours and not ridges.rows[0].verdict
    assert ridges.rows[1].verdict == "the library is 1.4× faster than it"  # noqa: RUF001
    assert not ridges.is_exact
    assert all(0 <= tick.position <= 100 for tick in ridges.ticks)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fused_conv2d3_add_relu", "convolution"),
        ("fused_linear_gelu", "product"),
        ("fused_matmul1", "product"),
        ("attention_2", "attention"),
        ("fused_layer_norm", "reduction"),
        ("transpose4", "movement"),
        ("fused_add_multiply", "elementwise"),
        ("runtime", "runtime"),
        ("runtime_conv", "convolution"),
    ],
)
def test_functions_have_a_kind_by_their_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_operators_of_a_function_share_its_time_equally() -> None:
    lines = lines_of([function("a", 4.0, CONV, RELU), function("b", 1.0, RELU)], 5.0)

    assert [(line.where, line.milliseconds, line.operators) for line in lines] == [
        ("net.py:13 in stem.1", 3.0, ("relu",)),
        ("net.py:12 in stem.0", 2.0, ("conv2d",)),
    ]
    assert sum(line.share for line in lines) == pytest.approx(1)


@pytest.mark.parametrize(
    ("place", "shown", "operator"),
    [
        (CONV, "net.py:12 in stem.0", "conv2d"),
        (SourcePlace(operator="mine.op.default", file="net.py", line=3), "net.py:3", "mine.op.default"),
        (SourcePlace(module_path="stem"), "stem", "operator"),
        (SourcePlace(file="C:\\work\\net.py", line=1), "net.py:1", "operator"),
        (SourcePlace(), "", "operator"),
    ],
)
def test_places_are_shown_short(place: SourcePlace, shown: str, operator: str) -> None:
    assert (shown_place(place), short_operator(place)) == (shown, operator)


def test_a_function_with_enough_time_is_divided_into_its_operators() -> None:
    found = time_map([function("large", 9.0, CONV, RELU), function("small", 0.1, CONV, RELU)])

    assert found is not None
    assert [part.operator for part in found.cells[0].parts] == ["conv2d", "relu"]
    assert found.cells[1].parts == ()
    assert found.kinds == ("elementwise",)


def test_functions_beyond_the_shown_ones_are_one_cell() -> None:
    found = time_map(functions(SHOWN_FUNCTIONS + 10))

    assert found is not None
    assert len(found.cells) == SHOWN_FUNCTIONS + 1
    assert found.cells[-1].name == "10 more functions"
    assert len(found.rows) == SHOWN_FUNCTIONS + 10


@pytest.mark.parametrize("milliseconds", [0.0, -1.0, math.nan, math.inf])
def test_functions_without_a_time_are_left_out(milliseconds: float) -> None:
    assert time_map([function("a", milliseconds)]) is None


def test_memory_has_its_peak_at_the_call_that_needs_most() -> None:
    sizes = enumerate((1, 4, 2, 1))
    calls = tuple(MemoryPoint(function=f"f{i}", live_bytes=1024 * size) for i, size in sizes)

    found = memory_chart(RunMemory(arena_bytes=8192, calls=calls))

    assert found is not None
    assert (found.peak, found.peak_function, found.peak_at) == ("4.00 KiB", "f1", 37.5)


def test_memory_of_many_calls_keeps_its_peak() -> None:
    calls = tuple(MemoryPoint(function="f", live_bytes=9 if i == 7777 else 1) for i in range(10_000))

    found = memory_chart(RunMemory(arena_bytes=9, calls=calls))

    assert found is not None
    assert len(found.area) < 10_000
    assert "V8.00" in found.area


@pytest.mark.parametrize("calls", [(), (MemoryPoint(function="f", live_bytes=-5),)])
def test_no_memory_has_no_chart(calls: tuple[MemoryPoint, ...]) -> None:
    assert memory_chart(RunMemory(arena_bytes=0, calls=calls)) is None


STAGES = (StageTime(stage=Stage.CAPTURE, seconds=2), StageTime(stage=Stage.TRANSLATE, seconds=3))


@pytest.mark.parametrize(
    ("compilation", "states"),
    [
        (job(JobState.QUEUED), {"queue": "running", "capture": "waiting"}),
        (
            job(
                JobState.RUNNING,
                stage="optimize",
                stages=STAGES,
                started_at=NOON + timedelta(seconds=5),
            ),
            {"queue": "done", "capture": "done", "optimize": "running", "build": "waiting"},
        ),
        (
            job(
                JobState.FAILED,
                stage="optimize",
                stages=STAGES,
                started_at=NOON + timedelta(seconds=5),
                finished_at=NOON + timedelta(seconds=12),
            ),
            {"translate": "done", "optimize": "failed", "build": "skipped"},
        ),
        (job(JobState.CANCELLED, finished_at=NOON), {"queue": "done", "capture": "skipped"}),
        (
            job(JobState.SUCCEEDED, stages=STAGES, cached=True, original="b" * 32, finished_at=NOON),
            {"capture": "done", "tune": "skipped"},
        ),
    ],
)
def test_stages_have_a_state(compilation: Compilation, states: dict[str, str]) -> None:
    found = timeline(compilation, NOON + timedelta(seconds=20))

    rows = {row.name: row.state for row in found.rows}
    assert {name: rows[name] for name in states} == states
    assert all(row.start >= 0 and row.start + row.width <= 100.01 for row in found.rows)


@pytest.mark.parametrize(("trials", "time"), [(0, "2.00 s (no search)"), (8, "2.00 s")])
def test_the_stage_tune_says_if_nothing_was_searched(trials: int, time: str) -> None:
    request = job(JobState.QUEUED).request.model_copy(update={"tune": TuneOptions(trials=trials)})
    stages = (StageTime(stage=Stage.TUNE, seconds=2),)
    compilation = job(JobState.SUCCEEDED, request=request, stages=stages, finished_at=NOON)

    rows = {row.name: row.time for row in timeline(compilation, NOON).rows}

    assert rows["tune"] == time


def test_a_stage_begins_where_the_one_before_it_ended() -> None:
    compilation = job(
        JobState.RUNNING, stage="optimize", stages=STAGES, started_at=NOON + timedelta(seconds=5)
    )

    found = timeline(compilation, NOON + timedelta(seconds=20))

    assert [(row.start, row.width) for row in found.rows[:4]] == [(0, 25), (25, 10), (35, 15), (50, 50)]
    assert found.total == "20.0 s"


def test_a_preflight_has_only_the_stages_that_it_runs() -> None:
    request = CompilationRequest(model=MODEL, target=PresetTarget(preset="host"), stop_after=Stage.TRANSLATE)

    found = timeline(job(JobState.QUEUED, request=request), NOON)

    assert [row.name for row in found.rows] == ["queue", "capture", "translate"]


def test_the_colors_of_times_tell_short_ones_apart_beside_a_long_one() -> None:
    assert [heat(milliseconds, 100.0) for milliseconds in (0.5, 2, 5, 20, 50, 100)] == [0, 1, 2, 3, 4, 5]
    assert heat(0.0, 0.0) == 0
