"""An invocation inside its confined child: runs a bundle like its user, with the bundle's own runner.

The library is loaded in this process, in which nothing has run in parallel yet. If it crashes, the process
ends, and the supervisor reports that.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bessemer.bundle import run
from bessemer.bundle.manifest import Manifest
from bessemer.contract.invocation import OUTPUTS
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Latency
from bessemer.contract.tensor import TensorSpec
from worker.candidates.process import use_threads
from worker.candidates.program import ProgramCall
from worker.compiler.kernels.functions import require_functions
from worker.compiler.target import CompileTarget, compile_target, refuse_unrunnable
from worker.errors import JobError, failure_of
from worker.job.extensions import load_extensions
from worker.job.folder import JobFolder
from worker.job.input_files import Arrays, read_inputs
from worker.job.unpacking import read_manifest, unpacked
from worker.protocol.messages import Invoked
from worker.protocol.order import InvokeWork


def invoke_library(work: InvokeWork, folder: JobFolder) -> Invoked:
    """Run the library of the bundle in ``folder`` on the inputs beside it; its outputs go to ``output``.

    Raises:
        JobError: ``inputs-unreadable``, ``inputs-mismatch``, ``target-not-runnable``,
            ``library-function-missing`` if the library calls a function whose extension is gone, or
            ``invocation-failed`` if the bundle cannot be loaded or the library raises.
    """
    bundle, _ = unpacked(folder, ErrorCode.INVOCATION_FAILED)
    manifest = read_manifest(bundle, ErrorCode.INVOCATION_FAILED)
    if manifest.functions:
        load_extensions(work.extensions, folder)
        require_functions(manifest.functions)
    target = compile_target(manifest.target)
    refuse_unrunnable(target)
    use_threads(target.threads)
    inputs = read_inputs(folder.inputs)
    try:
        if not target.is_native:
            return _run_program(bundle, manifest, target, inputs, work, folder)
        return _run(run.load(bundle), inputs, work, folder)
    except run.InputError as error:
        raise JobError(ErrorCode.INPUTS_MISMATCH, str(error)) from error
    except Exception as error:
        raise failure_of(ErrorCode.INVOCATION_FAILED, error, str(error)) from error


def _run_program(
    bundle: Path,
    manifest: Manifest,
    target: CompileTarget,
    inputs: Arrays,
    work: InvokeWork,
    folder: JobFolder,
) -> Invoked:
    """Run the bundle's program, whose times would say nothing about the target's processor."""
    program = None if manifest.program is None else target.program(bundle / manifest.program)
    if program is None:
        raise JobError(ErrorCode.TARGET_NOT_RUNNABLE, "the bundle has no program that this worker can run")
    points = {point.name: point for point in manifest.entry_points}
    point = points.get(work.entry or manifest.name)
    if point is None:
        raise run.InputError(f"unknown entry '{work.entry}': the library has {', '.join(points)}")
    entry = run.Entry(bundle, point.model_dump(mode="json"), program.call)
    states = {spec.name: spec for spec in entry.states}
    arrays, _ = entry.arrays(entry.with_seed({n: array for n, array in inputs.items() if n not in states}))
    given = {spec.name: array for spec, array in zip(entry.inputs, arrays, strict=True)}
    kept = {name: run.state_array(states[name], array) for name, array in inputs.items() if name in states}
    call = ProgramCall(point.name, folder.scratch / "inputs.npz", folder.scratch / OUTPUTS)
    run.save_arrays(call.inputs, {**given, **kept})
    program.call((call,))
    seeds = {spec.name: given[spec.name] for spec in entry.seeds}
    run.save_arrays(folder.output / OUTPUTS, {**run.load_arrays(call.outputs), **seeds})
    specs = (*point.outputs, *manifest.states, *(spec for spec in point.inputs if spec.name == point.seed))
    outputs = tuple(TensorSpec(name=s.name, shape=s.shape, dtype=s.dtype) for s in specs)
    return Invoked(threads=program.threads, latency=None, outputs=outputs)


def _run(model: run.Model, inputs: Arrays, work: InvokeWork, folder: JobFolder) -> Invoked:
    entry = model.entry(work.entry)
    outputs = {**model.run(inputs, work.entry), **model.state, **model.drawn(inputs, work.entry)}
    latency = model.time(inputs, work.runs, work.entry) if work.runs else None
    run.save_arrays(folder.output / OUTPUTS, outputs)
    specs = (*entry.outputs, *model.states, *entry.seeds)
    shaped = (replace(spec, shape=outputs[spec.name].shape) for spec in specs if spec.name in outputs)
    return Invoked(
        threads=model.threads,
        latency=None if latency is None else Latency(**vars(latency)),
        outputs=tuple(TensorSpec(name=s.name, shape=s.shape, dtype=s.dtype) for s in shaped),
    )
