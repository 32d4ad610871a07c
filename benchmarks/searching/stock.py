"""Stock MetaSchedule on a model, until it is killed: a line of JSON for each round of trials.

``python -m benchmarks.searching.stock MODEL FOLDER``. The model is imported, legalized and fused as in TVM's
default pipeline, and searched with MetaSchedule's own scheduler, builder, runner and cost model. A function
counts with its best trial; the model has a latency once every function has one.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.ir.utils import derived_object
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks, extracted_tasks_to_tune_contexts

from benchmarks.search_rate import PATIENCE_SECONDS
from examples.models import EXAMPLES
from worker.compiler.target import host_mcpu, host_triple
from worker.job.warmup import import_everything

ENDLESS = 1_000_000
TRIALS_OF_A_ROUND = 64
"""MetaSchedule's own default."""


@derived_object
class Course(PyMeasureCallback):
    """Prints the trials so far, and the model's milliseconds once every function has run."""

    def __init__(self, weights: list[int]) -> None:
        super().__init__()
        self.weights = weights
        self.best: dict[int, float] = {}
        self.trials = 0
        self.began = monotonic()

    def apply(
        self, _scheduler: Any, task: int, candidates: list[Any], _builds: list[Any], runs: list[Any]
    ) -> None:
        """Note the results of a round of one task."""
        self.trials += len(candidates)
        for run in runs:
            if run.run_secs:
                seconds = min(map(float, run.run_secs))
                self.best[task] = min(seconds, self.best.get(task, seconds))
        known = len(self.best) == len(self.weights)
        latency = sum(weight * self.best[index] for index, weight in enumerate(self.weights)) if known else 0
        line = {"seconds": monotonic() - self.began, "trials": self.trials, "latency_ms": latency * 1e3}
        print(json.dumps(line), flush=True)


def main() -> None:
    """Search until the process is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=sorted(EXAMPLES))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    import_everything()
    threads = len(os.sched_getaffinity(0))
    host = {"kind": "llvm", "mtriple": host_triple(), "mcpu": host_mcpu(), "num-cores": threads}
    target = tvm.target.Target(host)
    tasks = extract_tasks(_fused(arguments.model, target), target)
    contexts, weights = extracted_tasks_to_tune_contexts(tasks, str(arguments.folder), num_threads=threads)
    course = Course([int(weight) for weight in weights])
    print(json.dumps({"tasks": len(tasks)}), flush=True)
    course.began = monotonic()
    ms.tune_tasks(
        tasks=contexts,
        task_weights=weights,
        work_dir=str(arguments.folder),
        max_trials_global=ENDLESS,
        num_trials_per_iter=TRIALS_OF_A_ROUND,
        builder=ms.builder.LocalBuilder(max_workers=threads, timeout_sec=PATIENCE_SECONDS),
        runner=ms.runner.LocalRunner(timeout_sec=PATIENCE_SECONDS),
        measure_callbacks=[
            course,
            ms.measure_callback.AddToDatabase(),
            ms.measure_callback.RemoveBuildArtifact(),
            ms.measure_callback.UpdateCostModel(),
        ],
    )


def _fused(name: str, target: tvm.target.Target) -> tvm.IRModule:
    example = EXAMPLES[name]
    program = torch.export.export(example.build().eval(), example.example_inputs())
    passes = (
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.LegalizeOps(),
        relax.transform.FoldConstant(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    )
    with target, tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(from_exported_program(program))


if __name__ == "__main__":
    main()
