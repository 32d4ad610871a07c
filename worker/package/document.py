"""The documents of a bundle: its report and its manifest, from what the stages found."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from bessemer.bundle.manifest import BundleFile, Manifest, OutputTolerance
from bessemer.contract.report import Report
from worker.machine import processor, versions
from worker.package.runtime import runtime_libraries

if TYPE_CHECKING:
    from worker.pipeline.types import Benchmarked, Workshop


def make_report(benchmarked: Benchmarked, workshop: Workshop, created_at: datetime) -> Report:
    """Everything that is known about the compilation up to here."""
    tuned = benchmarked.verified.built.tuned
    captured = tuned.captured
    return Report(
        bessemer=versions()["bessemer"],
        versions=versions(),
        created_at=created_at,
        model=captured.upload.request.model,
        model_format=captured.format,
        model_parameters=captured.parameters,
        request=captured.upload.request,
        target=captured.upload.target,
        inputs=captured.input_specs,
        outputs=captured.output_specs,
        dynamic=captured.dynamic,
        verified=True,
        comparisons=benchmarked.verified.comparisons,
        operators=tuned.optimized.operators,
        passes=tuned.optimized.passes,
        kernels=tuned.optimized.kernels,
        tune=tuned.result,
        benchmark=benchmarked.result,
        stages=workshop.finished_stages(),
        sandbox=workshop.sandbox,
        processor=processor(),
    )


def make_manifest(benchmarked: Benchmarked, files: tuple[BundleFile, ...], created_at: datetime) -> Manifest:
    """What the runner needs to know, and every file beside the manifest."""
    captured = benchmarked.captured
    parameters = benchmarked.verified.built.parameters
    return Manifest(
        model=captured.upload.request.model,
        target=captured.upload.target,
        inputs=captured.input_specs,
        outputs=captured.output_specs,
        dynamic=captured.dynamic,
        parameters=None if parameters is None else parameters.document,
        runtime_libraries=runtime_libraries(benchmarked.verified.built.imports),
        tolerances=tuple(
            OutputTolerance(
                name=comparison.name,
                relative=comparison.tolerance.relative,
                absolute=comparison.tolerance.absolute,
            )
            for comparison in benchmarked.verified.comparisons[: len(captured.output_specs)]
        ),
        versions=versions(),
        files=files,
        created_at=created_at,
    )
