"""Makes the report and the manifest of a bundle from the values of the stages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from bessemer.bundle.manifest import STATE_FOLDER, BundleFile, Manifest, OutputTolerance, StateTensor
from bessemer.contract.report import OutputComparison, Report
from bessemer.contract.stage import Stage
from worker.compiler.values import (
    Benchmarked,
    Built,
    Captured,
    Optimized,
    StageContext,
    Translated,
    Tuned,
    Verified,
    made_from,
)
from worker.measure.machine import processor, versions
from worker.package.runtime import runtime_libraries

if TYPE_CHECKING:
    from bessemer.contract.report import Preflight


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
    counted = optimized or translated
    return Report(
        bessemer=versions()["bessemer"],
        versions=versions(),
        created_at=created_at,
        model=captured.upload.request.model,
        model_format=captured.format,
        model_parameters=captured.parameters,
        other_methods=captured.other_methods,
        request=captured.upload.request,
        target=captured.upload.target.resolved,
        inputs=captured.input_specs[: captured.own_inputs],
        outputs=captured.output_specs[: captured.own_outputs],
        state=captured.input_specs[captured.own_inputs :],
        dynamic=captured.dynamic,
        verified=verified is not None,
        comparisons=_shown_comparisons(verified) if verified else (),
        operators=counted.operators if counted else {},
        passes=optimized.passes if optimized else (),
        rewrites=optimized.rewrites if optimized else (),
        kernels=optimized.kernels if optimized else (),
        tune=tuned.result if tuned else None,
        splits=built.splits if built else (),
        benchmark=benchmarked.result if benchmarked else None,
        stages=context.finished_stages(),
        sandbox=context.sandbox,
        processor=processor(),
        stopped_after=stopped_after,
        preflight=preflight,
    )


def _shown_comparisons(verified: Verified) -> tuple[OutputComparison, ...]:
    """Every comparison; of the runs of a model with state, only the worst for each tensor."""
    if not verified.captured.states:
        return verified.comparisons
    count = len(verified.captured.output_specs)
    by_tensor = (verified.comparisons[first::count] for first in range(count))
    return tuple(max(runs, key=lambda one: one.max_absolute_error) for runs in by_tensor)


def kept_state(captured: Captured) -> tuple[StateTensor, ...]:
    """The tensors that the runner keeps between runs, with the files of their first values."""
    specs = captured.input_specs[len(captured.input_specs) - captured.kept :]
    return tuple(
        StateTensor(**dict(spec), file=f"{STATE_FOLDER}/{number}.npy") for number, spec in enumerate(specs)
    )


def make_manifest(benchmarked: Benchmarked, files: tuple[BundleFile, ...], created_at: datetime) -> Manifest:
    """What the runner needs, and every other file of the bundle."""
    captured = benchmarked.captured
    passed = captured.passed_by_users
    parameters = benchmarked.verified.built.parameters
    return Manifest(
        model=captured.upload.request.model,
        target=captured.upload.target.resolved,
        inputs=passed.input_specs,
        outputs=passed.output_specs,
        state=kept_state(captured),
        dynamic=captured.dynamic,
        parameters=None if parameters is None else parameters.document,
        runtime_libraries=runtime_libraries(benchmarked.verified.built.imports),
        tolerances=tuple(
            OutputTolerance(
                name=comparison.name,
                relative=comparison.tolerance.relative,
                absolute=comparison.tolerance.absolute,
            )
            for comparison in benchmarked.verified.comparisons[: len(passed.output_specs)]
        ),
        versions=versions(),
        files=files,
        created_at=created_at,
    )
