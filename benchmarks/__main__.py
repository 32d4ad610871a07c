"""Benchmarks the service and writes ``benchmarks/results/<date>-service.json``: ``make bench``."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from benchmarks.authentication import measure_authentication
from benchmarks.cancelling import measure_cancelling
from benchmarks.confinement import measure_confinement
from benchmarks.console import measure_console
from benchmarks.figure import Figure
from benchmarks.idling import measure_idling
from benchmarks.machine import SERVICE_PACKAGES, Machine, describe
from benchmarks.tuning import measure_tuning
from benchmarks.turnaround import measure_turnaround
from benchmarks.upload import measure_upload
from examples.environment import forget_settings

RESULTS = Path(__file__).parent / "results"
MEASURES = (
    measure_upload,
    measure_console,
    measure_authentication,
    measure_idling,
    measure_confinement,
    measure_turnaround,
    measure_cancelling,
    measure_tuning,
)


class Results(BaseModel):
    """The results of one run."""

    machine: Machine
    measured_at: datetime
    figures: list[Figure]


def main() -> None:
    """Run every benchmark, print a table, write the file."""
    forget_settings()
    console = Console()
    machine = describe(SERVICE_PACKAGES)
    console.print(f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB")
    with tempfile.TemporaryDirectory(prefix="bessemer-bench-") as folder:
        figures = [figure for measure in MEASURES for figure in measure(Path(folder))]
    console.print(_table(figures))
    results = Results(machine=machine, measured_at=datetime.now(UTC), figures=figures)
    path = RESULTS / f"{results.measured_at:%Y-%m-%d}-service.json"
    path.write_text(results.model_dump_json(indent=2) + "\n")
    console.print(f"written to {path}")


def _table(figures: list[Figure]) -> Table:
    table = Table("figure", "unit", "samples", "best", "p10", "median", "p90", "aim")
    for figure in figures:
        values = (
            f"{value:g}" for value in (figure.samples, figure.best, figure.p10, figure.median, figure.p90)
        )
        table.add_row(figure.name, figure.unit, *values, "" if figure.aim is None else f"≤ {figure.aim:g}")
    return table


if __name__ == "__main__":
    main()
