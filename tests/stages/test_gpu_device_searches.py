"""Searches for a GPU whose candidates a device times, on a driver that makes times up."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from own_device import OwnDevice
from stage_samples import Perceptron, capture_module, optimized

from bessemer.contract.options import SearchEnd
from bessemer.contract.target import PresetTarget, resolve_target
from worker.candidates.gpu_timing import GpuCandidate, GpuLaunch
from worker.compiler.codegen.standalone.candidate import write_gpu_candidate_program
from worker.compiler.pipeline.tune import tune
from worker.compiler.target import host_triple
from worker.compiler.tuning.on_gpu_device import launch_lines
from worker.compiler.values import StageContext, Tuned

pytestmark = pytest.mark.usefixtures("warm")

SM_90 = resolve_target(PresetTarget(preset="cuda-sm_90"), "x86-64-v3", 2)


@pytest.fixture
def driver(driver: Path) -> dict[str, str]:
    """The environment in which programs find the driver."""
    return {"LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_ARCH": "90", "FAKE_CUDA_STILL": "1"}


def launched_by(environment: Mapping[str, str]) -> tuple[str, ...]:
    return ("env", *(f"{name}={value}" for name, value in environment.items()))


def searched(
    context: StageContext, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Tuned, OwnDevice]:
    monkeypatch.setattr("worker.compiler.target.gpus_here", lambda: ())
    archive = context.output / "candidates.tar.zst"
    own = OwnDevice(context.scratch / "device", archive, launched_by(environment))
    captured = capture_module(Perceptron(), torch.randn(1, 16), target=SM_90, tune={"trials": 4})
    on_device = replace(context, devices=own, by_device=True)
    return tune(optimized(captured, on_device), on_device), own


@pytest.mark.slow
def test_a_device_times_the_kernels_that_a_search_proposes(
    context: StageContext, driver: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned, own = searched(context, driver, monkeypatch)
    result = tuned.result
    assert (result.trials, result.ended_by, result.device_failure) == (4, SearchEnd.TRIALS, None)
    assert [each.name for each in result.devices] == ["board"]
    assert all(task.default_ms is not None for task in result.tasks)
    assert [task.failure for task in result.tasks if task.failed] == []
    assert {batch.platform for batch in own.batches} == {"x86_64-cuda"}
    assert {batch.device_features[-1] for batch in own.batches} == {"sm_90"}
    assert not own.archive.exists()


@pytest.mark.slow
def test_the_whole_model_is_compared_on_the_devices_gpu(
    context: StageContext, driver: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.compiler.tuning.record_selection.beats", lambda _ours, _theirs: True)
    monkeypatch.setattr(
        "worker.compiler.tuning.record_selection.may_beat", lambda ours, _theirs: ours is not None
    )
    tuned, own = searched(context, driver, monkeypatch)
    assert (own.batches[-1].count, own.batches[-1].rounds, own.batches[-1].together) == (2, 8, True)
    assert tuned.result.search_ms is not None
    assert tuned.result.default_ms is not None
    assert tuned.result.crashed is None


@pytest.mark.slow
def test_candidates_of_a_device_without_a_driver_fail(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned, _ = searched(context, {"LD_LIBRARY_PATH": ""}, monkeypatch)
    assert all(task.failed == task.trials for task in tuned.result.tasks)
    failures = [task.failure or "" for task in tuned.result.tasks if task.trials]
    assert failures and all("libcuda.so.1" in failure for failure in failures)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that devices run, in a folder of its own."""
    program = tmp_path_factory.mktemp("program") / "candidate"
    write_gpu_candidate_program(program, host_triple())
    return program


def written(folder: Path, kernel: str) -> str:
    """A candidate of one kernel that writes its second argument."""
    folder.mkdir()
    (folder / "kernels.fatbin").write_bytes(bytes(16))
    launch = GpuLaunch(kernel, (4, 1, 1), (32, 1, 1), 64 << 10, (1, 0, 2))
    lines = launch_lines(GpuCandidate("kernels.fatbin", (launch,), (256,), (1,)))
    (folder / "launches").write_text("\n".join(lines))
    return str(folder / "launches")


@pytest.mark.parametrize(
    ("kernel", "dtype", "failure"),
    [
        ("right", "float32", None),
        ("right", "float16", None),
        ("right", "int8", None),
        ("wrong", "float32", "argument 1 differs from the default schedule's in 4 of 8 elements"),
        ("wrong", "float16", "argument 1 differs from the default schedule's in"),
        ("wrong", "bfloat16", "argument 1 differs from the default schedule's in"),
        ("wrong", "int8", "argument 1 differs from the default schedule's in 8 of 8 elements"),
        ("fails", "float32", "the GPU failed to start a kernel (CUDA error 700)"),
    ],
)
def test_a_candidate_must_have_the_results_of_its_reference(
    program: Path, driver: dict[str, str], tmp_path: Path, kernel: str, dtype: str, failure: str | None
) -> None:
    reference, candidate = written(tmp_path / "0", "right"), written(tmp_path / "1", kernel)
    report = tmp_path / "report.json"
    limits = ("--threads", "2", "--repeat", "8", "--seconds", "0.01", "--report", str(report))
    tensors = (f"{dtype}:4x2", f"{dtype}:8")
    command = [str(program), candidate, "--reference", reference, *tensors, *limits]
    done = subprocess.run(command, capture_output=True, text=True, env=driver, check=False)
    if failure is None:
        assert (done.returncode, done.stderr) == (0, "")
        assert '"times_ms": [0.129000]' in report.read_text()
    else:
        assert done.returncode == 1
        assert failure in done.stderr
