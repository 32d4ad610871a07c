"""Verify: the library computes what the model computes, on the reference inputs."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import OutputComparison
from worker.candidates.client import LibraryCrashedError
from worker.errors import JobError, failure_of
from worker.pipeline.compare import compare
from worker.pipeline.types import Built, Captured, Verified, Workshop
from worker.targets import refuse_unrunnable

if TYPE_CHECKING:
    from worker.pipeline.types import Arrays


def verify(built: Built, workshop: Workshop) -> Verified:
    """Run the library on the reference inputs and compare every output with its reference.

    Before: the library is linked. After: every element of every output lies within its tolerance; where sizes
    are open, with inputs of other sizes too.

    Raises:
        JobError: ``target-not-runnable``: this processor lacks what the target needs; ``verify-crashed``: the
            library died or raised; ``verify-mismatch``: an output differs, with its worst element.
    """
    captured = built.captured
    target = captured.upload.target
    refuse_unrunnable(target)
    references = (captured.references, *(sample.references for sample in captured.samples))
    comparisons: list[OutputComparison] = []
    for outputs, expected in zip(_run(built, workshop, target.cores), references, strict=True):
        comparisons += compare_outputs(outputs, captured, expected)
    return Verified(built=built, comparisons=tuple(comparisons))


def compare_outputs(
    outputs: Arrays, captured: Captured, references: Arrays | None = None
) -> tuple[OutputComparison, ...]:
    """Compare every output with its reference, under the request's tolerances.

    Args:
        outputs: what the library returned.
        captured: the model.
        references: what the model returned for the same inputs; by default, for the reference inputs.

    Raises:
        JobError: ``verify-mismatch`` naming the first output that differs.
    """
    specs, references = captured.output_specs, references or captured.references
    if len(outputs) != len(specs):
        detail = f"the library returns {len(outputs)} outputs, the model {len(specs)}"
        raise JobError(ErrorCode.VERIFY_MISMATCH, detail)
    options = captured.upload.request.verify
    try:
        comparisons = tuple(
            compare(spec.name, output, reference, options.tolerance(spec.dtype))
            for spec, output, reference in zip(specs, outputs, references, strict=True)
        )
    except ValueError as error:
        raise JobError(ErrorCode.VERIFY_MISMATCH, str(error)) from error
    for comparison in comparisons:
        if comparison.mismatches:
            raise JobError(ErrorCode.VERIFY_MISMATCH, describe_mismatch(comparison))
    return comparisons


def describe_mismatch(comparison: OutputComparison) -> str:
    """A mismatch in one sentence: the output, its worst element, both values, and how many differ."""
    index = ", ".join(map(str, comparison.worst_index))
    allowed = f"{comparison.tolerance.absolute:g} + {comparison.tolerance.relative:g} of the reference"
    return (
        f"output '{comparison.name}': {comparison.mismatches} of {comparison.elements} elements differ; the "
        f"worst, at [{index}], is {comparison.worst_value:.9g} where the model gives "
        f"{comparison.worst_reference:.9g} (allowed: {allowed})"
    )


def _run(built: Built, workshop: Workshop, threads: int) -> list[Arrays]:
    """The outputs for the reference inputs and for every sample."""
    captured = built.captured
    inputs = (captured.inputs, *(sample.inputs for sample in captured.samples))
    done: list[Arrays] = []
    try:
        with workshop.candidates.open_library(built.library, threads, built.parameters) as library:
            done.extend(map(library.run, inputs))
    except LibraryCrashedError as error:
        sizes = _shown_sizes(captured, len(done))
        raise failure_of(ErrorCode.VERIFY_CRASHED, error, f"{_describe_crash(error)}{sizes}") from error
    return done


def _shown_sizes(captured: Captured, run: int) -> str:
    if run == 0:
        return ""
    sizes = captured.samples[run - 1].sizes
    return f" (with {', '.join(f'{name} = {size}' for name, size in sizes.items())})"


def _describe_crash(error: LibraryCrashedError) -> str:
    name = signal.strsignal(error.signal) if error.signal else None
    return f"{name}: {error}" if name else str(error)
