"""Times a bundle's own program beside ``run.py`` and ONNX Runtime, and compares reports' estimates."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.figure import Figure, summarize
from bessemer.client import Client
from bessemer.contract.report import Report
from examples.local_service import local_service
from examples.models import EXAMPLES, Example
from examples.models.save import SavedAs, save

MODELS = ("mlp", "cnn", "mobilenet_v2", "bert", "gpt2_block", "unet")
ROUNDS = 15
ONNX = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options)
inputs = numpy.load(sys.argv[3])
session.run(None, {given.name: inputs[name] for given, name in zip(session.get_inputs(), inputs)})
"""
LAUNCHER = """
import os, resource, sys, time
start = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
milliseconds = (time.perf_counter() - start) * 1e3
print()
print(milliseconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
sys.exit(status)
"""
"""A small process: a child's peak memory is at least that of the process that starts it."""


def measure_programs(folder: Path) -> list[Figure]:
    """Compile models and run each bundle in fresh processes, in turns with ONNX Runtime if installed."""
    with local_service(folder / "programs") as url, Client(url) as client:
        return [
            figure
            for name in MODELS
            for figure in _measure(client, EXAMPLES[name], folder / "programs" / name)
        ]


def _measure(client: Client, example: Example, folder: Path) -> list[Figure]:
    folder.mkdir()
    model, bundle = folder / "model.pt2", folder / "bundle"
    save(example, SavedAs.PT2, model)
    job = client.submit(client.upload(model).digest, target="host").wait()
    job.download(bundle)
    report = Report.read(json.loads((bundle / "report.json").read_text()))
    threads = str(report.target.cores)
    commands = {"run": ["./run", "--threads", threads], "run.py": [sys.executable, "run.py"]}
    if find_spec("onnxruntime") and find_spec("onnx"):
        onnx = folder / "model.onnx"
        torch.onnx.export(example.build(), example.example_inputs(), str(onnx), dynamo=False)
        arguments = [str(onnx), threads, "reference/inputs.npz"]
        commands["ONNX Runtime"] = [sys.executable, "-c", ONNX, *arguments]
    runs = [{name: _run(command, bundle) for name, command in commands.items()} for _ in range(ROUNDS)]
    name = example.name
    return [
        *(
            summarize(f"{name}, {side}, start to exit", "ms", [run[side][0] for run in runs])
            for side in commands
        ),
        *(
            summarize(f"{name}, {side}, peak memory", "MiB", [run[side][1] for run in runs])
            for side in commands
        ),
        *_over_estimate(name, report),
    ]


def _run(command: list[str], folder: Path) -> tuple[float, float]:
    """Milliseconds from start to exit, and the process's peak memory in MiB, at least the launcher's ten."""
    launched = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
    done = subprocess.run(launched, cwd=folder, check=True, capture_output=True, text=True)
    milliseconds, mebibytes = map(float, done.stdout.splitlines()[-1].split())
    return milliseconds, mebibytes


def _over_estimate(name: str, report: Report) -> list[Figure]:
    """The fastest measured run over the estimate at this processor's clock."""
    if report.estimate is None or report.benchmark is None:
        return []
    estimated_ms = report.estimate.cycles / (_megahertz() * 1e3)
    return [
        summarize(f"{name}, fastest run over estimate", "x", [report.benchmark.latency.min_ms / estimated_ms])
    ]


def _megahertz() -> float:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz"))
