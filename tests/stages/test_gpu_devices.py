"""Bundles for GPUs where there is one: a device that verifies them, and tensors in the GPU's memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundle_samples import unpacked
from stage_samples import Perceptron, capture_module, compile_and_verify

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.capability import Gpu, code_features
from bessemer.contract.device import DeviceResult
from bessemer.contract.target import PresetTarget, resolve_target
from worker.compiler.pipeline.benchmark import benchmark
from worker.compiler.pipeline.package import package
from worker.compiler.target import compile_target, device_features
from worker.compiler.values import StageContext

DEVICE = """
import json, os, sys
from pathlib import Path
from worker import device

class HeldLease(device.Lease):
    def renew(self): pass

folder, launcher = Path(sys.argv[1]), tuple(json.loads(sys.argv[2]))
task = {"threads": None, "repeat": 5, "repeat_seconds": 1.0, "timeout_seconds": 60.0, "memory_bytes": 1 << 32}
settings = device.Settings(
    url="", key=None, name="board", platform="x86_64-cuda", launcher=launcher, emulated=False, cores=2,
    memory_bytes=1 << 32, disk_bytes=1 << 30, folder=folder.parent, uid=os.geteuid(), once=True
)
lease = HeldLease(device.Service("http://127.0.0.1:9", None), "/", 60.0)
print(json.dumps(device.run_program(folder, task, settings, lease)))
"""
"""In a process of its own: a device ends all children of its process."""


@pytest.fixture
def bundle(context: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle of a network, which a device is to verify."""
    monkeypatch.setattr("worker.compiler.target.gpus_here", lambda: ())
    target = resolve_target(PresetTarget(preset="cuda-sm_90"), "x86-64-v3", 2)
    context = replace(context, by_device=True)
    captured = capture_module(Perceptron(), torch.randn(1, 16), target=target)
    verified = compile_and_verify(captured, context)
    assert (verified.ran, verified.comparisons) == (False, ())
    package(benchmark(verified, context), context)
    return unpacked(context.output / ARCHIVE, tmp_path / "on-device")


def run_on_device(bundle: Path, launcher: tuple[str, ...]) -> dict[str, Any]:
    command = [sys.executable, "-c", DEVICE, str(bundle), json.dumps(launcher)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_a_device_runs_the_bundle_on_its_gpu(bundle: Path, driver: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    launcher = ("env", f"LD_LIBRARY_PATH={driver}", f"FAKE_CUDA_LOG={log}", "FAKE_CUDA_ARCH=90")
    found = DeviceResult.model_validate(run_on_device(bundle, launcher))
    (entry,) = found.entries
    assert len(entry.times_ms) == 5
    assert entry.outputs[0].mismatches > 0  # the driver's kernels compute nothing
    assert "cuGraphLaunch" in log.read_text()


def test_a_device_without_the_driver_says_so(bundle: Path) -> None:
    found = run_on_device(bundle, ("env", "LD_LIBRARY_PATH="))
    assert "its driver (libcuda.so.1) is not installed here" in found["failure"]


@pytest.mark.parametrize(("device", "status"), [("cuda", 0), ("cpu", 1)])
def test_run_fails_unless_the_library_computes_where_it_should(
    device: str, status: int, bundle: Path, driver: Path, tmp_path: Path
) -> None:
    settings = {"LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_ARCH": "90"}
    np.save(tmp_path / "x.npy", np.ones((1, 16), np.float32))
    command = [sys.executable, "run.py", "--device", device, "--input", f"input_0={tmp_path / 'x.npy'}"]

    done = subprocess.run(
        command, cwd=bundle, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )

    assert done.returncode == status, done.stderr
    assert ("the library computes on cuda, not on cpu" in done.stderr) == bool(status)


def test_a_session_runs_on_tensors_in_the_gpus_memory(bundle: Path, driver: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = {"LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_LOG": str(log), "FAKE_CUDA_ARCH": "90"}
    command = [sys.executable, str(Path(__file__).with_name("gpu_tensors.py")), str(bundle)]

    done = subprocess.run(
        command, env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["new"] == {"shape": [1, 4], "device": "cuda:0"}
    assert shown["is_own"]
    assert shown["first_byte"] > 0  # the driver's kernels add to the first byte
    expected = "expected a contiguous input_0=1x16:float32 on cuda:0"
    assert shown["refused"] == {
        "missing": "missing tensor 'input_0'",
        "elsewhere": f"'input_0' is float32[1, 16] on cpu:0; {expected}",
        "another GPU": f"'input_0' is float32[1, 16] on cuda:1; {expected}",
        "another size": f"'input_0' is float32[2, 16] on cuda:0; {expected}",
        "not contiguous": f"'input_0' is float32[1, 16] on cuda:0; {expected}",
        "unknown input": "unknown input 'x': the model has input_0",
        "unknown output": "unknown output 'y': the model has output_0",
        "unknown entry": "unknown entry point 'train': the library has main",
    }
    calls = log.read_text()
    assert "to_device" in calls.split("cuLaunchKernel")[0]  # the parameters, before the first run
    assert "to_device" not in calls.split("cuLaunchKernel", 1)[1]
    assert "to_host" not in calls
    assert calls.count("cuGraphLaunch") == 2  # from the second run on the same tensors


@pytest.mark.parametrize(
    ("preset", "runs", "does_not"),
    [
        ("cuda-sm_90", {"sm_90"}, {"sm_80", "sm_100"}),
        ("cuda-sm_80", {"sm_80", "sm_86"}, {"sm_75", "sm_90"}),
        ("cuda", {"sm_75", "sm_90", "sm_120"}, {"sm_70"}),
    ],
)
def test_a_target_needs_a_gpu_that_runs_its_code(preset: str, runs: set[str], does_not: set[str]) -> None:
    target = compile_target(resolve_target(PresetTarget(preset=preset), "x86-64-v3", 2))
    needed = device_features(target)[-1]
    found = {
        arch
        for arch in runs | does_not
        if needed in code_features(Gpu(name="", arch=arch, memory_bytes=1, cuda="13.0"))
    }
    assert found == runs
    assert not code_features(Gpu(name="", arch="sm_90", memory_bytes=1, cuda="12.8"))
