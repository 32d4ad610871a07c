"""An invocation inside its confined child: runs a bundle like its user, with the bundle's own runner.

The library is loaded in this process, in which nothing has run in parallel yet. If it crashes, the process
ends, and the supervisor reports that.
"""

from __future__ import annotations

from dataclasses import replace

from bessemer.bundle import run
from bessemer.contract.invocation import OUTPUTS
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Latency
from bessemer.contract.tensor import TensorSpec
from worker.candidates.process import use_threads
from worker.compiler.kernels.functions import require_functions
from worker.compiler.target import compile_target, refuse_unrunnable
from worker.errors import JobError, failure_of
from worker.job.extensions import load_extensions
from worker.job.folder import JobFolder
from worker.job.input_files import Arrays, read_inputs
from worker.job.unpacking import read_manifest, unpacked
from worker.protocol.messages import Invoked
from worker.protocol.order import InvokeWork, Work


def invoke_library(work: Work, folder: JobFolder) -> Invoked:
    """Run the library of the bundle in ``folder`` on the inputs beside it; its outputs go to ``output``.

    Raises:
        JobError: ``inputs-unreadable``, ``inputs-mismatch``, ``target-not-runnable``,
            ``library-function-missing`` if the library calls a function whose extension is gone, or
            ``invocation-failed`` if the bundle cannot be loaded or the library raises.
        TypeError: the work is not an invocation.
    """
    if not isinstance(work, InvokeWork):
        raise TypeError(f"{work.kind} is not an invocation")
    bundle = unpacked(folder, ErrorCode.INVOCATION_FAILED)
    manifest = read_manifest(bundle, ErrorCode.INVOCATION_FAILED)
    if manifest.functions:
        load_extensions(work.extensions, folder)
        require_functions(manifest.functions)
    target = compile_target(manifest.target)
    refuse_unrunnable(target)
    use_threads(target.threads)
    inputs = read_inputs(folder.inputs)
    try:
        return _run(run.load(bundle), inputs, work, folder)
    except run.InputError as error:
        raise JobError(ErrorCode.INPUTS_MISMATCH, str(error)) from error
    except Exception as error:
        raise failure_of(ErrorCode.INVOCATION_FAILED, error, str(error)) from error


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
