"""The processor time of an idle service."""

import time
from pathlib import Path

import psutil

from benchmarks.figure import Figure, summarize
from examples.local_service import local_service

PROGRAMS = ("app", "worker", "worker.job.zygote")
SETTLING_SECONDS = 10.0
WINDOWS = 12
WINDOW_SECONDS = 5.0


def measure_idling(folder: Path) -> list[Figure]:
    """Measure an idle app and an idle worker, on SQLite and a folder."""
    with local_service(folder / "idling"):
        time.sleep(SETTLING_SECONDS)
        found = {name: _program(name) for name in PROGRAMS}
        samples = [_shares(found) for _ in range(WINDOWS)]
    return [
        summarize(f"idle: {name}", "% of a core", [sample[name] for sample in samples]) for name in PROGRAMS
    ]


def _program(name: str) -> psutil.Process:
    """The child process that runs a module."""
    below = psutil.Process().children(recursive=True)
    (process,) = (each for each in below if each.cmdline()[-2:] == ["-m", name])
    return process


def _shares(programs: dict[str, psutil.Process]) -> dict[str, float]:
    before = {name: _seconds(process) for name, process in programs.items()}
    began = time.monotonic()
    time.sleep(WINDOW_SECONDS)
    seconds = time.monotonic() - began
    return {name: 100 * (_seconds(process) - before[name]) / seconds for name, process in programs.items()}


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
