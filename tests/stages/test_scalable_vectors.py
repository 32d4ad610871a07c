"""Code for SVE's vectors of a known length: where they are shorter it refuses to run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from platform_samples import built_for, bundle_of, innermost_loops, skip_unless_it_runs

from bessemer.bundle.manifest import PROGRAM
from bessemer.contract.target import ExplicitTarget, resolve_target
from bessemer.contract.triple import LINUX_AARCH64
from worker.compiler.platforms import launcher_of
from worker.compiler.values import StageContext

A64FX = resolve_target(ExplicitTarget(mcpu="a64fx", triple=LINUX_AARCH64), "x86-64", 2)


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["perceptron", "convolutions", "encoder", "functions"])
def test_code_for_512_bits_runs_with_as_many_and_is_refused_with_fewer(
    model: str, context: StageContext, tmp_path: Path
) -> None:
    skip_unless_it_runs(A64FX.triple)
    folder = bundle_of(built_for(A64FX, model, context), context, tmp_path / "bundle")

    launcher = launcher_of(A64FX.triple)
    assert launcher is not None
    emulator, *options = launcher.command

    def run(size: int) -> subprocess.CompletedProcess[str]:
        cpu = f"max,sve-default-vector-length={size}"
        command = [emulator, "-cpu", cpu, *options, str(folder / PROGRAM), "--threads", "1"]
        return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)

    done = {size: run(size) for size in (32, 64, 128)}
    assert [done[size].returncode == 0 for size in done] == [False, True, True]
    assert "SVE with vectors of 512 bits" in done[32].stderr


@pytest.mark.parametrize("model", ["perceptron", "convolutions"])
def test_products_use_whole_vectors_of_sve(model: str, context: StageContext) -> None:
    built_for(A64FX, model, context, inspect={"assembly": True}, verification="none")

    sources = "".join(path.read_text() for path in (context.scratch / "objects").glob("kernels*.s"))
    best = innermost_loops(sources, "aarch64 scalable")[0]
    assert best.multiply_adds >= 14
    assert best.multiply_adds >= 0.35 * best.instructions
    assert best.stack == 0
