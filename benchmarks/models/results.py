"""The content of ``benchmarks/results/<date>-models-<processor>.json``."""

from datetime import datetime
from enum import StrEnum
from statistics import geometric_mean

from pydantic import BaseModel

from benchmarks.machine import Machine, ProcessorKind
from bessemer.contract.report import Latency
from bessemer.contract.stage import Stage

STOCK = "stock TVM"
BATCH_SEPARATOR = " x "
"""Between a model's name and its batch, if that is above one."""


def topic(kind: ProcessorKind) -> str:
    """The topic of the results on processors of a kind."""
    return f"models-{kind.slug}"


def larger_batches(kind: ProcessorKind) -> str:
    """The topic of a run without batch 1."""
    return f"{topic(kind)}-batches"


class State(StrEnum):
    """The outcome of a side."""

    MEASURED = "measured"
    MISSING = "missing"
    FAILED = "failed"
    DIFFERS = "differs"


class Ratio(BaseModel):
    """Our median divided by the peer's, per round; below 1, ours is faster."""

    p10: float
    median: float
    p90: float


class SideResult(BaseModel):
    """One way to run a model. ``note`` says why the latency is missing.

    ``ready_seconds`` is the time from the model to the first result. ``busy_threads`` counts threads that
    used the processor. ``error`` is the largest difference from torch eager, relative to its largest value.
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
    """A function of the library in one run of the model, with its speed if it has products.

    The speed is that of its fastest run.
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
    """A model: our library, its peers, its functions, and its compile times."""

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
    def batch(self) -> int:
        """The samples of one run."""
        return int(self.name.partition(BATCH_SEPARATOR)[2] or 1)

    @property
    def measured_peers(self) -> dict[str, SideResult]:
        """The peers with a latency, except untuned stock TVM."""
        return {peer.name: peer for peer in self.peers if peer.latency is not None and peer.rounds > 1}

    @property
    def best_peer(self) -> SideResult | None:
        """The peer with the lowest median."""
        return min(self.measured_peers.values(), key=_median_ms, default=None)


class SgemmResult(BaseModel):
    """A product of two square float32 matrices, best of all runs."""

    size: int
    torch_gflops: float
    ours_gflops: float


class GrowthResult(BaseModel):
    """Seconds per stage for a chain of layers."""

    kind: str
    layers: int
    stages: dict[Stage, float]


class ModelsResults(BaseModel):
    """The results of one run."""

    machine: Machine
    measured_at: datetime
    minutes: float
    load_before: float
    threads: int
    sgemm: list[SgemmResult]
    models: list[ModelResult]
    growth: list[GrowthResult]

    @property
    def has_single_samples(self) -> bool:
        """Whether batch 1 is among those measured."""
        return any(model.batch == 1 for model in self.models)

    @property
    def ceiling_gflops(self) -> float:
        """The fastest matrix product of this run, torch's or ours."""
        return ceiling_of(self.sgemm)


def ceiling_of(sgemm: list[SgemmResult]) -> float:
    """The fastest matrix product, torch's or ours; infinite if none was measured."""
    return max((max(one.torch_gflops, one.ours_gflops) for one in sgemm), default=float("inf"))


def mean_ratio(models: list[ModelResult], peer: str) -> float | None:
    """The geometric mean of our ratios to a peer, over the models that it ran; None if it ran none."""
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
