"""Measures how programs start, and writes ``…-programs.json``: ``make bench-programs``."""

import argparse
import os
import tempfile
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks.machine import describe
from benchmarks.programs.measure import MODELS, ROUNDS, measure_programs
from benchmarks.programs.page import TOPIC
from benchmarks.programs.results import ProgramsResults
from examples.environment import forget_settings

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Measure, print a table, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--native", action="store_true", help="only programs that need no Python")
    options = parser.parse_args()
    forget_settings()
    packages = tuple(name for name in ("onnxruntime",) if find_spec(name) is not None)
    load_before = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory(prefix="bessemer-programs-") as folder:
        models, missing = measure_programs(
            Path(folder), options.models or MODELS, options.rounds, not options.native
        )
    console = Console()
    for model in models:
        for program in model.programs:
            times, peak = program.milliseconds.median, program.mebibytes.median
            console.print(f"{model.name:14} {program.name:24} {times:9.2f} ms {peak:8.1f} MiB")
    results = ProgramsResults(
        machine=describe(packages),
        measured_at=datetime.now(UTC),
        load_before=load_before,
        threads=len(os.sched_getaffinity(0)),
        rounds=options.rounds,
        missing=missing,
        models=models,
    )
    path = RESULTS / f"{results.measured_at:%Y-%m-%d}-{TOPIC}.json"
    path.write_text(results.model_dump_json(indent=1) + "\n")
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
