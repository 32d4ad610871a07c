"""Times a bundle's own program beside ``run.py`` and ONNX Runtime, and compares reports' estimates."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from benchmarks.figure import summarize
from benchmarks.models.results import Ratio
from benchmarks.programs.native import MissingError, compiled, onnx_command, onnx_library
from benchmarks.programs.results import ProgramResult, StartedModel
from bessemer.bundle.manifest import LIBRARY, PROGRAM, REFERENCE_INPUTS, REFERENCE_OUTPUTS, REPORT, RUNNER
from bessemer.client import Client
from bessemer.contract.report import Report
from examples.local_service import local_service
from examples.models import EXAMPLES, Example
from examples.models.save import SavedAs, save
from worker.measure.statistics import round_ratios

MODELS = ("mlp", "cnn", "mobilenet_v2", "bert", "gpt2_block", "unet")
ROUNDS = 15
TOLERANCE = 1e-3
OURS = "the bundle's `run`"
ONNX_C = "ONNX Runtime, C API"
ONNX_PYTHON = "ONNX Runtime, Python"
ONNX = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options)
inputs = numpy.load(sys.argv[3])
session.run(None, {given.name: inputs[name] for given, name in zip(session.get_inputs(), inputs)})
"""

Run = tuple[float, float]
"""Milliseconds from start to exit, and the process's peak memory in MiB."""


@dataclass(frozen=True)
class Side:
    """A command that runs a model once, and the files that it needs besides Python."""

    command: Sequence[str]
    files: tuple[Path, ...] = ()


def measure_programs(
    folder: Path, names: Sequence[str], rounds: int, with_python: bool
) -> tuple[list[StartedModel], list[str]]:
    """Compile models and run each side in fresh processes, in turns.

    Args:
        folder: an empty folder.
        names: the names of example models.
        rounds: the number of runs of each side.
        with_python: whether to run ``run.py`` and ONNX Runtime's Python, too.

    Returns:
        the models, and the sides that are missing.
    """
    launcher = compiled("launch", folder)
    missing = []
    try:
        onnx_library()
        onnx_run = compiled("onnx_run", folder)
    except MissingError as error:
        onnx_run = None
        missing.append(f"{ONNX_C}: {error}")
    models = []
    with local_service(folder / "service") as url, Client(url) as client:
        for name in names:
            place = folder / name
            report = _compile(client, EXAMPLES[name], place)
            sides = _sides(EXAMPLES[name], place, report.target.cores, onnx_run)
            if not with_python:
                sides = {side: each for side, each in sides.items() if each.files}
            runs = [
                {side: _run(launcher, each.command, place / "bundle") for side, each in sides.items()}
                for _ in range(rounds)
            ]
            programs = [_result(side, each, runs) for side, each in sides.items()]
            models.append(StartedModel(name=name, programs=programs, over_estimate=_over_estimate(report)))
    return models, missing


def _compile(client: Client, example: Example, place: Path) -> Report:
    place.mkdir()
    model = place / "model.pt2"
    save(example, SavedAs.PT2, model)
    job = client.submit(client.upload(model).digest, target="host").wait()
    job.download(place / "bundle")
    return Report.read(json.loads((place / "bundle" / REPORT).read_text()))


def _sides(example: Example, place: Path, threads: int, onnx_run: Path | None) -> Mapping[str, Side]:
    bundle = place / "bundle"
    sides = {
        OURS: Side((f"./{PROGRAM}", "--threads", str(threads)), (bundle / PROGRAM, bundle / LIBRARY)),
        f"the bundle's `{RUNNER}`": Side((sys.executable, RUNNER)),
    }
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        return sides
    onnx = place / "model.onnx"
    torch.onnx.export(example.build(), example.example_inputs(), str(onnx), dynamo=False)
    if onnx_run is not None:
        command = _checked(onnx_run, onnx, threads, bundle)
        sides[ONNX_C] = Side(command, (onnx_run, onnx_library(), onnx))
    sides[ONNX_PYTHON] = Side((sys.executable, "-c", ONNX, str(onnx), str(threads), REFERENCE_INPUTS))
    return sides


def _checked(onnx_run: Path, onnx: Path, threads: int, bundle: Path) -> Sequence[str]:
    """The command of the C API, whose output is compared with the bundle's reference."""
    import onnx as package

    arrays = np.load(bundle / REFERENCE_INPUTS)
    given = [one.name for one in package.load(onnx, load_external_data=False).graph.input]
    inputs = dict(zip(given, arrays.values(), strict=True))
    output = onnx.with_name("output.bin")
    command = onnx_command(onnx_run, onnx, threads, inputs, output)
    subprocess.run(command, check=True)
    expected = next(iter(np.load(bundle / REFERENCE_OUTPUTS).values()))
    found = np.fromfile(output, np.float32).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * float(np.abs(expected).max()), rtol=0)
    return command


def _run(launcher: Path, command: Sequence[str], folder: Path) -> Run:
    done = subprocess.run([launcher, *command], cwd=folder, check=True, capture_output=True, text=True)
    milliseconds, kibibytes = map(float, done.stdout.splitlines()[-1].split())
    return milliseconds, kibibytes / 1024


def _result(name: str, side: Side, runs: Sequence[Mapping[str, Run]]) -> ProgramResult:
    times, ours = ([run[one][0] for run in runs] for one in (name, OURS))
    spread = round_ratios([[one] for one in ours], [[one] for one in times])
    return ProgramResult(
        name=name,
        milliseconds=summarize("start to exit", "ms", times),
        mebibytes=summarize("peak memory", "MiB", [run[name][1] for run in runs]),
        files_bytes=sum(path.stat().st_size for path in side.files) or None,
        ratio=None if name == OURS else Ratio(p10=spread.p10, median=spread.p50, p90=spread.p90),
    )


def _over_estimate(report: Report) -> float | None:
    if report.estimate is None or report.benchmark is None:
        return None
    estimated_ms = report.estimate.cycles / (_megahertz() * 1e3)
    return report.benchmark.latency.min_ms / estimated_ms


def _megahertz() -> float:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz"))
