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
) -> Report:
    """A report with these figures; without a ratio, one without torch eager.

    In the slow rounds the ratio is ``spread`` times what it is in the fast ones.
    """
    peers = () if ratio is None else (ranging(baseline("torch-eager", 1.0, ratio), spread, unsteady),)
    result = BenchmarkResult(
        latency=latency(ratio or 1.0),
        threads=cores,
        library_bytes=library_bytes,
        peak_memory_bytes=48 << 20,
        baselines=peers,
        functions=(),
    )
    target = TARGET.model_copy(update={"cores": cores})
    return minimal_report().model_copy(
        update={"benchmark": result, "target": target, "comparisons": (comparison(),)}
    )


def ranging(peer: BaselineResult, spread: float, unsteady: str) -> BaselineResult:
    low, high = peer.ratio / spread**0.5, peer.ratio * spread**0.5
    return peer.model_copy(update={"ratio_p10": low, "ratio_p90": high, "unsteady": unsteady})


def a_job(problem: Problem | None = None) -> Compilation:
    """A compilation that has ended well, or with a problem."""
    return Compilation(
        id="2c26b46b68ffc68f",
        state=JobState.FAILED if problem else JobState.SUCCEEDED,
        request=minimal_report().request,
        target=TARGET,
        stages=(StageTime(stage=Stage.CAPTURE, seconds=0.25), StageTime(stage=Stage.TUNE, seconds=2)),
        problem=problem,
        created_at=CREATED_AT,
    )
