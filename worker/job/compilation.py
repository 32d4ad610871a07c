"""A compilation inside its confined child: loads extensions, forks the candidate server, runs the stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from bessemer.bundle.manifest import PARAMETERS, REPORT
from bessemer.contract.base import now
from bessemer.contract.code import CODE_INDEX, CODE_TEXTS
from bessemer.contract.graph import GRAPH, GRAPH_PICTURE
from bessemer.contract.ir import IR_INDEX, IR_TEXTS
from bessemer.contract.job import EntryFigures, Figures
from bessemer.contract.offers import unknown_name
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import BenchmarkResult, PeerVerdict, TuneResult, TuneVerdict
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import resolve_target
from worker.candidates.process import use_threads
from worker.candidates.server import fork_server
from worker.compiler.kernels.choose import check_choices
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.pipeline.pipeline import Reached, run_pipeline
from worker.compiler.target import CompileTarget, compile_target, device_features, refuse_unrunnable
from worker.compiler.tuning.cost_model.features import kind_of
from worker.compiler.tuning.cost_model.trees import CostModel, models_of
from worker.compiler.tuning.given_schedules import check_schedules
from worker.compiler.values import (
    Benchmarked,
    Built,
    Captured,
    StageContext,
    Upload,
    Verified,
    made_from,
)
from worker.errors import JobError
from worker.job.extensions import load_extensions, offers
from worker.job.folder import JobFolder
from worker.measure.statistics import largest
from worker.measure.turns import Turns
from worker.package.document import make_report, verified_sizes
from worker.protocol.devices import Devices
from worker.protocol.messages import Compiled, EarlyBundleMade
from worker.protocol.objects import CachedObjects, NoObjects
from worker.protocol.observer import Observers
from worker.protocol.order import CompileWork, EarlyBundleTaken
from worker.protocol.records import Records
from worker.protocol.sender import Sender
from worker.report.preflight import make_preflight
from worker.snapshots.machine_code import ASSEMBLY, LLVM_IR
from worker.snapshots.recorder import IrRecorder

KEPT = (IR_INDEX, IR_TEXTS, CODE_INDEX, CODE_TEXTS, LLVM_IR, ASSEMBLY, GRAPH, GRAPH_PICTURE)
"""Files that are kept beside the bundle, if the request asks to inspect them."""


def compile_model(
    work: CompileWork,
    cores: int,
    folder: JobFolder,
    sandbox: SandboxStatus,
    sender: Sender,
    host_mcpu: str,
    turns: Turns,
    devices: Devices,
    records: Records,
    objects: CachedObjects,
    publish: Callable[[EarlyBundleMade], EarlyBundleTaken],
) -> Compiled:
    """Compile the upload in ``folder``.

    Args:
        work: the request, and what the job may use.
        cores: the target's cores, if the request names none.
        folder: the job's folder.
        sandbox: the layers of the confinement, for the report.
        sender: reports stages and progress.
        host_mcpu: LLVM's name of the processor.
        turns: when this job may measure.
        devices: the devices that measure the candidates of a search, if the work says so.
        records: the service's tuning records, if the work says so.
        objects: the worker's cache of compiled functions, if the work says so. A compilation with extensions
            does without it, since an extension can change how functions are compiled.
        publish: has a bundle published while the compilation runs.

    Raises:
        JobError: this machine cannot run the target's code, an extension cannot be used, the request names
            something that is not installed, or a stage fails.
    """
    request, seconds = work.request, work.seconds
    target = compile_target(resolve_target(request.target, host_mcpu, cores))
    by_device = work.by_device
    if request.is_verified:
        refuse_unrunnable(target, by_device)
    on_device = work.searches_on_device
    model = folder.cost_model if folder.cost_model.is_file() else None
    refuse_search(request, target, on_device, models_of(model))
    extensions = load_extensions(work.extensions, folder)
    check_names(request, target)
    use_threads(target.threads)
    with fork_server(folder.scratch, turns=turns) as candidates:
        # only now: nothing may run in parallel before the server is forked
        _set_torch_threads(target.threads)
        kept = request.inspect
        recorder = IrRecorder(folder.output, kept.constants) if kept.ir else None
        observer = sender if recorder is None else Observers((sender, recorder))
        context = StageContext(
            scratch=folder.scratch,
            output=folder.output,
            candidates=candidates,
            sandbox=sandbox,
            finished_stages=lambda: sender.finished,
            left_seconds=lambda: seconds - sender.elapsed_seconds(),
            extensions=extensions,
            records=tuple(folder.extension(digest) for digest in request.tune.records),
            observer=observer,
            by_device=by_device,
            devices=devices if on_device else None,
            publish=lambda benchmarked: _publish(benchmarked, publish),
            cost_model=model,
            objects=objects if work.has_objects and not extensions else NoObjects(),
            stored=records if work.keeps_records and request.is_verified else None,
        )
        own = {digest: folder.model_of_entries(digest) for digest in request.models[1:]}
        upload = Upload(path=folder.model, request=request, target=target, own_models=own)
        try:
            reached = run_pipeline(upload, context)
        except JobError as error:
            if candidates.lost is None:
                raise
            raise candidates.lost from error
        return compiled(reached, context, upload)


def _publish(benchmarked: Benchmarked, publish: Callable[[EarlyBundleMade], EarlyBundleTaken]) -> str:
    """Why an early bundle in the output folder was not published; empty if it was."""
    result = benchmarked.result
    figures = None if result is None else _figures(benchmarked, result)
    return publish(EarlyBundleMade(figures=figures)).refusal


def compiled(reached: Reached, context: StageContext, upload: Upload) -> Compiled:
    """The last message of a compilation that succeeded, at its end or at an earlier stop."""
    if reached.stage is Stage.PACKAGE:
        files = reached.value.files
        stopped_after = None
    else:
        files = write_stopped(reached, context, now())
        stopped_after = reached.stage
    benchmarked, verified = made_from(reached.value, Benchmarked), made_from(reached.value, Verified)
    measured = None if benchmarked is None else benchmarked.result
    left_to_device = upload.request.is_verified and verified is not None and not verified.ran
    has_verdict = reached.stage.includes(Stage.VERIFY) and not left_to_device
    return Compiled(
        verified=upload.request.is_verified if has_verdict else None,
        figures=None if benchmarked is None or measured is None else _figures(benchmarked, measured),
        measured=benchmarked is None or measured is not None,
        files=(*files, *(name for name in KEPT if (context.output / name).is_file())),
        stopped_after=stopped_after,
        left_to_device=left_to_device,
        device_features=device_features(upload.target),
        tune=None if benchmarked is None else _tune_verdict(benchmarked.verified.built.tuned.result),
        compiles=reached.finding is None if reached.stage is Stage.TRANSLATE else None,
    )


def _figures(benchmarked: Benchmarked, result: BenchmarkResult) -> Figures:
    others = zip(benchmarked.captured.others, benchmarked.other_results, strict=True)
    return Figures(
        latency=result.latency,
        sizes=_sizes(benchmarked.captured),
        unsteady=result.unsteady,
        tokens_per_second=result.tokens_per_second,
        baselines=result.baselines,
        library_bytes=result.library_bytes,
        peak_memory_bytes=result.peak_memory_bytes,
        max_absolute_error=largest(
            comparison.max_absolute_error
            for comparisons in benchmarked.verified.all_comparisons
            for comparison in comparisons
        ),
        verified_sizes=_verified_at(benchmarked.captured, benchmarked.verified),
        entries=tuple(
            EntryFigures(
                name=entry.name,
                latency=found.latency,
                sizes=_sizes(entry),
                unsteady=found.unsteady,
                tokens_per_second=found.tokens_per_second,
                baselines=found.baselines,
                verified_sizes=_verified_at(entry, benchmarked.verified),
            )
            for entry, found in others
        ),
        comparison=_peer_verdict(result),
        built_functions=benchmarked.verified.built.built_functions,
        tune=_tune_verdict(benchmarked.verified.built.tuned.result),
    )


def _sizes(entry: Captured) -> dict[str, int]:
    return entry.dynamic.sizes(entry.input_specs)


def _verified_at(entry: Captured, verified: Verified) -> tuple[dict[str, int], ...]:
    return tuple(each.sizes for each in verified_sizes(entry, verified))


def _peer_verdict(result: BenchmarkResult) -> PeerVerdict | None:
    if result.comparison is None:
        return None
    return PeerVerdict.read(result.comparison.model_dump(include=set(PeerVerdict.model_fields)))


def _tune_verdict(result: TuneResult) -> TuneVerdict | None:
    if result.kept is None and not result.schedules:
        return None
    return TuneVerdict.read(result.model_dump(include=set(TuneVerdict.model_fields)))


def _set_torch_threads(cores: int) -> None:
    import torch

    torch.set_num_threads(cores)


def write_stopped(reached: Reached, context: StageContext, created_at: datetime) -> tuple[str, ...]:
    """Write ``report.json`` for a run that stopped early.

    Returns:
        The names of the files that exist: the report and, once it is built, the library with its separate
        parameters.
    """
    captured = made_from(reached.value, Captured)
    preflight = None
    if reached.stage is Stage.TRANSLATE and captured is not None:
        preflight = make_preflight(captured, reached.finding)
    report = make_report(reached.value, context, created_at, reached.stage, preflight)
    (context.output / REPORT).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    built = made_from(reached.value, Built)
    if built is None:
        return (REPORT,)
    return (REPORT, built.library.name, *(() if built.parameters is None else (PARAMETERS,)))


def refuse_search(
    request: CompilationRequest,
    target: CompileTarget,
    on_device: bool = False,
    models: Sequence[CostModel] = (),
) -> None:
    """Refuse a search for schedules where nothing can measure the target's code.

    For a GPU, and for processors that the learned cost model serves, a model ranks the plans where nothing
    measures them.

    Args:
        request: the request.
        target: its target.
        on_device: whether a device measures.
        models: the learned cost models.

    Raises:
        JobError: ``target-not-runnable``.
    """
    if target.gpu is not None:
        return
    if request.searches and not ((target.is_native or on_device) and request.is_verified):
        if not target.is_native and any(model.serves(kind_of(target.llvm)) for model in models):
            return
        name = target.resolved.name
        detail = (
            f"a search measures code, which this worker cannot for '{name}', and no live device does: set "
            "`tune.trials` to 0, or start a device of that platform (an emulated one measures only if "
            "`device` names it)"
        )
        raise JobError(ErrorCode.TARGET_NOT_RUNNABLE, detail)


def check_names(request: CompilationRequest, target: CompileTarget) -> None:
    """Refuse rewrites, kernels, search spaces, strategies and schedules that this worker lacks.

    Raises:
        JobError: ``rewrite-unknown``, ``kernel-unknown``, ``kernel-unavailable``, ``space-unknown`` or
            ``strategy-unknown``, with the nearest name if there is one; ``schedule-failed``.
    """
    unknown = unknown_name(request, offers())
    if unknown is not None:
        raise JobError(unknown.code, unknown.message)
    check_choices(request.kernels, kernel_book(), target.platform)
    check_schedules(request.tune.schedules)
