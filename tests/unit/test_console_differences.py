"""How the console compares compilations."""

import math

import pytest
from gate_samples import a_report
from report_samples import CREATED_AT, MODEL, latency, minimal_report

from app.comparison import target_result
from app.console.differences import (
    BAD,
    FIGURES,
    GOOD,
    MISSING,
    MOST_ROWS,
    QUIET,
    Compared,
    Table,
    change,
    figure_rows,
    flat,
    function_table,
    gate_outcome,
    headings,
    is_judged,
    judged,
    latency_bars,
    pass_table,
    ratio,
    request_table,
)
from bessemer.contract.job import Compilation, Figures, JobState
from bessemer.contract.report import FunctionTime, PassTime, Report, RewriteResult
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import PresetTarget
from bessemer.gate.policy import Verdict


def compared(
    number: int, report: Report | None = None, p50_ms: float | None = 2.0, **request: object
) -> Compared:
    figures = None
    if p50_ms is not None:
        figures = Figures(
            latency=latency(p50_ms),
            baselines=() if report is None or report.benchmark is None else report.benchmark.baselines,
            library_bytes=1000,
            peak_memory_bytes=2000,
            max_absolute_error=0.0,
        )
    job = Compilation(
        id=f"job-000{number}",
        state=JobState.SUCCEEDED,
        request=CompilationRequest(model=MODEL, target=PresetTarget(preset="host"), **request),  # type: ignore[arg-type]
        figures=figures,
        created_at=CREATED_AT,
    )
    return Compared(job, report)


def with_functions(**milliseconds: float) -> Report:
    report = minimal_report()
    assert report.benchmark is not None
    functions = tuple(
        FunctionTime(name=name, calls=1, milliseconds=time, share=0.5) for name, time in milliseconds.items()
    )
    return report.model_copy(
        update={"benchmark": report.benchmark.model_copy(update={"functions": functions})}
    )


def names(table: Table) -> list[str]:
    return [row.name for row in table.rows]


@pytest.mark.parametrize(
    ("now", "base", "expected"),
    [
        (2.0, 1.0, 2.0),
        (0.0, 1.0, 0.0),
        (1.0, 0.0, None),
        (None, 1.0, None),
        (1.0, None, None),
        (math.inf, 1.0, None),
        (math.nan, 1.0, None),
        (-1.0, 1.0, None),
        (10**400, 1, None),
        (1, 10**400, 0.0),
    ],
)
def test_a_ratio_is_a_number_that_says_something(
    now: float | None, base: float | None, expected: float | None
) -> None:
    assert ratio(now, base) == expected


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1.0, "the same"),
        (1.0001, "the same"),
        (1.12, "+12.0 %"),
        (0.5, "\N{MINUS SIGN}50.0 %"),
        (2.0, "\N{MULTIPLICATION SIGN}2"),
        (0.1234, "\N{MULTIPLICATION SIGN}0.123"),
    ],
)
def test_a_large_change_is_a_factor_and_a_small_one_percent(factor: float, words: str) -> None:
    assert change(factor) == words


@pytest.mark.parametrize(
    ("factor", "better", "kind"),
    [(1.5, -1, BAD), (0.5, -1, GOOD), (1.5, 1, GOOD), (0.5, 1, BAD), (1.02, -1, QUIET), (1.5, 0, QUIET)],
)
def test_a_change_beyond_noise_is_good_or_bad(factor: float, better: int, kind: str) -> None:
    assert judged(factor, better)[1] == kind


def test_each_figure_is_beside_the_first_compilations() -> None:
    rows = {
        row.name: row for row in figure_rows((compared(1), compared(2, p50_ms=3.0), compared(3, p50_ms=None)))
    }
    first, second, third = rows["Median latency"].cells
    assert (first.note, second.note, second.kind, third.text) == ("", "+50.0 %", BAD, "")
    assert "Tokens a second" not in rows


def test_the_time_of_a_compilation_from_the_cache_is_said_in_words() -> None:
    cached = Compared(compared(2).job.model_copy(update={"cached": True, "started_at": None}), None)
    rows = {row.name: row for row in figure_rows((compared(1), cached))}
    assert rows["Compile time"].cells[1].text == "from the cache"


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (({"name": "a"}, {"name": "b"}), ("a", "b")),
        (
            ({"name": "a", "target": "znver4"}, {"name": "a", "target": "neoverse-n1"}),
            ("znver4", "neoverse-n1"),
        ),
        (
            ({"name": "a", "target": "znver4"}, {"name": "b", "target": "neoverse-n1"}),
            ("a, znver4", "b, neoverse-n1"),
        ),
        (({"labels": {"commit": "4f1"}}, {}), ("commit=4f1", "")),
        (({"id": "1" * 32}, {"id": "2" * 32}), ("1" * 8, "2" * 8)),
    ],
)
def test_columns_are_headed_by_what_differs(
    updates: tuple[dict[str, object], dict[str, object]], expected: tuple[str, str]
) -> None:
    def column(update: dict[str, object]) -> Compared:
        job = compared(1).job
        asked: dict[str, object] = {"labels": update.get("labels", {})}
        if "target" in update:
            asked["target"] = PresetTarget(preset=str(update["target"]))
        shown = {key: value for key, value in update.items() if key in ("id", "name")}
        return Compared(
            job.model_copy(update={"request": job.request.model_copy(update=asked), **shown}), None
        )

    assert headings(tuple(map(column, updates))) == expected


@pytest.mark.parametrize("number", [math.inf, math.nan, -1.0, 1e308])
def test_figures_that_cannot_be_are_shown_without_a_judgment(number: float) -> None:
    strange = compared(1).job.figures
    assert strange is not None
    figures = strange.model_copy(
        update={"latency": strange.latency.model_copy(update={"p50_ms": number}), "library_bytes": 10**4000}
    )
    column = Compared(compared(1).job.model_copy(update={"figures": figures}), None)
    assert figure_rows((column, compared(2)))
    assert latency_bars((column, compared(2)))
    assert len(FIGURES) > 10


def test_functions_are_listed_by_how_much_their_time_changes() -> None:
    first = with_functions(matmul=4.0, softmax=1.0, relu=0.5, gone=0.1)
    second = with_functions(matmul=4.01, softmax=2.0, relu=0.9, new=0.2)
    table = function_table((compared(1, first), compared(2, second)))
    assert names(table) == ["softmax", "relu", "new", "gone"]
    assert table.alike == 1
    assert [cell.note for cell in table.rows[0].cells] == ["", "\N{MULTIPLICATION SIGN}2"]
    assert table.rows[2].cells[0].text == MISSING and table.rows[2].cells[1].note == "new"


def test_a_compilation_without_times_does_not_make_all_functions_differ() -> None:
    one = with_functions(matmul=4.0)
    assert function_table((compared(1, one), compared(2))) == Table((), 0, 0)
    assert names(function_table((compared(1, one), compared(2), compared(3, one)))) == []


def test_a_function_of_a_compilation_without_times_was_not_measured() -> None:
    one, two = with_functions(matmul=4.0), with_functions(matmul=8.0, new=1.0)
    table = function_table((compared(1, one), compared(2), compared(3, two)))
    assert [row.cells[1].note for row in table.rows] == ["not measured", "not measured"]


def test_long_tables_end_and_count_the_rest() -> None:
    first = with_functions(**{f"f{index}": 1.0 for index in range(MOST_ROWS + 5)})
    second = with_functions(**{f"f{index}": 2.0 for index in range(MOST_ROWS + 5)})
    table = function_table((compared(1, first), compared(2, second)))
    assert (len(table.rows), table.more) == (MOST_ROWS, 5)


def test_passes_and_rewrites_are_listed_if_they_do_something_else() -> None:
    def report(functions: int, rewrites: int) -> Report:
        passes = (
            PassTime(phase="fuse", name="FuseOps", seconds=0.1, functions=functions),
            PassTime(phase="fold", name="FoldConstant", seconds=functions, functions=1),
        )
        found = (RewriteResult(name="gelu", source="x", count=rewrites),)
        return minimal_report().model_copy(update={"passes": passes, "rewrites": found})

    table = pass_table((compared(1, report(8, 3)), compared(2, report(3, 0)), compared(3)))
    assert names(table) == ["fuse: FuseOps", "rewrite: gelu"]
    assert table.alike == 1
    assert table.rows[1].cells[1].text == "0 times" and table.rows[1].cells[2].text == MISSING


def test_fields_of_requests_that_differ_have_dotted_names() -> None:
    table = request_table(
        (compared(1, labels={"commit": "a"}), compared(2, labels={"commit": "b"}, priority=3))
    )
    assert names(table) == ["labels.commit", "priority"]
    assert [cell.text for cell in table.rows[0].cells] == ["a", "b"]
    assert table.alike > 10


def test_a_document_is_flat_with_lists_as_fields() -> None:
    found = dict(flat({"a": {"b": 1, "c": {}}, "d": [1, {"e": None}], "f": "x"}))
    assert found == {"a.b": "1", "a.c": "{}", "d": '[1, {"e": null}]', "f": "x"}


@pytest.mark.parametrize(
    ("p50_ms", "verdict"), [(2.0, Verdict.PASSED), (2.1, Verdict.PASSED), (3.0, Verdict.SLOWER)]
)
def test_a_gate_judges_a_compilation_against_the_first(p50_ms: float, verdict: Verdict) -> None:
    base = compared(1, a_report(ratio=0.5, p50_ms=2.0))
    outcome = gate_outcome(compared(2, a_report(ratio=0.5 * p50_ms / 2, p50_ms=p50_ms)), base)
    assert outcome is not None and outcome.verdict is verdict


def test_a_gate_does_not_judge_what_was_not_measured() -> None:
    unmeasured = minimal_report().model_copy(update={"benchmark": None})
    base = compared(1, a_report())
    outcomes = [gate_outcome(compared(2, report), base) for report in (a_report(), unmeasured)]
    assert [outcome is not None and is_judged(outcome) for outcome in outcomes] == [True, False]


def test_a_gate_says_nothing_of_what_has_no_report_or_numbers_beyond_all() -> None:
    base = compared(1, a_report())
    assert gate_outcome(compared(2), base) is None
    assert gate_outcome(compared(2, a_report(library_bytes=10**400)), base) is None


def test_bars_share_one_scale() -> None:
    (_, ours), (_, slower) = latency_bars((compared(1, a_report(ratio=0.5)), compared(2, p50_ms=8.0)))
    assert [round(bar.share) for bar in ours] == [25, 50]
    assert [round(bar.share) for bar in slower] == [100]
    assert target_result(compared(1).job, None).latency is not None


def test_a_slow_baseline_goes_beyond_the_chart() -> None:
    ((_, (library, baseline)),) = latency_bars((compared(1, a_report(ratio=0.1)),))
    assert (round(library.share), library.goes_beyond) == (33, False)
    assert (baseline.share, baseline.goes_beyond) == (100.0, True)
