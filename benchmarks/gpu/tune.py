"""Tunes models on this machine's GPU: ``python -m benchmarks.gpu.tune FOLDER resnet50-32-bf16 … --trials N``.

Each tuned bundle lies in the folder by its case's name, with ``tuning.json`` beside it. A case that fails is
printed, and the next one follows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.cases import Case, parse
from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget, resolve_target
from worker.candidates.server import fork_server
from worker.compiler.pipeline.pipeline import run_pipeline
from worker.compiler.target import compile_target
from worker.compiler.values import StageContext, Upload
from worker.job.warmup import import_everything
from worker.measure.gpus import gpus_here
from worker.protocol.observer import JobObserver

_PRINT_SECONDS = 3.0


@dataclass
class Printed(JobObserver):
    """Prints stages, and progress every few seconds."""

    started: float = field(default_factory=time.perf_counter)
    _last: float = 0.0

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """See ``JobObserver``."""
        self._print(f"{stage.value}: {seconds:.1f} s")

    def progress(self, stage: Stage, done: int, total: int, detail: str, estimate: Any = None) -> None:
        """See ``JobObserver``."""
        if time.perf_counter() - self._last >= _PRINT_SECONDS:
            self._last = time.perf_counter()
            self._print(f"{stage.value}: {done} of {total} {detail}")

    def _print(self, text: str) -> None:
        print(f"  {time.perf_counter() - self.started:6.1f} s  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="+", type=parse)
    parser.add_argument("--trials", type=int, default=64, help="for each case")
    parser.add_argument("--seconds", type=float, default=60.0, help="of searching, for each case")
    parser.add_argument("--search", choices=("both", "plans", "metaschedule"), default="both")
    parser.add_argument("--arch", help="such as sm_90; this machine's GPU by default")
    chosen = parser.parse_args()
    import_everything()
    found = gpus_here()
    for gpu in found:
        print(f"{gpu.name} ({gpu.arch}), driver for CUDA {gpu.cuda}", flush=True)
    arch = chosen.arch or (found[0].arch if found else "sm_90")
    for case in chosen.cases:
        print(f"{case.name}:", flush=True)
        try:
            _tune(case, arch, chosen)
        except Exception:
            traceback.print_exc()


def _tune(case: Case, arch: str, chosen: argparse.Namespace) -> None:
    output = chosen.folder / case.name
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    options = {"trials": chosen.trials, "seconds": chosen.seconds, "search": chosen.search}
    preset = f"cuda-{arch}"
    request = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": preset, "verification": "none", "tune": options}
    )
    cores = len(os.sched_getaffinity(0))
    target = compile_target(resolve_target(PresetTarget(preset=preset), "x86-64-v3", cores))
    if not target.has_gpu:
        print(f"  no GPU here runs {preset} with this driver: nothing will be measured", flush=True)
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
            observer=Printed(),
        )
        try:
            run_pipeline(Upload(model, request, target), context)
        finally:
            log = Path(made) / "tune.log"
            if log.exists():
                shutil.copy(log, chosen.folder / f"{case.name}.log")
    (output / ARCHIVE).unlink(missing_ok=True)
    tuned = json.loads((output / "report.json").read_text(encoding="utf-8"))["tune"]
    (output / "tuning.json").write_text(json.dumps(tuned, indent=1), encoding="utf-8")
    print("\n".join(_lines(tuned)), flush=True)


def _lines(tuned: dict[str, Any]) -> list[str]:
    """The search's result for people."""
    lines = [
        f"  {tuned['trials']} trials, ended by {tuned['ended_by']}, kept {tuned['kept']}: "
        f"search {tuned['search_ms']} ms, default {tuned['default_ms']} ms"
    ]
    for task in tuned["tasks"]:
        default, found = task["default_ms"], task["found_ms"]
        ratio = f" {default / found:.2f}x" if default and found else ""
        failed = f", {task['failed']} failed ({str(task['failure'])[:120]})" if task["failed"] else ""
        spaces = ", ".join(f"{one['name']} {one['trials']} {one['best_ms']}" for one in task["spaces"])
        name = f"{task['name'][:60]} x{task['weight']}"
        lines.append(f"  {name}: default {default}, best {found}{ratio} [{spaces}]{failed}")
    return lines


if __name__ == "__main__":
    main()
