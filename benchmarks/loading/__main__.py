"""Measures loading beside other runtimes: ``make bench-loading``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from benchmarks.loading.model import ids, write
from benchmarks.loading.results import Loaded, LoadingResults, RuntimeLoads
from benchmarks.machine import describe
from benchmarks.models.compiling import QUICK
from bessemer.client import Client
from examples.local_service import local_service

RESULTS = Path(__file__).parents[1] / "results"
ROUNDS = 5
ENDLESS = 1_000_000
SETTLED_SECONDS = 5.0
"""The time after which a program has run at least once."""


@dataclass(frozen=True)
class Runtime:
    """A way to load the model; ``package`` gives its version."""

    name: str
    probe: str
    package: str
    form: str


PROGRAM = Runtime("Bessemer, `./run`", "", "bessemer", "the bundle's program, without Python")
RUNTIMES = (
    Runtime("Bessemer, `run.py`", "bundle", "bessemer", "a bundle; parameters in place"),
    Runtime("Bessemer, `huge_pages`", "bundle-huge", "bessemer", "the same; parameters copied to huge pages"),
    Runtime("ONNX Runtime", "onnxruntime", "onnxruntime", "the model as ONNX, all optimizations"),
    Runtime("torch eager", "torch", "torch", "a module saved whole, `torch.load(mmap=True)`"),
)


def main() -> None:
    """Compile once, measure every runtime in turns, write the results."""
    arguments = _arguments()
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bessemer-loading-") as name:
        folder = Path(name)
        count = write(folder)
        np.save(folder / "ids.npy", ids().numpy())
        if arguments.bundle is None:
            _compile(folder)
        else:
            (folder / "bundle").symlink_to(arguments.bundle.absolute())
        runtimes = [
            RuntimeLoads(name=one.name, form=one.form, version=_version(one.package))
            for one in (*RUNTIMES, PROGRAM)
        ]
        for number in range(arguments.rounds):
            print(f"round {number + 1}", flush=True)
            for runtime, found in zip((*RUNTIMES, PROGRAM), runtimes, strict=True):
                _measure(runtime, found, folder, arguments.threads)
    results = LoadingResults(
        machine=describe(tuple(sorted({one.package for one in RUNTIMES if _version(one.package)}))),
        measured_at=datetime.now(UTC),
        minutes=round((time.monotonic() - began) / 60, 1),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
        threads=arguments.threads,
        parameter_bytes=count,
        runtimes=runtimes,
    )
    path = arguments.output or RESULTS / f"{results.measured_at:%Y-%m-%d}-loading.json"
    path.write_text(results.model_dump_json(indent=2) + "\n")
    print(f"written to {path}, after {results.minutes} minutes")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-loading", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each runtime")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads")
    parser.add_argument("--bundle", type=Path, help="a bundle of an earlier run")
    parser.add_argument("--output", type=Path, help="the results file")
    return parser.parse_args()


def _compile(folder: Path) -> None:
    print("compiling", flush=True)
    with local_service(folder / "service") as url, Client(url) as client:
        job = client.submit(folder / "model.pt2", target="host", benchmark=QUICK, cache=False).wait()
        job.download(folder / "bundle")


def _measure(runtime: Runtime, found: RuntimeLoads, folder: Path, threads: int) -> None:
    if found.note:
        return
    try:
        loaded = _program(folder, threads) if runtime is PROGRAM else _python(runtime, folder, threads)
        found.rounds.append(loaded)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        found.note = f"{type(error).__name__}: {error}"[:300]


def _python(runtime: Runtime, folder: Path, threads: int) -> Loaded:
    with (
        _probe(runtime, folder, threads) as (process, answer),
        _second(process, runtime, folder, threads) as both,
    ):
        return Loaded(**answer, second_bytes=both)


@contextmanager
def _second(first: subprocess.Popen[str], runtime: Runtime, folder: Path, threads: int) -> Iterator[int]:
    """What a second process adds to the memory of both, beyond what it has after its imports."""
    alone = _proportional_bytes(first.pid)
    with _probe(runtime, folder, threads) as (second, _):
        yield _proportional_bytes(first.pid) + _proportional_bytes(second.pid) - alone


@contextmanager
def _probe(
    runtime: Runtime, folder: Path, threads: int
) -> Iterator[tuple[subprocess.Popen[str], dict[str, float]]]:
    command = (sys.executable, "-W", "ignore", "-m", "benchmarks.loading.probe", runtime.probe)
    with subprocess.Popen(
        (*command, str(folder), str(threads)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
        process.stdin.write("\n")
        process.stdin.flush()


def _program(folder: Path, threads: int) -> Loaded:
    """The bundle's program, which measures itself."""
    report = folder / "report.json"
    command = (str(folder / "bundle" / "run"), "--threads", str(threads), "--repeat", "9")
    subprocess.run((*command, "--report", str(report)), check=True, capture_output=True)
    document = json.loads(report.read_text())
    (entry,) = document["entries"]
    return Loaded(
        ready_ms=entry["open_ms"],
        runs_ms=[entry["first_ms"], *entry["times_ms"]],
        peak_bytes=document["peak_memory_bytes"],
        second_bytes=_second_program((*command[:3], "--repeat", str(ENDLESS))),
    )


def _second_program(command: tuple[str, ...]) -> int:
    with _running(command) as first:
        alone = _proportional_bytes(first.pid)
        with _running(command) as second:
            return _proportional_bytes(first.pid) + _proportional_bytes(second.pid) - alone


@contextmanager
def _running(command: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs the model again and again until it is killed."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        time.sleep(SETTLED_SECONDS)
        yield process
        process.kill()


def _proportional_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
