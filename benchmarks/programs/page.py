"""The part of docs/figures.md on starting programs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.programs.results import ProgramResult, ProgramsResults, StartedModel
from benchmarks.tables import describe_machine, from_file, newest, table
from bessemer.figures.words import size, three_digits

TOPIC = "programs"


def section(folder: Path) -> list[str]:
    """The section; empty without results."""
    path = newest(folder, TOPIC)
    if path is None:
        return []
    results = ProgramsResults.model_validate_json(path.read_text())
    packages = ", ".join(f"{name} {version}" for name, version in sorted(results.machine.versions.items()))
    return [
        "## Starting a program",
        "",
        f"Run `make bench-programs` to repeat this. {from_file(path)} {describe_machine(results.machine)}, "
        f"{results.threads} threads, float32; load {results.load_before:g} before the run; {packages}.",
        "",
        f"A fresh process loads the model, runs it once and exits, in {results.rounds} turns with the "
        "others; files are in the system's cache. Entries are medians; best in parentheses. The ratio is our "
        "program's time divided by the other's, per turn: below 1, ours is faster. Memory is the process's "
        "peak, with the pages of its files. The size is that of the program, its libraries and the model. "
        "ONNX Runtime's C API is called by a [C program](../benchmarks/programs/onnx_run.c), which frees "
        "nothing at its end.",
        "",
        *table(
            ("model", "program", "start to exit, ms", "ratio (10th to 90th percentile)", "peak, MiB", "size"),
            [_row(model, program) for model in results.models for program in model.programs],
        ),
        *(["", *(f"- {reason}." for reason in results.missing)] if results.missing else []),
        "",
    ]


def _row(model: StartedModel, program: ProgramResult) -> tuple[str, ...]:
    times = program.milliseconds
    ratio = program.ratio
    return (
        model.name,
        program.name,
        f"{three_digits(times.median)} ({three_digits(times.best)})",
        "" if ratio is None else f"{ratio.median:.2f} ({ratio.p10:.2f} to {ratio.p90:.2f})",
        three_digits(program.mebibytes.median),
        "" if program.files_bytes is None else size(program.files_bytes),
    )
