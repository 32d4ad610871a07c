"""Compiles models for a GPU: ``python -m benchmarks.gpu.prepare FOLDER sm_90 resnet50-32-bf16 …``.

Nothing here needs the GPU. Each bundle is in the folder ``cases`` under its case's name.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.cases import ALL, Case, parse
from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.target import PresetTarget, resolve_target
from worker.candidates.server import fork_server
from worker.compiler.pipeline.pipeline import run_pipeline
from worker.compiler.target import CompileTarget, compile_target
from worker.compiler.values import StageContext, Upload
from worker.measure.turns import ANY_TIME, Turns
from worker.protocol.observer import JobObserver


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("arch")
    parser.add_argument("cases", nargs="*", type=parse, default=ALL)
    chosen = parser.parse_args()
    for case in chosen.cases:
        start = time.perf_counter()
        compile_case(case, target_of(chosen.arch), chosen.folder / "cases" / case.name)
        print(f"{case.name}: {time.perf_counter() - start:.1f} s", flush=True)


def target_of(arch: str) -> CompileTarget:
    """A GPU beside this machine's cores."""
    cores = len(os.sched_getaffinity(0))
    return compile_target(resolve_target(PresetTarget(preset=f"cuda-{arch}"), "x86-64-v3", cores))


def compile_case(
    case: Case,
    target: CompileTarget,
    output: Path,
    tuning: Mapping[str, Any] | None = None,
    observer: JobObserver | None = None,
    turns: Turns = ANY_TIME,
) -> None:
    """Compile a model to a bundle in an unpacked folder, without verification.

    Args:
        case: the model.
        target: the GPU, and the processor beside it.
        output: the folder; the search's log and records are beside it, under its name.
        tuning: the options of a search, if there is one.
        observer: is notified of stages and progress.
        turns: the turns in which it may measure.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    request = CompilationRequest.model_validate(
        {
            "model": "0" * 64,
            "target": target.resolved.name,
            "verification": "none",
            "optimize": {"float32_products": "tf32" if case.precision == "tf32" else "exact"},
            "tune": dict(tuning or {}),
        }
    )
    with tempfile.TemporaryDirectory() as made, fork_server(Path(made), turns=turns) as candidates:
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
            observer=observer or JobObserver(),
        )
        try:
            run_pipeline(Upload(model, request, target), context)
        finally:
            _keep(Path(made), output)
    (output / ARCHIVE).unlink()


def _keep(scratch: Path, output: Path) -> None:
    log, records = scratch / "tune.log", scratch / "records"
    if log.exists():
        shutil.copy(log, output.with_name(f"{output.name}.log"))
    if records.exists():
        shutil.copytree(records, output.with_name(f"{output.name}.records"), dirs_exist_ok=True)


if __name__ == "__main__":
    main()
