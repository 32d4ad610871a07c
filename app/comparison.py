"""Compares the results of a group. Pure functions of its documents."""

import math
from collections.abc import Iterator, Mapping

from bessemer.bundle.manifest import ARCHIVE, LIBRARY
from bessemer.contract.base import JobId
from bessemer.contract.group import Comparison, Group, TargetResult, shown_target
from bessemer.contract.job import REFERENCE, Compilation
from bessemer.contract.report import OutputComparison, Report


def compare(group: Group, reports: Mapping[JobId, Report]) -> Comparison:
    """The results of a group, target by target.

    Args:
        group: the group.
        reports: the readable reports, by compilation.
    """
    references = [
        file.digest
        for job in group.items
        for file in job.artifacts
        if file.name == REFERENCE and job.verified
    ]
    return Comparison(
        group=group.id,
        name=group.name,
        model=group.model,
        state=group.state,
        created_at=group.created_at,
        same_reference=len(set(references)) == 1 if len(references) > 1 else None,
        items=tuple(target_result(job, reports.get(job.id)) for job in group.items),
    )


def target_result(job: Compilation, report: Report | None) -> TargetResult:
    """The result of one compilation. Fields that only the report has are None without it."""
    sizes = {file.name: file.size_bytes for file in job.artifacts}
    figures, benchmark = job.figures, None if report is None else report.benchmark
    comparisons = () if report is None else tuple(_comparisons(report))
    closest = max(comparisons, key=error_share, default=None)
    return TargetResult(
        id=job.id,
        target=shown_target(job.request.target),
        state=job.state,
        cached=job.cached,
        stage=job.stage,
        problem=job.problem,
        verified=job.verified,
        execution=None if report is None else report.execution,
        processor=report.processor if report is not None and job.verified else None,
        threads=None if benchmark is None else benchmark.threads,
        latency=None if figures is None else figures.latency,
        estimate=None if report is None else report.estimate,
        unsteady="" if figures is None else figures.unsteady,
        peer=None
        if figures is None
        else min(figures.baselines, key=lambda peer: peer.latency.p50_ms, default=None),
        library_bytes=sizes.get(LIBRARY),
        bundle_bytes=sizes.get(ARCHIVE),
        max_absolute_error=_finite(max((one.max_absolute_error for one in comparisons), default=None)),
        tolerance=None if closest is None else closest.tolerance,
        error_share=None if closest is None else _finite(error_share(closest)),
        seconds=_seconds(job),
    )


def error_share(found: OutputComparison) -> float:
    """An output's error as a share of its bound, at the element closest to its bound; 0 if both are 0."""
    error = abs(found.worst_value - found.worst_reference)
    bound = found.tolerance.absolute + found.tolerance.relative * abs(found.worst_reference)
    if not error:
        return 0.0
    return error / bound if bound else math.inf


def _seconds(job: Compilation) -> float | None:
    if job.started_at is None or job.finished_at is None:
        return None
    return (job.finished_at - job.started_at).total_seconds()


def _comparisons(report: Report) -> Iterator[OutputComparison]:
    yield from report.comparisons
    for entry in report.entries:
        yield from entry.comparisons


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
