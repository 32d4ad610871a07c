"""The part of docs/figures.md about the compilation of published models."""

from __future__ import annotations

from pathlib import Path

from benchmarks.compile_time.results import Published, PublishedResults
from benchmarks.tables import describe_machine, from_file, newest, table
from bessemer.contract.stage import Stage

TOPIC = "published"


def section(folder: Path) -> list[str]:
    """The section; empty without results."""
    path = newest(folder, TOPIC)
    if path is None:
        return []
    results = PublishedResults.model_validate_json(path.read_text())
    stages = (stage.value for stage in Stage)
    columns = ("model", "parameters", "upload", "early", "early again", "to the bundle", *stages, "rest")
    return [
        "## Compile times of published models",
        "",
        f"Run `make turnaround` to repeat this. {from_file(path)} {describe_machine(results.machine)}; load "
        f"average {results.load_before:.0f} before and {results.load_after:.0f} after.",
        "",
        "Each model has random weights and is compiled once, without a cached result: seconds from `POST` to "
        "the unpacked bundle, those of each stage, and the rest: the upload is fetched, and the bundle "
        "is checked, stored, downloaded and unpacked. `early` is another compilation, with "
        "`tune.publish_early`: seconds from `POST` to the unpacked bundle, verified and not measured yet. "
        "`early again` is the same for other weights, while the worker's cache has the compiled functions. "
        "On a machine with load, all times are longer.",
        "",
        *table(columns, [_row(one) for one in results.models]),
        "",
    ]


def _row(found: Published) -> tuple[str, ...]:
    seconds = {time.stage: time.seconds for time in found.stages}
    return (
        found.model,
        f"{found.parameters / 1e6:.1f} M",
        f"{found.upload_seconds:.1f}",
        _shown(found.early_seconds),
        _shown(found.again_seconds),
        f"{found.bundle_seconds:.1f}",
        *(f"{seconds.get(stage, 0.0):.1f}" for stage in Stage),
        f"{found.rest_seconds:.1f}",
    )


def _shown(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"
