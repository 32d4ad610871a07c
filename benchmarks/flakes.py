"""``python -m benchmarks.flakes``: reads ``RUNS``, ``PARTS`` and ``FILES_AT_ONCE`` from the environment.

Runs the tests repeatedly, each time in new processes, and adds every run to
``benchmarks/results/<date>-flakes.json``.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from pydantic import BaseModel
from rich.console import Console

from benchmarks.machine import SERVICE_PACKAGES, Machine, describe

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PYTEST = (sys.executable, "-m", "pytest", "--dist", "loadfile", "--no-loadscope-reorder")


class Run(BaseModel):
    """One test run."""

    began_at: datetime
    commit: str
    parts: list[str]
    files_at_once: int
    seconds: float
    tests: int
    skipped: int
    failed: list[str]


class Flakes(BaseModel):
    """The runs of one day."""

    machine: Machine
    runs: list[Run]


def summary(runs: Sequence[Run]) -> str:
    """Summarize runs in one line."""
    tests = sum(run.tests for run in runs)
    failed = {name for run in runs for name in run.failed}
    return f"{len(runs)} runs, {tests} tests run, {len(failed)} failed at least once"


def run_once(parts: list[str], files_at_once: int) -> Run:
    """Run these folders of ``tests`` like ``make test-all``."""
    began_at, began = datetime.now(UTC), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bessemer-flakes-") as folder:
        report = Path(folder) / "report.xml"
        paths = [f"tests/{part}" for part in parts]
        options = ("--numprocesses", str(files_at_once), "--junitxml", str(report))
        ended = subprocess.run([*PYTEST, *options, *paths], cwd=ROOT, check=False)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failed = [_name(case) for case in cases if _has(case, "failure", "error")]
    if ended.returncode and not failed:
        failed = [f"pytest ended with {ended.returncode}"]
    return Run(
        began_at=began_at,
        commit=_commit(),
        parts=parts,
        files_at_once=files_at_once,
        seconds=round(time.monotonic() - began, 1),
        tests=len(cases),
        skipped=sum(_has(case, "skipped") for case in cases),
        failed=failed,
    )


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _has(case: ElementTree.Element, *children: str) -> bool:
    return any(case.find(child) is not None for child in children)


def _commit() -> str:
    command = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Run the tests, save each run, print a summary. Return 1 if a test failed."""
    console = Console()
    parts = os.environ["PARTS"].split()
    files_at_once = int(os.environ["FILES_AT_ONCE"])
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-flakes.json"
    flakes = Flakes(machine=describe(SERVICE_PACKAGES), runs=[])
    if path.exists():
        flakes.runs += Flakes.model_validate_json(path.read_text()).runs
    earlier = len(flakes.runs)
    for _ in range(int(os.environ["RUNS"])):
        run = run_once(parts, files_at_once)
        flakes.runs.append(run)
        path.write_text(flakes.model_dump_json(indent=2) + "\n")
        console.print(
            f"run {len(flakes.runs)}: {run.tests} tests in {run.seconds:.0f} s, {len(run.failed)} failed",
            *run.failed,
            sep="\n  ",
            highlight=False,
            markup=False,
        )
    console.print(f"written to {path}")
    ran = flakes.runs[earlier:]
    console.print(summary(ran), highlight=False)
    return 1 if any(run.failed for run in ran) else 0


if __name__ == "__main__":
    sys.exit(main())
