"""Compilations and reports for the tests of the gate."""

from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import Problem
from bessemer.contract.report import BaselineResult, BenchmarkResult, Report, StageTime
from bessemer.contract.stage import Stage
from tests.unit.report_samples import CREATED_AT, TARGET, baseline, comparison, latency, minimal_report


def a_report(
    ratio: float | None = 0.5,
    library_bytes: int = 1_000_000,
    cores: int = 2,
    spread: float = 1.2,
    unsteady: str = "",
    p50_ms: float = 2.0,
    min_ms: float | None = None,
    memory_bytes: int = 48_000_000,
    processor: str = "AMD EPYC 9R14",
    matmuls: int = 0,
    ours_unsteady: str = "",
) -> Report:
    """A report with these figures; without a ratio, one without torch eager.

    The ratio of the slow rounds is ``spread`` times the ratio of the fast ones.
    """
    peers = (
        () if ratio is None else (ranging(baseline("torch-eager", p50_ms / ratio, ratio), spread, unsteady),)
    )
    runs = latency(p50_ms)
    result = BenchmarkResult(
        latency=runs.model_copy(update={"min_ms": runs.min_ms if min_ms is None else min_ms}),
        unsteady=ours_unsteady,
        threads=cores,
        library_bytes=library_bytes,
        peak_memory_bytes=memory_bytes,
        baselines=peers,
        functions=(),
    )
    return minimal_report().model_copy(
        update={
            "benchmark": result,
            "target": TARGET.model_copy(update={"cores": cores}),
            "comparisons": (comparison(),),
            "processor": processor,
            "operators": {"matmul": matmuls} if matmuls else {},
        }
    )


def ranging(peer: BaselineResult, spread: float, unsteady: str) -> BaselineResult:
    low, high = peer.ratio / spread**0.5, peer.ratio * spread**0.5
    return peer.model_copy(update={"ratio_p10": low, "ratio_p90": high, "unsteady": unsteady})


def a_job(problem: Problem | None = None) -> Compilation:
    """A compilation that succeeded, or failed with a problem."""
    return Compilation(
        id="2c26b46b68ffc68f",
        state=JobState.FAILED if problem else JobState.SUCCEEDED,
        request=minimal_report().request,
        target=TARGET,
        stages=(StageTime(stage=Stage.CAPTURE, seconds=0.25), StageTime(stage=Stage.TUNE, seconds=2)),
        problem=problem,
        created_at=CREATED_AT,
    )
