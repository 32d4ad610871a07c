"""Makes the report and the manifest of a bundle from the values of the stages."""

from __future__ import annotations

from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING

from bessemer.bundle.manifest import (
    REFERENCE_FOLDER,
    STATE_FOLDER,
    EntryPoint,
    Manifest,
    Reference,
    StateTensor,
)
from bessemer.contract.dynamic import VerifiedSizes, specs_at
from bessemer.contract.report import EntryReport, OutputComparison, ReferenceSource, Report
from bessemer.contract.stage import Stage
from bessemer.contract.structure import (
    ArgumentStructure,
    CallStructure,
    ConstantLeaf,
    Container,
    ContainerKind,
    TensorLeaf,
)
from worker.compiler.values import (
    Benchmarked,
    Built,
    Captured,
    Optimized,
    RelaxProgram,
    StageContext,
    Translated,
    Tuned,
    Verified,
    made_from,
)
from worker.measure.machine import processor, versions
from worker.package.held_parameters import held_parameters
from worker.package.runtime import runtime_libraries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bessemer.contract.report import Preflight

_STATE = "state"
"""The argument for the state of a model whose users pass it, unless the model has one of that name."""


def make_report(
    value: object,
    context: StageContext,
    created_at: datetime,
    stopped_after: Stage | None = None,
    preflight: Preflight | None = None,
) -> Report:
    """Report everything known about the compilation so far.

    Args:
        value: the value of the last stage that ran.
        context: has the times of the stages and the sandbox.
        created_at: the report's date.
        stopped_after: the last stage, if the compilation stops early.
        preflight: the findings, if this is a preflight.

    Raises:
        ValueError: the model was not captured.
    """
    captured, translated = made_from(value, Captured), made_from(value, Translated)
    optimized, tuned = made_from(value, Optimized), made_from(value, Tuned)
    built = made_from(value, Built)
    verified, benchmarked = made_from(value, Verified), made_from(value, Benchmarked)
    if captured is None:
        raise ValueError("cannot report on a model that was not captured")
    counted, whole = optimized or translated, captured.with_complex
    return Report(
        bessemer=versions()["bessemer"],
        versions=versions(),
        created_at=created_at,
        model=captured.upload.request.model,
        model_format=captured.format,
        model_parameters=captured.parameters,
        other_methods=_methods_left(captured),
        request=captured.upload.request,
        target=captured.upload.target.resolved,
        inputs=whole.input_specs[: captured.own_inputs],
        outputs=whole.output_specs[: captured.own_outputs],
        state=whole.input_specs[captured.own_inputs :],
        seed=captured.seed,
        dynamic=captured.dynamic,
        verified=verified is not None and verified.ran,
        execution=captured.upload.target.execution if verified and verified.ran else None,
        reference=_reference_source(captured),
        comparisons=_shown_comparisons(captured, verified.comparisons) if verified else (),
        verified_sizes=verified_sizes(captured, verified),
        winograd_mismatch=verified.winograd_mismatch if verified else None,
        operators=counted.operators if counted else {},
        passes=optimized.passes if optimized else (),
        rewrites=optimized.rewrites if optimized else (),
        extensions=context.extensions,
        kernels=optimized.kernels if optimized else (),
        functions=built.functions if built else (),
        tune=tuned.result if tuned else None,
        built_functions=built.built_functions if built else None,
        splits=built.splits if built else (),
        estimate=built.estimate if built else None,
        memory=built.memory if built else None,
        gpu_functions=built.gpu_functions if built else (),
        gpu_kernels=built.gpu_kernels if built else (),
        benchmark=benchmarked.result if benchmarked else None,
        entries=_entry_reports(captured, verified, benchmarked),
        stages=context.finished_stages(),
        sandbox=context.sandbox,
        processor=processor(),
        stopped_after=stopped_after,
        preflight=preflight,
    )


def _reference_source(captured: Captured) -> ReferenceSource:
    program = captured.program
    return program.source if isinstance(program, RelaxProgram) else ReferenceSource.MODEL


def _methods_left(captured: Captured) -> tuple[str, ...]:
    """The model's methods that no entry point runs."""
    compiled = {entry.method.name for entry in captured.entries if entry.method}
    return tuple(name for name in captured.other_methods if name not in compiled)


def _entry_reports(
    captured: Captured, verified: Verified | None, benchmarked: Benchmarked | None
) -> tuple[EntryReport, ...]:
    """The entry points after the first."""
    found = verified.other_comparisons if verified else ()
    results = benchmarked.other_results if benchmarked else ()
    return tuple(
        EntryReport(
            name=entry.name,
            inputs=entry.input_specs[: entry.own_inputs],
            outputs=entry.output_specs[: entry.own_outputs],
            state=entry.input_specs[entry.own_inputs :],
            seed=entry.seed,
            dynamic=entry.dynamic,
            comparisons=_shown_comparisons(entry, comparisons or ()),
            verified_sizes=verified_sizes(entry, verified),
            benchmark=result,
        )
        for entry, comparisons, result in zip_longest(
            (other.with_complex for other in captured.others), found, results
        )
    )


def _shown_comparisons(
    captured: Captured, comparisons: tuple[OutputComparison, ...]
) -> tuple[OutputComparison, ...]:
    """Every comparison; of the runs of a model with state, only the worst for each tensor."""
    if not captured.states or not comparisons:
        return comparisons
    count = len(captured.output_specs)
    by_tensor = (comparisons[first::count] for first in range(count))
    return tuple(max(runs, key=lambda one: one.max_absolute_error) for runs in by_tensor)


def verified_sizes(captured: Captured, verified: Verified | None) -> tuple[VerifiedSizes, ...]:
    """The dynamic sizes at which an entry point was verified; empty if it has none, or did not run here."""
    axes = captured.dynamic.inputs if verified is not None and verified.ran else ()
    names = {axis.tensor for axis in axes}
    specs = tuple(spec for spec in captured.with_complex.input_specs if spec.name in names)
    others = (sample.sizes for sample in captured.samples if sample.sizes)
    choices = (captured.dynamic.sizes(specs), *others) if axes else ()
    return tuple(VerifiedSizes(sizes=sizes, inputs=specs_at(specs, axes, sizes)) for sizes in choices)


def kept_state(captured: Captured) -> dict[str, StateTensor]:
    """The tensors that the runner keeps between runs, by name, with the files of their first values."""
    specs = {spec.name: spec for entry in captured.entries for spec in entry.kept_specs}
    return {
        name: StateTensor(**dict(spec), file=f"{STATE_FOLDER}/{number}.npy")
        for number, (name, spec) in enumerate(specs.items())
    }


def _entry_points(benchmarked: Benchmarked) -> Iterator[EntryPoint]:
    captured, verified = benchmarked.captured, benchmarked.verified
    states, own = kept_state(captured), verified.built.own_memory
    for entry, tolerances in zip(captured.entries, verified.tolerances, strict=True):
        passed = entry.passed_by_users
        yield EntryPoint(
            name=entry.name,
            entry_point=entry.function,
            inputs=passed.input_specs,
            outputs=passed.output_specs,
            call=call_of(entry),
            state=tuple(states[spec.name] for spec in entry.kept_specs),
            seed=entry.seed,
            own_memory=tuple(
                spec.name for spec in passed.output_specs if spec.name in own.get(entry.function, ())
            ),
            dynamic=entry.dynamic,
            reference=reference_of(entry),
            tolerances=tolerances[: len(passed.output_specs)],
        )


def call_of(entry: Captured) -> CallStructure:
    """The call of an entry point. Users who pass the state also pass and get a dictionary of it."""
    specs = entry.input_specs[entry.own_inputs :]
    if not specs or entry.kept:
        return entry.call
    state = Container(
        container=ContainerKind.DICT,
        keys=entry.state_buffers,
        items=tuple(TensorLeaf(tensor=spec.name) for spec in specs),
    )
    known = {argument.name for argument in entry.call.arguments}
    names = (_STATE, *(f"{_STATE}_{number}" for number in range(2, len(known) + 2)))
    name = next(name for name in names if name not in known)
    taken = ArgumentStructure(name=name, structure=state, keyword_only=True)
    returns = entry.call.returns or ConstantLeaf(constant=None)
    return CallStructure(
        arguments=(*entry.call.arguments, taken),
        returns=Container(container=ContainerKind.TUPLE, items=(returns, state)),
    )


def reference_of(entry: Captured) -> Reference:
    """The files of an entry point's reference."""
    if entry.is_first:
        return Reference()
    return Reference(
        inputs=f"{REFERENCE_FOLDER}/{entry.name}/inputs.npz",
        outputs=f"{REFERENCE_FOLDER}/{entry.name}/outputs.npz",
    )


def make_manifest(benchmarked: Benchmarked, created_at: datetime) -> Manifest:
    """What the runner needs, without the other files of the bundle."""
    upload = benchmarked.captured.upload
    built = benchmarked.verified.built
    parameters = built.parameters
    first, *others = _entry_points(benchmarked)
    loads_runtime = upload.target.is_of_this_platform
    return Manifest(
        **dict(first),
        model=upload.request.model,
        target=upload.target.resolved,
        verified=upload.request.is_verified,
        entries=tuple(others),
        parameters=None if parameters is None else parameters.document,
        held_parameters=held_parameters(built.library),
        functions=built.functions,
        library=built.library.name,
        program=None if built.program is None else built.program.name,
        runtime_libraries=runtime_libraries(built.imports) if loads_runtime else (),
        versions=versions(),
        files=(),
        created_at=created_at,
    )
