"""Compiles models for a GPU: ``python -m benchmarks.gpu.prepare FOLDER sm_90 resnet50-32-bf16 …``.

Nothing here needs the GPU. Each bundle lies in the folder ``cases`` by its case's name.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu.cases import ALL, Case, parse
from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.target import PresetTarget, resolve_target
from worker.candidates.server import fork_server
from worker.compiler.pipeline.pipeline import run_pipeline
from worker.compiler.target import compile_target
from worker.compiler.values import StageContext, Upload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("arch")
    parser.add_argument("cases", nargs="*", type=parse, default=ALL)
    chosen = parser.parse_args()
    for case in chosen.cases:
        start = time.perf_counter()
        _compile(case, chosen.arch, chosen.folder / "cases" / case.name)
        print(f"{case.name}: {time.perf_counter() - start:.1f} s", flush=True)


def _compile(case: Case, arch: str, output: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    preset = f"cuda-{arch}"
    products = "tf32" if case.precision == "tf32" else "exact"
    request = CompilationRequest.model_validate(
        {
            "model": "0" * 64,
            "target": preset,
            "verification": "none",
            "optimize": {"float32_products": products},
        }
    )
    target = compile_target(resolve_target(PresetTarget(preset=preset), "x86-64-v3", 1))
    with tempfile.TemporaryDirectory() as made, fork_server(Path(made)) as candidates:
        model = Path(made) / "model.pt2"
        with torch.inference_mode():
            torch.export.save(torch.export.export(case.build(), case.inputs()), model)
        context = StageContext(
            scratch=Path(made),
            output=output,
            candidates=candidates,
            sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
            finished_stages=lambda: (),
            left_seconds=lambda: 1800.0,
        )
        run_pipeline(Upload(model, request, target), context)
    (output / ARCHIVE).unlink()


if __name__ == "__main__":
    main()
