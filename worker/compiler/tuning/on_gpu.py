"""Builds the candidates of a search as kernels, and times them on this machine's GPU.

Emits, in a folder for each candidate::

    kernels.fatbin    its machine code
    candidate.json    the launches of a run
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerInput
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from worker.candidates.client import CandidateClient
from worker.candidates.gpu_timing import GpuCandidate, write_gpu_candidate
from worker.candidates.requests import BuildCandidate, Evaluation, MeasureBatch
from worker.compiler.codegen.cuda.kernels import lower_for_gpu
from worker.compiler.codegen.cuda.machine_code import compile_cuda
from worker.compiler.schedules.default import default_schedule, follow_plans
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.tuning.meta_schedule import (
    BuilderSettings,
    CandidateBuilder,
    FinishedRun,
    describe_candidate,
)

BUILD_TIMEOUT_SECONDS = 60.0
RUN_TIMEOUT_SECONDS = 30.0
"""The first candidate of a process waits for the driver, too."""

_CANDIDATE = "candidate.json"
_ENTRY = "main"


def gpu_builder(
    candidates: CandidateClient, settings: BuilderSettings, architectures: tuple[str, ...]
) -> CandidateBuilder:
    """A builder of machine code for a GPU, each candidate in a folder of its own."""

    def describe(build_input: BuilderInput, number: int) -> BuildCandidate:
        build = partial(build_for_gpu, build_input.mod, build_input.target, architectures)
        return BuildCandidate(pickle.dumps(build), str(settings.folder / str(number) / _CANDIDATE))

    return CandidateBuilder(candidates, settings, describe)


def build_for_gpu(
    module: tvm.IRModule, target: tvm.target.Target, architectures: tuple[str, ...], path: str
) -> None:
    """Compile a candidate in this process.

    Args:
        module: the scheduled function ``main``, or one that carries a plan.
        target: the GPU that it is scheduled for.
        architectures: the architectures to generate machine code for, the oldest first.
        path: the file ``candidate.json`` to write, in a folder to make.
    """
    folder = Path(path).parent
    folder.mkdir()
    finished = follow_plans(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target)
    gpu = gpu_in(target)
    assert gpu is not None
    code = lower_for_gpu({_ENTRY: finished[_ENTRY]}, gpu)
    binary = compile_cuda(code.source, architectures, folder)
    run = code.functions[_ENTRY]
    outputs = written_arguments(finished[_ENTRY])
    write_gpu_candidate(Path(path), GpuCandidate(binary.path.name, run.launches, run.workspaces, outputs))


def written_arguments(function: tirx.PrimFunc) -> tuple[int, ...]:
    """The indices of the arguments that a function writes."""
    written: list[Any] = []

    def store(store: tirx.BufferStore) -> None:
        written.append(store.buffer)

    def block(block: s_tir.SBlock) -> None:
        written.extend(region.source for region in block.writes)

    for kind, visit in ((tirx.BufferStore, store), (s_tir.SBlock, block)):
        tvm_ffi.structural_walk(function.body, (kind, visit))
    return tuple(
        index
        for index, parameter in enumerate(function.params)
        if any(parameter.same_as(buffer) for buffer in written)
    )


@dataclass
class References:
    """The default schedules of a search's functions, whose results candidates must have.

    Attributes:
        expected: the reference of each candidate by its file.
    """

    builder: Any
    target: tvm.target.Target
    expected: dict[str, str] = field(default_factory=dict)
    _built: dict[int, str | None] = field(default_factory=dict)

    def expect(self, candidates: Sequence[str], workloads: Sequence[tvm.IRModule]) -> None:
        """Have candidates checked against the default schedules of the functions that they schedule.

        A function whose default schedule cannot be built has no reference.
        """
        keys = [int(tvm_ffi.structural_hash(workload)) for workload in workloads]
        missing = {key: one for key, one in zip(keys, workloads, strict=True) if key not in self._built}
        if missing:
            inputs = [
                BuilderInput(tvm.IRModule({_ENTRY: default_schedule(one[_ENTRY], self.target)}), self.target)
                for one in missing.values()
            ]
            found = self.builder.build(inputs)
            self._built |= {
                key: None if result.error_msg is not None else str(result.artifact_path)
                for key, result in zip(missing, found, strict=True)
            }
        for candidate, key in zip(candidates, keys, strict=True):
            reference = self._built[key]
            if reference is not None:
                self.expected[candidate] = reference


@derived_object
class GpuCandidateRunner(PyRunner):
    """Times candidates one after another on the GPU, then removes their folders."""

    def __init__(
        self, candidates: CandidateClient, threads: int, evaluation: Evaluation, references: References
    ) -> None:
        super().__init__()
        self.candidates = candidates
        self.threads = threads
        self.evaluation = evaluation
        self.references = references

    def run(self, runner_inputs: list[RunnerInput]) -> list[Any]:
        """Run each candidate; every future is done on return."""
        described = [describe_candidate(runner_input) for runner_input in runner_inputs]
        batch = MeasureBatch(
            candidates=tuple(
                replace(one, reference=self.references.expected.get(one.library)) for one in described
            ),
            threads=self.threads,
            evaluation=self.evaluation,
            timeout_seconds=RUN_TIMEOUT_SECONDS,
            on_gpu=True,
        )
        outcomes = self.candidates.measure_many(batch)
        for library in {candidate.library for candidate in described}:
            self.references.expected.pop(library, None)
            shutil.rmtree(Path(library).parent, ignore_errors=True)
        return [FinishedRun(outcome) for outcome in outcomes]


def gpu_tools(
    candidates: CandidateClient,
    settings: BuilderSettings,
    target: tvm.target.Target,
    architectures: tuple[str, ...],
    evaluation: Evaluation,
) -> tuple[Any, Any, References]:
    """The builder, the runner and the references of a search on this machine's GPU."""
    builder = gpu_builder(candidates, settings, architectures)
    references = References(builder, target)
    return builder, GpuCandidateRunner(candidates, settings.workers, evaluation, references), references
