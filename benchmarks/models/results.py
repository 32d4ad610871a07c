"""What a run of the suite found out: the content of ``benchmarks/results/<date>-models.json``."""

from datetime import datetime
from enum import StrEnum
from statistics import geometric_mean

from pydantic import BaseModel

from benchmarks.machine import Machine
from bessemer.contract.report import Latency
from bessemer.contract.stage import Stage


class State(StrEnum):
    """What became of a side."""

    MEASURED = "measured"
    MISSING = "missing"
    FAILED = "failed"
    DIFFERS = "differs"


class Ratio(BaseModel):
    """Our median over the peer's, round by round: below 1, ours is faster."""

    p10: float
    median: float
    p90: float


class SideResult(BaseModel):
    """One way to run a model. ``note`` says why there is no latency, where there is none.

    ``ready_seconds`` is from the model to the first result; ``busy_threads`` counts the threads that burned
    processor time; ``error`` is the largest difference from torch eager, as a share of its largest value.
    """

    name: str
    version: str | None = None
    state: State = State.MEASURED
    note: str = ""
    ready_seconds: float | None = None
    busy_threads: int | None = None
    error: float | None = None
    rounds: int = 0
    latency: Latency | None = None
    ratio: Ratio | None = None


class OperatorResult(BaseModel):
    """A function of the library over one run of the model; its speed where it multiplies or convolves.

    The speed is that of its fastest run, as the ceiling is that of the fastest product.
    """

    function: str
    calls: int
    milliseconds: float
    best_milliseconds: float = 0.0
    share: float
    products: str = ""
    gflops_per_second: float | None = None
    share_of_ceiling: float | None = None


class ModelResult(BaseModel):
    """A model: our library, its peers, its functions, and what compiling it took."""

    name: str
    inputs: list[str]
    gflop: float
    library_bytes: int
    unclaimed: int
    ours: SideResult
    peers: list[SideResult]
    operators: list[OperatorResult]
    stages: dict[Stage, list[float]]

    @property
    def measured_peers(self) -> dict[str, SideResult]:
        """The peers that have a latency, without stock TVM, which nobody would deploy untuned."""
        return {peer.name: peer for peer in self.peers if peer.latency is not None and peer.rounds > 1}

    @property
    def best_peer(self) -> SideResult | None:
        """The peer with the lowest median."""
        return min(self.measured_peers.values(), key=_median_ms, default=None)


class SgemmResult(BaseModel):
    """A product of two float32 matrices of ``size`` rows and columns, the best of all runs."""

    size: int
    torch_gflops: float
    ours_gflops: float


class GrowthResult(BaseModel):
    """Seconds by stage for a chain of layers."""

    kind: str
    layers: int
    stages: dict[Stage, float]


class ModelsResults(BaseModel):
    """Everything of one run."""

    machine: Machine
    measured_at: datetime
    minutes: float
    load_before: float
    threads: int
    sgemm: list[SgemmResult]
    models: list[ModelResult]
    growth: list[GrowthResult]

    @property
    def ceiling_gflops(self) -> float:
        """The fastest product of matrices of this run, torch's or ours."""
        return ceiling_of(self.sgemm)


def ceiling_of(sgemm: list[SgemmResult]) -> float:
    """The fastest product of matrices, torch's or ours; infinite where none was measured."""
    return max((max(one.torch_gflops, one.ours_gflops) for one in sgemm), default=float("inf"))


def mean_ratio(models: list[ModelResult], peer: str) -> float | None:
    """The geometric mean of our ratios to a peer over the models that it ran; None where it ran none."""
    sides = [model.measured_peers.get(peer) for model in models]
    ratios = [side.ratio.median for side in sides if side is not None and side.ratio is not None]
    return geometric_mean(ratios) if ratios else None


def mean_ratio_to_best(models: list[ModelResult]) -> float | None:
    """The geometric mean of our ratios to each model's best peer."""
    best = [model.best_peer for model in models]
    ratios = [side.ratio.median for side in best if side is not None and side.ratio is not None]
    return geometric_mean(ratios) if ratios else None


def _median_ms(side: SideResult) -> float:
    assert side.latency is not None
    return side.latency.p50_ms
