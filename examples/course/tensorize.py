"""Tensorize a layer with a 16 by 16 micro-kernel, in three implementations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bessemer.client import Client, Job
from bessemer.contract.options import InspectOptions, TuneOptions
from examples.course.session import body_of, run, trained
from examples.models.save import SavedAs

FUNCTION = "fused_linear_add_relu"


def show(client: Client, folder: Path) -> None:
    """Tensorize the MLP's wide layer in TensorIR, in C, and with LLVM's multiply-add."""
    model = trained("mlp", folder, SavedAs.TRACED)
    for name in ("tir", "c", "fma"):
        job = _compile(client, model, name)
        bundle = job.download(folder / name)
        (task,) = json.loads((bundle / "report.json").read_text())["tune"]["tasks"]
        print(f"{name}: {task['found_ms']:.4g} ms, the default {task['default_ms']:.4g} ms")
        assert task["kept"]
        _show_intrinsic(bundle, name)
        _show_assembly(job, folder / f"{name}.s")
        subprocess.run([sys.executable, bundle / "run.py"], check=True, capture_output=True)


def _compile(client: Client, model: Path, name: str) -> Job:
    return client.submit(
        model,
        inputs={"x": (16, 784)},
        target="x86-64-v3",
        tune=TuneOptions(trials=1, spaces={FUNCTION: f"course-micro-kernel-{name}"}, force=True),
        inspect=InspectOptions(assembly=True),
    ).wait()


def _show_intrinsic(bundle: Path, name: str) -> None:
    script = (bundle / "records" / f"{FUNCTION}.py").read_text()
    (line,) = (line.strip() for line in script.splitlines() if "sch.tensorize(" in line)
    print(f"    {line}")
    assert f'"course-update-16x16-{name}"' in line


def _show_assembly(job: Job, path: Path) -> None:
    lines = body_of(FUNCTION, job.download_artifact("model.s", path).read_text())
    multiplications = [line for line in lines if line.startswith("vfmadd") and "ymm" in line]
    print(f"    {len(multiplications)} fused multiply-adds of eight floats, such as {multiplications[0]}")
    assert not any("bessemer_update_16x16" in line for line in lines), "the imported function is inlined"


if __name__ == "__main__":
    run(show)
