"""Opens a search: what builds and times its candidates, on this machine, on devices or on a GPU."""

from __future__ import annotations

from dataclasses import replace

import tvm

from worker.compiler.tuning.cost_model.trees import models_of
from worker.compiler.tuning.course import candidate_timeout
from worker.compiler.tuning.meta_schedule import (
    BUILD_TIMEOUT_SECONDS,
    BuilderSettings,
    CandidateRunner,
    RunnerSettings,
    library_builder,
)
from worker.compiler.tuning.on_device import bench_of, device_tools
from worker.compiler.tuning.on_gpu import BUILD_TIMEOUT_SECONDS as GPU_BUILD_SECONDS
from worker.compiler.tuning.on_gpu import References, gpu_tools
from worker.compiler.tuning.on_gpu_device import gpu_device_tools
from worker.compiler.tuning.replays import Replays
from worker.compiler.tuning.session import EVALUATION, TuningSession, make_cost_model, open_database
from worker.compiler.tuning.stored_records import SearchJournal, scope_of
from worker.compiler.tuning.trial_budget import ROUND_TRIALS, round_trials
from worker.compiler.values import Optimized, StageContext


def open_session(optimized: Optimized, context: StageContext, target: tvm.target.Target) -> TuningSession:
    """Open a search of a model's functions.

    It measures nothing if neither this machine nor a device has the target's GPU or runs its code.
    """
    upload = optimized.captured.upload
    threads, options = upload.target.threads, upload.request.tune
    folder = context.scratch / "candidates"
    folder.mkdir(exist_ok=True)
    build_seconds = candidate_timeout(options.seconds, BUILD_TIMEOUT_SECONDS)
    settings, candidates = BuilderSettings(folder, threads, build_seconds), context.candidates
    gpu = upload.target.gpu
    own_gpu = gpu is not None and upload.target.has_gpu and upload.request.device is None
    bench = None if own_gpu else bench_of(context.devices, context.output, upload.target)
    references: References | None = None
    if gpu is not None:
        settings = replace(settings, timeout_seconds=GPU_BUILD_SECONDS)
    if gpu is not None and bench is not None:
        builder, runner, references = gpu_device_tools(candidates, settings, bench, target, EVALUATION)
    elif gpu is not None and own_gpu:
        architectures = upload.target.resolved.gpus
        builder, runner, references = gpu_tools(candidates, settings, target, architectures, EVALUATION)
    elif gpu is not None or (bench is None and not upload.target.is_native):
        builder, runner = None, None
    elif bench is None:
        builder = library_builder(candidates, settings)
        runner = CandidateRunner(candidates, RunnerSettings(threads, EVALUATION))
    else:
        builder, runner = device_tools(candidates, settings, bench, EVALUATION)
    return TuningSession(
        target=target,
        builder=builder,
        runner=runner,
        database=open_database(context.scratch / "records"),
        cost_model=make_cost_model(options, threads),
        threads=threads,
        options=options,
        bench=bench,
        references=references,
        journal=_journal(context, target, threads),
        learned=models_of(context.cost_model),
        round_trials=ROUND_TRIALS if references is None else round_trials(threads),
    )


def _journal(context: StageContext, target: tvm.target.Target, threads: int) -> SearchJournal | None:
    if context.stored is None:
        return None
    scope = scope_of(target, threads, context.extensions)
    return SearchJournal(context.stored, scope, Replays(context.candidates))
