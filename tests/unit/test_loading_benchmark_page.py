"""The page generated from the results of the benchmark of loading."""

from datetime import UTC, datetime
from pathlib import Path

from benchmarks.loading.page import section
from benchmarks.loading.results import Loaded, LoadingResults, RuntimeLoads
from benchmarks.machine import describe
from bessemer.figures.words import TIMES

MIB = 2**20


def test_a_row_relates_first_runs_and_memory_to_later_runs_and_parameters(tmp_path: Path) -> None:
    rounds = [
        Loaded(ready_ms=ready, runs_ms=[44, *[40.0] * 9], peak_bytes=105 * MIB, second_bytes=30 * MIB)
        for ready in (9, 12, 10)
    ]
    results = LoadingResults(
        machine=describe(()),
        measured_at=datetime(2026, 1, 2, tzinfo=UTC),
        minutes=3,
        load_before=0.5,
        load_after=2,
        threads=2,
        parameter_bytes=100 * MIB,
        runtimes=[
            RuntimeLoads(name="ours", form="a bundle", version="1", rounds=rounds),
            RuntimeLoads(name="other", form="a file", version=None, note="it is not installed"),
        ],
    )
    (tmp_path / "2026-01-02-loading.json").write_text(results.model_dump_json())

    text = "\n".join(section(tmp_path))

    assert f"| ours | 10.0 (9.00) | 1.10{TIMES} (1.10) | 1.05{TIMES} | 30 |" in text
    assert "- other: a file; it is not installed." in text


def test_without_results_there_is_no_section(tmp_path: Path) -> None:
    assert section(tmp_path) == []
