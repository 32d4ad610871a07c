"""Libraries for GPUs, run on a driver that keeps a log: what they ask of it, and how they fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import zstandard
from stage_samples import Perceptron, capture_module, compile_to_library, make_context

from bessemer.contract.code import CODE_INDEX, CODE_TEXTS, CodeListing
from bessemer.contract.target import PRESETS, Preset, PresetTarget, resolve_target
from worker.compiler.values import Built

SM_90 = resolve_target(PresetTarget(preset="cuda-sm_90"), "x86-64-v3", 2)
NOT_INSTALLED = "this library computes on an NVIDIA GPU, and its driver (libcuda.so.1) is not installed here"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Two linear layers."""
    context = make_context(tmp_path_factory.mktemp("built"))
    captured = capture_module(Perceptron(), torch.randn(3, 16), target=SM_90, inspect={"assembly": True})
    return compile_to_library(captured, context)


class Run:
    """One run of the library's program on the driver."""

    def __init__(
        self, built: Built, driver: Path | None, folder: Path, *options: str, **settings: str
    ) -> None:
        assert built.program is not None
        np.savez(folder / "in.npz", input_0=np.ones((3, 16), np.float32))
        log = folder / "log"
        environment = {**os.environ, **settings, "FAKE_CUDA_LOG": str(log)}
        if driver is not None:
            environment["LD_LIBRARY_PATH"] = str(driver)
        command = [str(built.program), "--inputs", str(folder / "in.npz"), *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.status, self.words = done.returncode, done.stdout + done.stderr
        self.log = log.read_text().splitlines() if log.exists() else []

    def count(self, name: str) -> int:
        """How often the library called a function of the driver."""
        return sum(line.startswith(f"{name} ") for line in self.log)


def test_the_report_has_what_each_kernel_uses(built: Built) -> None:
    assert {kernel.arch for kernel in built.gpu_kernels} == {"sm_90"}
    assert all(0 < kernel.registers <= 255 for kernel in built.gpu_kernels)
    assert not any(kernel.spilled_bytes for kernel in built.gpu_kernels)


def test_each_function_has_the_ptx_of_its_kernels(built: Built) -> None:
    listing = CodeListing.read_json((built.library.parent / CODE_INDEX).read_bytes())
    texts = (built.library.parent / CODE_TEXTS).read_bytes()
    for function in built.gpu_functions:
        found = listing.named(function.name)
        assert found is not None
        frame = texts[found.ptx.offset :][: found.ptx.packed_bytes]
        ptx = zstandard.decompress(frame).decode()
        assert all(f".entry {kernel}(" in ptx for kernel in function.kernels)


def test_a_run_copies_inputs_starts_kernels_and_copies_outputs(
    built: Built, driver: Path, tmp_path: Path
) -> None:
    run = Run(built, driver, tmp_path)
    assert run.status == 0, run.words
    kernels = [line.split()[1] for line in run.log if line.startswith("cuModuleGetFunction")]
    launched = [line.split()[1] for line in run.log if line.startswith("cuLaunchKernel")]
    assert set(launched) == set(kernels) == {kernel.name for kernel in built.gpu_kernels}
    assert run.log[-1].startswith("cuMemFree")
    assert "to_device 192" in run.log
    assert "to_host 48" in run.log


def test_from_the_second_run_on_one_graph_is_launched(built: Built, driver: Path, tmp_path: Path) -> None:
    run = Run(built, driver, tmp_path, "--repeat", "10")
    kernels = run.count("cuModuleGetFunction")
    assert (run.count("cuGraphInstantiate"), run.count("cuGraphLaunch")) == (1, 10)
    assert run.count("cuLaunchKernel") == 2 * kernels


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("cuInit=100", "this library computes on an NVIDIA GPU, and none is visible here"),
        (
            "cuModuleLoadData=209",
            "the GPU (Fake GPU, sm_75, driver for CUDA 12.4) cannot run this library, which has code for "
            "sm_90 and was made by CUDA 13.0: compile it for sm_75, or update the driver (CUDA error 209)",
        ),
        ("cuModuleLoadData=222", "or update the driver (CUDA error 222)"),
        (
            "cuMemAlloc=2",
            "out of memory on the GPU: 0 MiB are needed for the parameters, and 5 of 8 MiB are free",
        ),
        ("cuLaunchKernel=700", "(CUDA error 700)"),
        ("cuStreamSynchronize=719", "(CUDA error 719)"),
    ],
)
def test_each_failure_of_the_driver_is_told_in_words(
    failure: str, words: str, built: Built, driver: Path, tmp_path: Path
) -> None:
    run = Run(built, driver, tmp_path, FAKE_CUDA_FAILURE=failure)
    assert run.status == 1
    assert words in run.words


def test_without_a_driver_the_program_says_so(built: Built, tmp_path: Path) -> None:
    run = Run(built, None, tmp_path)
    assert (run.status, NOT_INSTALLED in run.words) == (1, True), run.words


@pytest.mark.sampled
@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset.gpus], ids=lambda each: each.name)
def test_every_preset_for_gpus_builds(preset: Preset, tmp_path: Path) -> None:
    target = resolve_target(PresetTarget(preset=preset.name), "x86-64-v3", 2)
    context = make_context(tmp_path)
    captured = capture_module(Perceptron(), torch.randn(3, 16), target=target)

    built = compile_to_library(captured, context)

    assert {kernel.arch for kernel in built.gpu_kernels} == set(preset.gpus)
    assert not any(kernel.spilled_bytes for kernel in built.gpu_kernels)


def test_bfloat16_builds_for_a_gpu_without_it(tmp_path: Path) -> None:
    target = resolve_target(PresetTarget(preset="cuda-sm_75"), "x86-64-v3", 2)
    model = torch.nn.Sequential(torch.nn.LayerNorm(64), torch.nn.Linear(64, 64), torch.nn.GELU())
    context = make_context(tmp_path)
    inputs = torch.randn(64, 64, dtype=torch.bfloat16)
    captured = capture_module(model.to(torch.bfloat16), inputs, target=target)

    built = compile_to_library(captured, context)

    assert {kernel.arch for kernel in built.gpu_kernels} == {"sm_75"}
