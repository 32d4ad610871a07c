"""A compilation inside its confined child: forks the candidate server, then runs the pipeline."""

from __future__ import annotations

import os

from bessemer.contract.job import Figures
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.target import ResolvedTarget, resolve_target
from worker.candidates.server import fork_server
from worker.job_folder import JobFolder
from worker.messages import Compiled
from worker.order import CompileWork, StartJob
from worker.pipeline.types import Packaged, Upload, Workshop
from worker.statistics import largest
from worker.targets import refuse_unrunnable
from worker.teller import Teller


def compile_model(
    order: StartJob, folder: JobFolder, sandbox: SandboxStatus, teller: Teller, host_mcpu: str
) -> Compiled:
    """Compile the upload in ``folder``.

    Args:
        order: its work is a ``CompileWork``.
        folder: the job's folder.
        sandbox: the layers, for the report.
        teller: told of stages and progress.
        host_mcpu: LLVM's name of the processor.

    Raises:
        JobError: this machine cannot run the target's code, or a stage says no.
        TypeError: the work is another.
    """
    if not isinstance(order.work, CompileWork):
        raise TypeError(f"{order.work.kind} is no compilation")
    request = order.work.request
    target = resolve_target(request.target, host_mcpu, order.cores)
    refuse_unrunnable(target)
    os.environ["TVM_NUM_THREADS"] = str(target.cores)
    with fork_server(folder.scratch) as candidates:
        # only now: nothing may have run in parallel when the server is forked
        _set_torch_threads(target.cores)
        from worker.pipeline.pipeline import run_pipeline

        workshop = Workshop(
            scratch=folder.scratch,
            output=folder.output,
            candidates=candidates,
            advance=teller.advance,
            sandbox=sandbox,
            finished_stages=lambda: teller.finished,
        )
        upload = Upload(path=folder.model, request=request, target=target)
        return compiled(run_pipeline(upload, workshop, teller), target)


def compiled(packaged: Packaged, target: ResolvedTarget) -> Compiled:
    """The last message of a compilation that ended well."""
    benchmarked = packaged.benchmarked
    result = benchmarked.result
    comparisons = benchmarked.verified.comparisons
    figures = Figures(
        latency=result.latency,
        baselines=result.baselines,
        library_bytes=result.library_bytes,
        peak_memory_bytes=result.peak_memory_bytes,
        max_absolute_error=largest(comparison.max_absolute_error for comparison in comparisons),
    )
    return Compiled(target=target, verified=True, figures=figures, files=packaged.files)


def _set_torch_threads(cores: int) -> None:
    import torch

    torch.set_num_threads(cores)
