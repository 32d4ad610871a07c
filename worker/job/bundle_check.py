"""Checks a new bundle inside a fresh confined child that never opened the upload.

The process that opened the upload may have run any code, so its own verdict proves nothing. This process
loads the bundle as its user will, runs the library on the reference inputs, compares the outputs with the
reference outputs, and times it. It cannot check the reference itself: that comes from the uploaded model. If
the library calls functions of an extension, this process runs the extension, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from bessemer.bundle import run
from bessemer.bundle.manifest import EntryPoint, Manifest, OutputTolerance
from bessemer.contract.job import BundleCheck
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Latency
from bessemer.contract.tensor import DType
from worker.candidates.execute import ProgramFailedError
from worker.candidates.process import use_threads
from worker.candidates.program import Program
from worker.compiler.checking.compare import ALLOWED, highest_ceiling, scale_of, widen
from worker.compiler.target import CompileTarget, compile_target, refuse_unrunnable
from worker.errors import JobError, failure_of
from worker.job.extensions import load_extensions
from worker.job.folder import JobFolder
from worker.job.unpacking import read_manifest, unpacked
from worker.measure.turns import Turns
from worker.package.archive import describe
from worker.protocol.messages import MAX_FILES_AT_ONCE, BundleRead, Checked
from worker.protocol.order import CheckWork
from worker.protocol.sender import Sender

SECONDS = 0.3
MAX_RUNS = 20

_NARROWING = (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
"""Floating-point types, by how much they round."""


def check_bundle(work: CheckWork, folder: JobFolder, sender: Sender, turns: Turns) -> Checked:
    """Report the digests of the bundle in ``folder``, run its library and compare the outputs.

    Raises:
        JobError: ``verify-mismatch``: an output differs, or the bundle's tolerance exceeds what the request
            allows; ``verify-crashed``: the bundle cannot be loaded, or the library raises.
    """
    bundle, digests = unpacked(folder, ErrorCode.VERIFY_CRASHED)
    report_files(bundle, sender, digests)
    manifest = read_manifest(bundle, ErrorCode.VERIFY_CRASHED)
    if manifest.model != work.model:
        raise JobError(ErrorCode.VERIFY_MISMATCH, "the bundle's manifest names another model")
    if manifest.verified is not work.runs:
        raise JobError(
            ErrorCode.VERIFY_MISMATCH, "the bundle's manifest contradicts the request on verification"
        )
    if not work.runs:
        return Checked(check=None)
    if manifest.functions:
        load_extensions(work.extensions, folder)
    target = compile_target(manifest.target)
    refuse_unrunnable(target, work.by_device)
    if not target.runs_here:
        _refuse_tolerances(bundle, manifest, work)
        return Checked(check=None)
    if not target.is_native:
        return Checked(check=_checked_by_program(bundle, manifest, target, work))
    use_threads(target.threads)
    try:
        model = run.load(bundle)
        outputs, latency = _run(model, turns if work.measures else None)
        comparisons = list(model.compare(outputs))
        for entry in manifest.entries:
            model.reset()
            outputs = model.run(model.reference_inputs(entry.name), entry.name)
            comparisons += model.compare(outputs, entry.name)
        _refuse_tolerances(bundle, manifest, work)
    except Exception as error:
        raise failure_of(ErrorCode.VERIFY_CRASHED, error, f"in a fresh process: {error}") from error
    _refuse_mismatches(comparisons)
    program = None if manifest.program is None else target.program(bundle / manifest.program)
    if program is not None:
        _compared(program)
    largest = max((comparison.max_absolute_error for comparison in comparisons), default=0.0)
    return Checked(check=BundleCheck(latency=latency, max_absolute_error=largest))


def report_files(bundle: Path, sender: Sender, digests: Mapping[str, str] = {}) -> None:
    """Send the digest of every file, before anything of the bundle runs in this process.

    Args:
        bundle: the folder.
        sender: takes the messages.
        digests: the digests that are already known, by path.
    """
    paths = sorted(path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file())
    try:
        files = [describe(bundle, path, digests.get(path)) for path in paths]
    except ValidationError as error:
        raise JobError(ErrorCode.VERIFY_CRASHED, "a file of the bundle has an unsafe path") from error
    for first in range(0, len(files), MAX_FILES_AT_ONCE):
        part = tuple(files[first : first + MAX_FILES_AT_ONCE])
        sender.send(BundleRead(files=part, last=first + MAX_FILES_AT_ONCE >= len(files)))


def _checked_by_program(
    bundle: Path, manifest: Manifest, target: CompileTarget, work: CheckWork
) -> BundleCheck:
    """Run the bundle's program on the reference inputs; it compares the outputs itself."""
    program = None if manifest.program is None else target.program(bundle / manifest.program)
    if program is None:
        raise JobError(ErrorCode.VERIFY_CRASHED, "the bundle has no program that this machine can run")
    _refuse_tolerances(bundle, manifest, work)
    return BundleCheck(latency=None, max_absolute_error=_compared(program))


def _compared(program: Program) -> float:
    """The largest absolute error that the bundle's program finds on the reference inputs."""
    try:
        text = program.compare()
    except ProgramFailedError as error:
        raise failure_of(ErrorCode.VERIFY_MISMATCH, error, f"in a fresh process: {error}") from error
    return max((float(found) for found in re.findall(r"largest difference (\S+)", text)), default=0.0)


def _run(model: run.Model, turns: Turns | None) -> tuple[run.Arrays, Latency | None]:
    """The outputs for the reference inputs, and the latency if there are turns to measure."""
    inputs = model.reference_inputs()
    if turns is None:
        return model.run(inputs), None
    with turns.turn():
        outputs, latency = _timed(model, inputs)
    return outputs, Latency(**vars(latency))


def _timed(model: run.Model, inputs: run.Arrays) -> tuple[run.Arrays, run.Latency]:
    """The outputs, and the latency of as many runs as fit in about ``SECONDS``."""
    began = time.monotonic()
    outputs = model.run(inputs)
    first_seconds = time.monotonic() - began
    return outputs, model.time(inputs, min(max(int(SECONDS / first_seconds), 1), MAX_RUNS))


def _refuse_mismatches(comparisons: Iterable[run.Comparison]) -> None:
    for comparison in comparisons:
        if not comparison.matches:
            detail = (
                f"in a fresh process, {comparison.mismatches} elements of the output '{comparison.name}' "
                f"differ from the bundle's reference, by up to {comparison.max_absolute_error:.3g}"
            )
            raise JobError(ErrorCode.VERIFY_MISMATCH, detail)


def _refuse_tolerances(bundle: Path, manifest: Manifest, work: CheckWork) -> None:
    try:
        references = [run.load_arrays(bundle / point.reference.outputs) for point in manifest.entry_points]
    except Exception as error:  # NumPy raises many kinds for damaged bytes
        detail = f"the bundle's references cannot be read: {error}"
        raise failure_of(ErrorCode.VERIFY_CRASHED, error, detail) from error
    for point, arrays in zip(manifest.entry_points, references, strict=True):
        _refuse_wide_tolerances(point, arrays, work)


def _refuse_wide_tolerances(point: EntryPoint, references: run.Arrays, work: CheckWork) -> None:
    """Refuse tolerances beyond those of the request, as far as ``widen`` may widen them.

    The model may compute an output in a narrower type, which only the job knows: the widest tolerance of a
    floating-point output is bfloat16's.
    """
    dtypes = {spec.name: DType(spec.dtype) for spec in point.outputs}
    for claimed in point.tolerances:
        own = dtypes[claimed.name]
        scale = scale_of(run.as_numbers(references[claimed.name], own))
        if not any(_is_allowed(claimed, dtype, scale, work) for dtype in _computed_dtypes(own)):
            raise JobError(ErrorCode.VERIFY_MISMATCH, _describe(claimed))


def _computed_dtypes(own: DType) -> tuple[DType, ...]:
    """The types in which a model may compute an output."""
    return _NARROWING[_NARROWING.index(own) :] if own in _NARROWING else (own,)


def _is_allowed(claimed: OutputTolerance, dtype: DType, scale: float, work: CheckWork) -> bool:
    asked = work.verify.tolerance(dtype, work.float32_products)
    if work.verify.absolute is None:
        asked = widen(asked, claimed.absolute / ALLOWED, scale, highest_ceiling(dtype))
    return not (_exceeds(claimed.relative, asked.relative) or _exceeds(claimed.absolute, asked.absolute))


def _exceeds(claimed: float, asked: float) -> bool:
    return claimed > asked * (1 + 1e-9)


def _describe(claimed: OutputTolerance) -> str:
    return (
        f"the bundle allows the output '{claimed.name}' to differ by {claimed.absolute:g} + "
        f"{claimed.relative:g} of the reference, more than the request allows"
    )
