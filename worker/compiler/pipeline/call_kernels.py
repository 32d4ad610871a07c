"""The pass that lets a module call kernel libraries, as the request wants it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import tvm

from bessemer.contract.report import KernelChoice
from worker.compiler.codegen.executable import build_library
from worker.compiler.kernels.choose import check_workloads, choose_kernels
from worker.compiler.kernels.measure import Contest
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.pipeline.passes import KERNELS, Phase
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.values import StageContext, Upload


class KernelStep:
    """A pass of the phase ``kernels``, where the request names any; ``finish`` says what it did."""

    def __init__(self, upload: Upload, context: StageContext) -> None:
        self._upload, self._workshop = upload, context
        self._choices: tuple[KernelChoice, ...] = ()
        self._workloads: tuple[str, ...] = ()

    def added_to(self, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        """The phases of the request, this one among them."""
        if not self._upload.request.kernels:
            return phases
        contest = self._contest(phases)

        @tvm.transform.module_pass(opt_level=0, name="CallKernels")
        def call_kernels(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
            chosen = choose_kernels(module, self._upload.request.kernels, kernel_book(), contest.measure)
            self._choices, self._workloads = chosen.choices, chosen.workloads
            return chosen.module

        return tuple(
            phase._replace(passes=(call_kernels,)) if phase.name == KERNELS else phase for phase in phases
        )

    def finish(self) -> tuple[KernelChoice, ...]:
        """What was decided.

        Raises:
            JobError: ``kernel-unknown`` for a workload that the model lacks. Within a pass it would be TVM's.
        """
        check_workloads(self._upload.request.kernels, self._workloads)
        return self._choices

    def _contest(self, phases: tuple[Phase, ...]) -> Contest:
        target = self._upload.target.llvm

        def compile_to(module: tvm.IRModule, path: Path) -> None:
            for phase in phases:
                module = tvm.transform.Sequential(phase.passes)(module)
            build_library(schedule_rest(module, target), target, path, path.parent / "objects")

        return Contest(
            candidates=self._workshop.candidates,
            folder=self._workshop.scratch / "kernels",
            threads=self._upload.target.threads,
            compile=compile_to,
            numbers=count(),
        )
