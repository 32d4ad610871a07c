"""The lines about a compilation: its stage, its end, its search."""

from typing import Any

import pytest

from app.routes.cost_model import COST_MODEL
from bessemer.cli.live_view import compilation_lines, shown_latency
from bessemer.cli.records import cost_model_lines
from bessemer.contract.base import now
from bessemer.contract.job import Compilation, EntryFigures, Figures, JobState, Progress
from bessemer.contract.options import SearchEnd, TuneOptions
from bessemer.contract.report import (
    BaselineResult,
    BuiltFunctions,
    Latency,
    Schedules,
    StageTime,
    StoredRecordsUse,
    TuneVerdict,
)
from bessemer.contract.request import CompilationRequest, Entry
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget, ResolvedTarget
from bessemer.contract.tensor import InputSpec

AGAIN = "measure again with --option cache=false when the worker is idle"
LATENCY = Latency(runs=3, min_ms=1, p50_ms=1, p90_ms=1, p99_ms=1, mean_ms=1, stddev_ms=0)
PROGRESS = Progress(stage=Stage.TUNE, done=12, total=32, detail="f: best 0.1 ms")

OPEN_ENDED = PROGRESS.model_copy(update={"total": 0, "detail": "6 of 10 s, best 4.21 ms, default 5.2 ms; f"})


def figures_with(**fields: Any) -> Figures:
    return Figures(
        latency=LATENCY,
        library_bytes=1,
        peak_memory_bytes=1,
        max_absolute_error=0.0,
        **{"baselines": (), **fields},
    )


def shown(state: JobState, **fields: object) -> list[str]:
    target, tune = PresetTarget(preset="host"), TuneOptions(trials=32)
    request = CompilationRequest(model="0" * 64, target=target, tune=tune)
    job = Compilation(id="01234567", state=state, request=request, created_at=now())
    return list(compilation_lines(job.model_copy(update=fields)))


def test_a_cost_model_is_shown_with_its_accuracy() -> None:
    heading, names, row = cost_model_lines(COST_MODEL)
    assert heading.startswith("4ac12b90dd2e, trained 2")
    assert heading.endswith(" on 402 plans of 31 functions")
    assert names.split("  ")[0] == "family"
    cells = ("convolution", "x86_64 256 parallel", "19", "1311", "84.0 %", "71.0 %", "3.0 %", "5.0 %", "yes")
    assert [cell.strip() for cell in row.split("  ") if cell.strip()] == list(cells)


@pytest.mark.parametrize(
    ("state", "fields", "line"),
    [
        (JobState.RUNNING, {"progress": PROGRESS}, "now         tune, 12 of 32 trials, f: best 0.1 ms"),
        (
            JobState.RUNNING,
            {"progress": OPEN_ENDED},
            "now         tune, 12 trials, 6 of 10 s, best 4.21 ms, default 5.2 ms; f",
        ),
        (JobState.RUNNING, {}, "now         tune"),
        (JobState.CANCELLED, {}, "stopped     in tune, cancelled"),
    ],
)
def test_a_compilation_names_its_stage_or_where_it_stopped(
    state: JobState, fields: dict[str, object], line: str
) -> None:
    assert line in shown(state, stage=Stage.TUNE, **fields)


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.CANCELLED])
def test_a_compilation_that_never_ran_names_no_stage(state: JobState) -> None:
    assert len(shown(state)) == 2


@pytest.mark.parametrize(
    ("verdict", "lines"),
    [
        (None, []),
        (
            TuneVerdict(trials=32, kept=Schedules.SEARCH, search_ms=0.105, default_ms=0.112),
            [
                "32 trials; the library has the search's schedules: "
                "0.105 ms with the search's, 0.112 ms with the default ones"
            ],
        ),
        (
            TuneVerdict(trials=8, kept=Schedules.DEFAULT, crashed=Schedules.SEARCH),
            ["8 of 32 trials; the library has the default schedules: with the search's, it crashed"],
        ),
        (
            TuneVerdict(trials=8, kept=Schedules.DEFAULT),
            ["8 of 32 trials; the library has the default schedules: no other schedule was clearly faster"],
        ),
        (
            TuneVerdict(trials=32, kept=Schedules.DEFAULT, workloads=2, seemed_faster=1),
            [
                "32 trials; the library has the default schedules: others looked faster for 1 of 2 "
                "functions, but not clearly when measured again"
            ],
        ),
        (
            TuneVerdict(trials=0, kept=Schedules.DEFAULT, unsearched=2),
            [
                "0 of 32 trials; the library has the default schedules: no other schedule was tried",
                "not searched, because their sizes are dynamic: 2 functions",
            ],
        ),
        (
            TuneVerdict(trials=8, kept=Schedules.SEARCH),
            ["8 of 32 trials; the library has the search's schedules"],
        ),
        (
            TuneVerdict(trials=8, kept=Schedules.SEARCH, ended_by=SearchEnd.CANDIDATES),
            ["8 of 32 trials, ended because no candidates were left; the library has the search's schedules"],
        ),
        (
            TuneVerdict(trials=32, kept=Schedules.SEARCH, records=6),
            ["32 trials; the library has the search's schedules", "6 records given"],
        ),
        (
            TuneVerdict(trials=32, kept=Schedules.SEARCH, records=6, unused_records=2),
            [
                "32 trials; the library has the search's schedules",
                "6 records given, 2 of them for no function",
            ],
        ),
        (
            TuneVerdict(
                trials=2,
                kept=Schedules.DEFAULT,
                ended_by=SearchEnd.JOB_TIME,
                workloads=17,
                enough_seconds=42.5,
            ),
            [
                "2 of 32 trials, ended because the job needs the time that it has left; the library has the "
                "default schedules: no other schedule was clearly faster",
                "The search had too little time for this model: 2 candidates for 17 functions. About 50 s "
                "would allow one candidate for each function; several times as long is better.",
            ],
        ),
        (
            TuneVerdict(trials=32, kept=Schedules.SEARCH, ended_by=SearchEnd.TRIALS),
            ["32 trials, ended by tune.trials=32; the library has the search's schedules"],
        ),
    ],
)
def test_a_compilation_says_how_its_search_ended(verdict: TuneVerdict | None, lines: list[str]) -> None:
    figures = figures_with(
        tune=verdict,
    )
    printed = shown(JobState.SUCCEEDED, figures=figures)
    start = next((index for index, line in enumerate(printed) if line.startswith("tuning ")), len(printed))
    assert [line[12:] for line in printed[start:]] == lines


@pytest.mark.parametrize(
    ("use", "lines"),
    [
        (None, []),
        (StoredRecordsUse(hits=0, misses=3), []),
        (
            StoredRecordsUse(hits=0, misses=3, near=2, near_trials=3),
            [
                "records     of earlier searches for 0 of 3 functions",
                "            of similar functions for 2 others: 3 trials",
            ],
        ),
        (
            StoredRecordsUse(hits=0, misses=1, near=1, near_trials=1),
            [
                "records     of earlier searches for 0 of 1 function",
                "            of similar functions for 1 other: 1 trial",
            ],
        ),
        (StoredRecordsUse(hits=2, misses=1), ["records     of earlier searches for 2 of 3 functions"]),
        (
            StoredRecordsUse(
                hits=1, misses=0, misfits=2, passed_over=3, restored_trials=4, dropped="it was wrong"
            ),
            [
                "records     of earlier searches for 1 of 1 function",
                "            2 records no longer apply and were skipped",
                "            3 candidates that did not compile before were passed over",
                "            an earlier attempt measured 4 trials",
                "            not used after all, because compiling with them failed: it was wrong",
            ],
        ),
    ],
)
def test_a_compilation_says_which_records_of_earlier_searches_it_used(
    use: StoredRecordsUse | None, lines: list[str]
) -> None:
    figures = figures_with(
        tune=TuneVerdict(trials=0, stored=use),
    )
    found = shown(JobState.SUCCEEDED, figures=figures)
    start = next((index for index, line in enumerate(found) if line.startswith("records")), len(found))
    assert found[start : start + max(1, len(lines))] == lines


@pytest.mark.parametrize(
    ("compiles", "state"),
    [(None, "succeeded"), (True, "check: compiles"), (False, "check: does not compile")],
)
def test_a_check_says_what_it_found(compiles: bool | None, state: str) -> None:
    assert shown(JobState.SUCCEEDED, compiles=compiles)[0] == f"compilation 01234567: {state}"


def test_an_early_check_without_a_finding_points_to_its_report() -> None:
    target = PresetTarget(preset="host")
    request = CompilationRequest(model="0" * 64, target=target, stop_after=Stage.TRANSLATE)
    states = {
        state: shown(state, request=request, stage=Stage.TRANSLATE)[0].partition(": ")[2]
        for state in (JobState.RUNNING, JobState.SUCCEEDED, JobState.CANCELLED)
    }
    assert list(states.values()) == ["running", "check: see its report", "cancelled"]


def test_name_and_labels_are_shown() -> None:
    lines = shown(JobState.QUEUED, name="mlp")
    assert lines[:2] == ["compilation 01234567: queued", "name        mlp"]


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (1, "p50 2 ms (1 run, 1 thread)"),
        (19, "p50 2 ms (19 runs, 1 thread)"),
        (20, "p50 2 ms, p90 3 ms (20 runs, 1 thread)"),
        (200, "p50 2 ms, p99 4 ms (200 runs, 1 thread)"),
    ],
)
def test_a_latency_shows_the_percentile_its_runs_allow(runs: int, text: str) -> None:
    latency = Latency(runs=runs, min_ms=1, p50_ms=2, p90_ms=3, p99_ms=4, mean_ms=2, stddev_ms=0)
    assert shown_latency(latency, 1) == text


@pytest.mark.parametrize(
    ("name", "mcpu", "line"),
    [
        ("host", "znver5", "target      host (znver5, 2 cores)"),
        ("skylake-avx512", "skylake-avx512", "target      skylake-avx512 (2 cores)"),
    ],
)
def test_a_processor_is_named_once(name: str, mcpu: str, line: str) -> None:
    target = ResolvedTarget(
        name=name, kind="llvm", mcpu=mcpu, triple="x86_64-linux-gnu", features=(), cores=2
    )
    assert line in shown(JobState.SUCCEEDED, target=target)


@pytest.mark.parametrize(
    ("unsteady", "reason"),
    [
        ("", "library / torch-eager: 0.0018 (p10 to p90 of the rounds: 0.0017 to 0.0019)"),
        ("it stalled", f"unsteady, so no comparison: it stalled; {AGAIN}"),
    ],
)
def test_an_unsteady_baseline_has_no_ratio(unsteady: str, reason: str) -> None:
    peer = BaselineResult(
        name="torch-eager",
        threads=2,
        latency=LATENCY,
        ratio=0.00176,
        ratio_p10=0.0017,
        ratio_p90=0.0019,
        unsteady=unsteady,
    )
    figures = Figures(
        latency=LATENCY, baselines=(peer,), library_bytes=1, peak_memory_bytes=1, max_absolute_error=0.0
    )
    printed = shown(JobState.SUCCEEDED, figures=figures)
    start = next(index for index, line in enumerate(printed) if line.startswith("torch-eager"))
    assert printed[start + 1].strip() == reason


def test_the_reason_for_unsteady_figures_is_given_once() -> None:
    reason = "the compiled library took 1 ms in one sample and 3 ms in another"
    peer = BaselineResult(
        name="torch-eager", threads=1, latency=LATENCY, ratio=1, ratio_p10=1, ratio_p90=1, unsteady=reason
    )
    figures = Figures(
        latency=LATENCY,
        unsteady=reason,
        baselines=(peer,),
        library_bytes=1,
        peak_memory_bytes=1,
        max_absolute_error=0.0,
    )
    printed = "\n".join(shown(JobState.SUCCEEDED, figures=figures))
    assert printed.count(reason) == 1
    assert f"unsteady, so no comparison; {AGAIN}" in printed


def test_a_latency_stands_beside_the_dynamic_sizes_that_it_was_measured_at() -> None:
    other = EntryFigures(name="decode", latency=LATENCY, sizes={"seq": 1}, baselines=())
    figures = figures_with(
        sizes={"batch": 8, "seq": 128},
        entries=(other,),
    )
    printed = shown(JobState.SUCCEEDED, figures=figures)
    ends = [line.rpartition(")")[2] for line in printed if line.startswith(("latency ", "entry "))]
    assert ends == [" at batch=8, seq=128", " at seq=1"]


def test_a_compilation_lists_the_sizes_at_which_it_was_verified() -> None:
    figures = figures_with(
        verified_sizes=({"batch": 2, "seq": 8}, {"batch": 1, "seq": 1}),
        entries=(EntryFigures(name="decode", latency=LATENCY, baselines=(), verified_sizes=({"seq": 1},)),),
    )
    printed = shown(JobState.SUCCEEDED, figures=figures)
    start = next(index for index, line in enumerate(printed) if line.startswith("entry "))
    assert printed[start + 1 : start + 4] == [
        "            verified at seq=1",
        "error       at most 0 (absolute)",
        "verified    at batch=2, seq=8; batch=1, seq=1",
    ]


def test_a_compilation_says_which_functions_the_cache_had() -> None:
    figures = figures_with(
        built_functions=BuiltFunctions(compiled=2, cached=12),
    )
    stages = tuple(StageTime(stage=stage, seconds=1.0) for stage in (Stage.TUNE, Stage.BUILD))
    printed = shown(JobState.SUCCEEDED, figures=figures, stages=stages)
    assert "stages      tune 1.00 s, build 1.00 s (12 of 14 functions from the worker's cache)" in printed


def test_each_entry_point_is_shown_with_what_it_runs() -> None:
    entries = {
        "encode": Entry(inputs=(InputSpec(name="x", shape=(2, 8)),)),
        "back": Entry(method="decode", constants={"gain": 3}),
        "other": Entry(model="1" * 64),
    }
    request = CompilationRequest(model="0" * 64, target=PresetTarget(preset="host"), entries=entries)
    assert [line for line in shown(JobState.QUEUED, request=request) if line.startswith("entry")] == [
        "entry       encode: x=2x8",
        "entry       back: method decode, gain=3",
        f"entry       other: model {'1' * 64}",
    ]
