"""The section generated from the benchmark of programs."""

from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figure import summarize
from benchmarks.machine import describe
from benchmarks.models.results import Ratio
from benchmarks.programs.page import section
from benchmarks.programs.results import ProgramResult, ProgramsResults, StartedModel


def program(name: str, milliseconds: list[float], **more: object) -> ProgramResult:
    return ProgramResult.model_validate(
        {
            "name": name,
            "milliseconds": summarize("start to exit", "ms", milliseconds),
            "mebibytes": summarize("peak memory", "MiB", [2.5]),
            **more,
        }
    )


def test_the_section_compares_programs_with_the_bundles(tmp_path: Path) -> None:
    ratio = Ratio(p10=0.01, median=0.02, p90=0.03)
    programs = [program("ours", [1, 3, 2], files_bytes=1 << 20), program("theirs", [131.4], ratio=ratio)]
    results = ProgramsResults(
        machine=describe(()),
        measured_at=datetime(2026, 1, 2, tzinfo=UTC),
        load_before=0.5,
        threads=2,
        rounds=15,
        missing=["a runtime: not installed"],
        models=[StartedModel(name="mlp", programs=programs)],
    )
    (tmp_path / "2026-01-02-programs.json").write_text(results.model_dump_json())

    page = "\n".join(section(tmp_path))

    assert "| mlp | ours | 2.00 (1.00) |  | 2.50 | 1.00 MiB |" in page
    assert "| mlp | theirs | 131 (131) | 0.02 (0.01 to 0.03) | 2.50 |  |" in page
    assert "- a runtime: not installed." in page


def test_there_is_no_section_without_results(tmp_path: Path) -> None:
    assert section(tmp_path) == []
