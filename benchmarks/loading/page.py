"""The part of docs/figures.md about loading."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.loading.results import LoadingResults, RuntimeLoads
from benchmarks.tables import describe_machine, from_file, newest, table
from bessemer.figures.words import TIMES, three_digits

TOPIC = "loading"
_MIB = 2**20


def section(folder: Path) -> list[str]:
    """The section; empty without results."""
    path = newest(folder, TOPIC)
    if path is None:
        return []
    results = LoadingResults.model_validate_json(path.read_text())
    packages = ", ".join(f"{name} {version}" for name, version in sorted(results.machine.versions.items()))
    measured = [one for one in results.runtimes if one.rounds]
    return [
        "## Loading",
        "",
        f"Run `make bench-loading` to repeat this. {from_file(path)} {describe_machine(results.machine)}, "
        f"{results.threads} threads; load average {results.load_before:g} before and {results.load_after:g} "
        f"after; {packages}.",
        "",
        "BERT-base of transformers with random weights, 128 tokens, float32: "
        f"{results.parameter_bytes / _MIB:.0f} MiB of parameters. Every entry is the median of "
        f"{max((len(one.rounds) for one in measured), default=0)} processes, the best in parentheses; the "
        "model's file is in the system's cache. Times and memory begin after a process's imports. `ready` is "
        "until the first run can start; `first run` is relative to the median of the next nine; `peak` is "
        "relative to the parameters; `second process` is what another process with the same model adds to "
        "the memory of both, its imports included.",
        "",
        *table(
            ("runtime", "ready, ms", "first run", "peak", "second process, MiB"),
            [_row(one, results.parameter_bytes) for one in measured],
        ),
        "",
        *(f"- {one.name}: {one.form}{f'; {one.note}' if one.note else ''}." for one in results.runtimes),
        "",
    ]


def _row(runtime: RuntimeLoads, parameter_bytes: int) -> tuple[str, ...]:
    rounds = runtime.rounds
    ready = [one.ready_ms for one in rounds]
    firsts = [one.runs_ms[0] / median(one.runs_ms[1:]) for one in rounds]
    peak = median(one.peak_bytes for one in rounds) / parameter_bytes
    second = median(one.second_bytes for one in rounds) / _MIB
    return (
        runtime.name,
        f"{three_digits(median(ready))} ({three_digits(min(ready))})",
        f"{median(firsts):.2f}{TIMES} ({min(firsts):.2f})",
        f"{peak:.2f}{TIMES}",
        f"{second:.0f}",
    )
