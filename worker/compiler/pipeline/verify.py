"""Verify: compares the library's outputs with the model's on the reference inputs."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bessemer.bundle.manifest import OutputTolerance
from bessemer.bundle.run import Column, Sizes, order_ties
from bessemer.contract.options import Tolerance
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import OutputComparison
from bessemer.contract.tensor import DType, TensorSpec
from worker.candidates.client import LibraryCrashedError
from worker.candidates.execute import ProgramFailedError
from worker.candidates.program import ProgramCall
from worker.compiler.checking.compare import (
    HIGHEST_CEILING,
    Array,
    compare,
    highest_ceiling,
    is_as_exact,
    own_rounding,
    scale_of,
    widen,
)
from worker.compiler.checking.exact import exact_outputs
from worker.compiler.checking.neighbors import neighbors
from worker.compiler.checking.precision import computed_dtypes
from worker.compiler.target import refuse_unrunnable
from worker.compiler.values import Built, Captured, RelaxProgram, Sample, StageContext, Verified
from worker.errors import JobError, failure_of, in_entry
from worker.package.archive import restored, write_arrays

if TYPE_CHECKING:
    from worker.compiler.values import Arrays


_BY_DATA = (
    "; its size depends on data, and where a value lies within a rounding error of a threshold, "
    "either size is right: export the model with clearer example inputs, or choose another `verify.seed`"
)

_FIXED_NUMBERS = (
    "; a number that an entry point takes from a buffer, by .item() or int(), is fixed when the library is "
    "compiled: if another entry point changes the buffer, compute with the tensor itself"
)


def verify(built: Built, context: StageContext) -> Verified:
    """Run the library on the reference inputs and compare every output with its reference.

    Before: the library is linked. After: every element of every output lies within its tolerance, also at
    other sizes if sizes are dynamic, and where entry points that share state run in turn. Without
    ``verification``, or if only a device can run the library, nothing has run yet.

    Raises:
        JobError: ``target-not-runnable``: this processor lacks features of the target; ``verify-crashed``:
            the library died or raised; ``verify-mismatch``: an output differs, with its worst element.
    """
    target = built.captured.upload.target
    if not built.captured.upload.request.is_verified:
        return _not_run(built)
    if context.by_device and not target.runs_here:
        if built.program is None:
            raise _no_program(built)
        return _not_run(built)
    refuse_unrunnable(target)
    entries, comparisons = zip(
        *(_verified(entry, built, context) for entry in built.captured.entries), strict=True
    )
    _verify_turns(built, context)
    return Verified(
        built=built,
        captured=replace(entries[0], others=entries[1:]),
        comparisons=comparisons[0],
        other_comparisons=comparisons[1:],
    )


def _not_run(built: Built) -> Verified:
    return Verified(
        built=built,
        captured=built.captured,
        comparisons=(),
        other_comparisons=tuple(() for _ in built.captured.others),
        not_run=tuple(map(_tolerances, built.captured.entries)),
    )


def _tolerances(captured: Captured) -> tuple[OutputTolerance, ...]:
    """The request's tolerances, widened by the references' own rounding: a device cannot ask for it later."""
    request, sample = captured.upload.request, captured.example
    dtypes = computed_dtypes(captured)
    given = list(map(request.tolerance, dtypes))
    exact = None if request.verify.absolute is not None else _exact(captured, sample)
    if exact is not None:
        exact, _ = _order_ties(exact, captured, sample)
        given = [_widened(*each) for each in zip(given, dtypes, sample.references, exact, strict=True)]
    return tuple(
        OutputTolerance(name=spec.name, **tolerance.model_dump())
        for spec, tolerance in zip(captured.output_specs, given, strict=True)
    )


def _widened(tolerance: Tolerance, dtype: DType, reference: Array, exact: Array) -> Tolerance:
    if exact.dtype != np.float64 or exact.shape != reference.shape:
        return tolerance
    rounding, highest = own_rounding(reference, exact, tolerance), highest_ceiling(dtype)
    return widen(tolerance, rounding, scale_of(exact), highest)


def _no_program(built: Built) -> JobError:
    detail = (
        "only the bundle's program `run` could run on this target, in an emulator or on a device, and this "
        f"library has none: {built.no_program}"
    )
    return JobError(ErrorCode.TARGET_NOT_RUNNABLE, detail)


def _verified(
    captured: Captured, built: Built, context: StageContext
) -> tuple[Captured, tuple[OutputComparison, ...]]:
    """The entry point with the results that the library was found to agree with, and the comparisons."""
    calls = [(captured, sample) for sample in (captured.example, *captured.samples)]
    with in_entry(captured.upload.entry):
        found = [
            agreed_references(outputs, captured, sample)
            for outputs, (_, sample) in zip(_run(calls, built, context), calls, strict=True)
        ]
    return (
        replace(captured, references=found[0][0]),
        tuple(comparison for _, comparisons in found for comparison in comparisons),
    )


def _verify_turns(built: Built, context: StageContext) -> None:
    """Compare the calls of entry points that take turns."""
    turns = built.captured.turns
    entries = {entry.name: entry for entry in built.captured.entries}
    calls = [(entries[turn.entry], turn.sample) for turn in turns]
    outputs = _run(calls, built, context) if turns else []
    for number, ((captured, sample), found) in enumerate(zip(calls, outputs, strict=True), 1):
        try:
            agreed_references(found, captured, sample)
        except JobError as error:
            order = ", ".join(turn.entry for turn in turns[:number])
            error.detail = (
                f"in call {number} of entry points that take turns ({order}): {error.detail}{_FIXED_NUMBERS}"
            )
            raise


def agreed_references(
    outputs: Arrays, captured: Captured, sample: Sample
) -> tuple[Arrays, tuple[OutputComparison, ...]]:
    """Compare with the model's results, and if their sizes depend on data, with those for inputs nearby.

    Returns:
        The results that the library agrees with, and the comparisons with them.

    Raises:
        JobError: ``verify-mismatch``: what differs from the results for the inputs themselves.
    """
    try:
        return sample.references, compare_outputs(outputs, captured, sample)
    except JobError:
        if not captured.dynamic.of_data:
            raise
        for neighbor in neighbors(captured, sample):
            with suppress(JobError):
                comparisons = compare_outputs(outputs, captured, neighbor)
                moved = {"moved_inputs": True}
                return neighbor.references, tuple(one.model_copy(update=moved) for one in comparisons)
        raise


def compare_outputs(outputs: Arrays, captured: Captured, sample: Sample) -> tuple[OutputComparison, ...]:
    """Compare every output with its reference under the request's tolerances.

    If an output differs and the request has no absolute tolerance, the model is also computed in float64, and
    the tolerance is widened by the reference's own rounding; see ``widen``.

    Args:
        outputs: the library's outputs for the sample's inputs.
        captured: the model.
        sample: the inputs and the model's outputs.

    Raises:
        JobError: ``verify-mismatch`` naming the first output that differs.
    """
    if len(outputs) != len(captured.output_specs):
        detail = f"the library returns {len(outputs)} outputs, the model {len(captured.output_specs)}"
        raise JobError(ErrorCode.VERIFY_MISMATCH, detail)
    try:
        comparisons = _compare(outputs, captured, sample)
    except ValueError as error:
        advice = _BY_DATA if captured.dynamic.of_data else ""
        raise JobError(ErrorCode.VERIFY_MISMATCH, f"{error}{advice}") from error
    for comparison in comparisons:
        if comparison.mismatches:
            raise JobError(ErrorCode.VERIFY_MISMATCH, describe_mismatch(comparison))
    return comparisons


def _compare(outputs: Arrays, captured: Captured, sample: Sample) -> tuple[OutputComparison, ...]:
    request = captured.upload.request
    outputs, reordered = _order_ties(outputs, captured, sample)
    dtypes = computed_dtypes(captured)
    comparisons = tuple(
        compare(spec.name, output, reference, request.tolerance(dtype)).model_copy(
            update={"reordered": reordered.get(spec.name, 0)}
        )
        for spec, dtype, output, reference in zip(
            captured.output_specs, dtypes, outputs, sample.references, strict=True
        )
    )
    if request.verify.absolute is not None or not any(one.mismatches for one in comparisons):
        return comparisons
    exact = _exact(captured, sample)
    if exact is None:
        return comparisons
    exact, _ = _order_ties(exact, captured, sample)
    return tuple(
        _compare_rounded(one, dtype, output, reference, precise) if one.mismatches else one
        for one, dtype, output, reference, precise in zip(
            comparisons, dtypes, outputs, sample.references, exact, strict=True
        )
    )


def _exact(captured: Captured, sample: Sample) -> Arrays | None:
    if isinstance(captured.program, RelaxProgram):
        return sample.exact
    return exact_outputs(captured.program, sample)


def _order_ties(arrays: Arrays, captured: Captured, sample: Sample) -> tuple[Arrays, dict[str, int]]:
    """The arrays with results that tie in the order of the references, and how many rows of each moved."""
    request = captured.upload.request
    outputs = [spec.name for spec in captured.output_specs]
    found = dict(zip(outputs, arrays, strict=True))
    dtypes = dict(zip(outputs, computed_dtypes(captured), strict=True))
    references = dict(zip(outputs, sample.references, strict=True))
    moved: dict[str, int] = {}
    for names in Sizes(captured.dynamic.model_dump()).results():
        if any(found[name].shape != references[name].shape for name in names):
            continue
        columns = [
            Column(
                _as_numbers(found[name]),
                _as_numbers(references[name]),
                **request.tolerance(dtypes[name]).model_dump(),
            )
            for name in names
        ]
        order = order_ties(columns)
        moved.update(dict.fromkeys(names, int(np.count_nonzero(order != np.arange(len(order))))))
        found.update({name: found[name][order] for name in names})
    return tuple(found.values()), moved


def _as_numbers(array: Array) -> Array:
    """The array, or integers for truths, which NumPy does not subtract."""
    return array.astype(np.int8) if array.dtype == np.bool_ else array


def _compare_rounded(
    found: OutputComparison, dtype: DType, output: Array, reference: Array, exact: Array
) -> OutputComparison:
    """Compare a differing output again under a tolerance that allows for its reference's rounding."""
    if exact.dtype != np.float64:
        return found
    rounding = own_rounding(reference, exact, found.tolerance)
    is_exact = output.shape == reference.shape and is_as_exact(output, reference, exact)
    highest = highest_ceiling(dtype) if is_exact else HIGHEST_CEILING
    tolerance = widen(found.tolerance, rounding, scale_of(exact), highest)
    return compare(found.name, output, reference, tolerance).model_copy(update={"rounding": rounding})


def describe_mismatch(comparison: OutputComparison) -> str:
    """A mismatch in one sentence: output, worst element, both values, and number of mismatches."""
    index = ", ".join(map(str, comparison.worst_index))
    allowed = f"{comparison.tolerance.absolute:g} + {comparison.tolerance.relative:g} of the reference"
    rounding = comparison.rounding
    own = "" if rounding is None else f"; the model's own result differs from float64 by {rounding:.1e}"
    return (
        f"output '{comparison.name}': {comparison.mismatches} of {comparison.elements} elements differ; the "
        f"worst, at [{index}], is {comparison.worst_value:.9g} where the model gives "
        f"{comparison.worst_reference:.9g} (allowed: {allowed}){own}"
    )


def _run(calls: Sequence[tuple[Captured, Sample]], built: Built, context: StageContext) -> list[Arrays]:
    """The outputs of calls of entry points, one after the other in one process."""
    if not built.captured.upload.target.is_native:
        return _run_program(calls, built, context)
    done: list[Arrays] = []
    threads = built.captured.upload.target.threads
    state: dict[str, Array] = {}
    for captured, _ in calls:
        state |= _state(captured.input_specs, captured.inputs, captured)
    try:
        with context.candidates.open_library(built.library, threads, built.parameters) as library:
            for captured, sample in calls:
                outputs = library.run(_inputs(sample, captured, state), captured.function)
                state |= _state(captured.output_specs, outputs, captured)
                done.append(outputs)
    except LibraryCrashedError as error:
        detail = f"{_describe_crash(error)}{_shown_sizes(calls[len(done)][1])}"
        if built.functions:
            detail += f"; the library calls {', '.join(map(repr, built.functions))} of the extensions"
        raise failure_of(ErrorCode.VERIFY_CRASHED, error, detail) from error
    return done


def _run_program(
    calls: Sequence[tuple[Captured, Sample]], built: Built, context: StageContext
) -> list[Arrays]:
    """The outputs of calls of entry points, one after the other in one run of the bundle's program."""
    target = built.captured.upload.target
    program = None if built.program is None else target.program(built.program)
    if program is None:
        raise _no_program(built)
    folder = context.scratch / "calls"
    folder.mkdir(exist_ok=True)
    steps = [
        ProgramCall(captured.name, folder / f"{number}-inputs.npz", folder / f"{number}-outputs.npz")
        for number, (captured, _) in enumerate(calls)
    ]
    for step, (captured, sample) in zip(steps, calls, strict=True):
        given = captured.own_inputs if sample.follows and captured.kept else len(captured.input_specs)
        write_arrays(step.inputs, captured.input_specs[:given], sample.inputs[:given])
    try:
        program.call(steps)
    except ProgramFailedError as error:
        raise failure_of(ErrorCode.VERIFY_CRASHED, error, str(error)) from error
    return [_read_outputs(step.outputs, captured) for step, (captured, _) in zip(steps, calls, strict=True)]


def _read_outputs(path: Path, captured: Captured) -> Arrays:
    with np.load(path, allow_pickle=False) as arrays:
        return tuple(restored(arrays[spec.name], spec.dtype) for spec in captured.output_specs)


def _state(specs: Sequence[TensorSpec], arrays: Arrays, captured: Captured) -> dict[str, Array]:
    """The tensors of the state by name, which are the last."""
    first = len(specs) - captured.states
    return {spec.name: array for spec, array in zip(specs[first:], arrays[first:], strict=False)}


def _inputs(sample: Sample, captured: Captured, state: Mapping[str, Array]) -> Arrays:
    """The sample's inputs; if it follows another, with the state that the library returned then."""
    if not sample.follows:
        return sample.inputs
    own = captured.own_inputs
    return (*sample.inputs[:own], *(state[spec.name] for spec in captured.input_specs[own:]))


def _shown_sizes(sample: Sample) -> str:
    sizes = ", ".join(f"{name} = {size}" for name, size in sample.sizes.items())
    return f" (with {sizes})" if sizes else ""


def _describe_crash(error: LibraryCrashedError) -> str:
    name = signal.strsignal(error.signal) if error.signal else None
    return f"{name}: {error}" if name else str(error)
