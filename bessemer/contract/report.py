"""What a finished compilation found out: the content of ``report.json``."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from bessemer.contract.base import Digest, Document
from bessemer.contract.dynamic import DynamicShapes
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import Tolerance
from bessemer.contract.preflight import Preflight
from bessemer.contract.problem import SourcePlace
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget
from bessemer.contract.tensor import DType, TensorSpec


class StageTime(Document):
    """How long a stage took, in seconds of wall clock."""

    stage: Stage
    seconds: float


class PassTime(Document):
    """One pass of the optimization."""

    phase: str
    name: str
    seconds: float
    functions: int = Field(description="Functions in the module afterwards.")


class RewriteResult(Document):
    """What one rewrite of the graph did."""

    name: str
    source: str = Field(description="The entry point that it comes from.")
    count: int = Field(description="How often it fired.")
    places: tuple[SourcePlace, ...] = Field(
        default=(), description="Where in the user's model, the first hundred."
    )


class Latency(Document):
    """The distribution of single runs, in milliseconds."""

    runs: int
    min_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    mean_ms: float
    stddev_ms: float


class BaselineResult(Document):
    """A peer on the same inputs and threads, timed in alternation with the library."""

    name: str
    threads: int
    latency: Latency
    ratio: float = Field(
        description="The library's median divided by the peer's, round by round; the median of that. "
        "Below 1, the library wins."
    )
    ratio_p10: float = Field(description="10th percentile of the ratios, round by round.")
    ratio_p90: float = Field(description="90th percentile of the ratios, round by round.")


class FunctionTime(Document):
    """One function of the library, over one run of the model."""

    name: str
    calls: int
    milliseconds: float = Field(description="The median of the runs.")
    best_milliseconds: float = Field(default=0.0, description="The run in which it was fastest.")
    share: float = Field(description="Of all functions' median times, 0 to 1.")
    flops: int = Field(
        default=0,
        description="Floating-point operations of its matrix products and convolutions, over one run of the "
        "model; 0 where it has none, or where a size is not known.",
    )
    products: str = Field(default="", description="The shapes of those products.")


class BenchmarkResult(Document):
    """What was measured. Sizes in bytes."""

    latency: Latency
    threads: int = Field(description="The target's cores, or as many of them as the worker had.")
    library_bytes: int
    peak_memory_bytes: int = Field(description="Of a process that loads the library and runs it.")
    baselines: tuple[BaselineResult, ...]
    functions: tuple[FunctionTime, ...]


class OutputComparison(Document):
    """One output against its reference."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    tolerance: Tolerance
    max_absolute_error: float
    max_relative_error: float
    worst_index: tuple[int, ...]
    worst_value: float
    worst_reference: float
    mismatches: int
    elements: int
    rounding: float | None = Field(
        default=None,
        description="Where the default tolerance was too narrow: how far the model's own output lies from "
        "float64's, beyond the relative part. The absolute part is four times it, unless that is more than "
        "rounding.",
    )


class TuneTask(Document):
    """One workload that was searched. Latencies are of one call, in milliseconds."""

    name: str
    weight: int = Field(description="How often the model calls it.")
    trials: int
    failed: int
    best_ms: float | None
    history_ms: tuple[float, ...] = Field(default=(), description="The best so far, after each trial.")
    space: str = Field(
        default="",
        description="Where it was searched: a space that the request names, `plans` (its family's), or "
        "`metaschedule` (its own rules).",
    )
    kept: bool = Field(default=False, description="Whether the library has the schedule that was found.")
    found_ms: float | None = Field(default=None, description="The best trial, the default apart.")
    default_ms: float | None = Field(default=None, description="The default schedule.")
    failure: str | None = Field(default=None, description="Why the last trial that failed did.")
    refused: int = Field(default=0, description="Draws on which a space by hand raised; they are no trials.")
    refusal: str | None = Field(default=None, description="What it raised the last time.")


class KernelChoice(Document):
    """One workload that a kernel library could compute. Times are medians of one call, in milliseconds."""

    workload: str = Field(description="The operator and its operands' shapes; a request may name it.")
    kernel: str = Field(description="The library.")
    symbol: str = Field(description="Its function.")
    calls: int = Field(description="How often the model has it.")
    used: bool = Field(description="Whether the library is called; else our own schedules run.")
    kernel_ms: float | None = Field(default=None, description="By the library, where both were measured.")
    own_ms: float | None = Field(default=None, description="By our own schedules.")


class Schedules(StrEnum):
    """Where the schedules of a library come from."""

    SEARCH = "search"
    DEFAULT = "default"


class TuneResult(Document):
    """What the search did. Latencies are medians of the whole model, in milliseconds."""

    trials: int
    seconds: float
    tasks: tuple[TuneTask, ...]
    kept: Schedules | None = Field(
        default=None, description="The schedules that the library has, where there was a search."
    )
    search_ms: float | None = Field(
        default=None, description="With the search's schedules, where both were timed in alternation."
    )
    default_ms: float | None = Field(default=None, description="The same with the default schedules.")
    unsearched: int = Field(
        default=0, description="Functions that the search left out because their sizes are open."
    )
    unclaimed: int = Field(
        default=0, description="Functions that no family of schedules knows, scheduled by general rules."
    )
    unclaimed_functions: tuple[str, ...] = Field(default=(), description="Their names, in order.")


class Report(Document):
    """Everything that is known about a finished compilation; of one that stopped early, as far as it went."""

    bessemer: str
    versions: dict[str, str]
    created_at: datetime
    model: Digest
    model_format: ModelFormat
    model_parameters: int
    request: CompilationRequest
    target: ResolvedTarget
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dynamic: DynamicShapes = Field(
        default=DynamicShapes(),
        description="Sizes that the library leaves open; `inputs` and `outputs` have those of the reference.",
    )
    verified: bool = Field(description="False where it stopped before `verify`, too.")
    comparisons: tuple[OutputComparison, ...] = Field(
        description="Each output with the reference inputs; where sizes are open, then with other sizes."
    )
    operators: dict[str, int] = Field(description="Relax operators after translation, with their counts.")
    passes: tuple[PassTime, ...]
    rewrites: tuple[RewriteResult, ...] = Field(
        default=(), description="The rewrites that were on, in the order in which they ran."
    )
    kernels: tuple[KernelChoice, ...] = Field(
        default=(), description="Workloads that the request left to a kernel library, or to measurement."
    )
    tune: TuneResult | None = Field(default=None, description="None where it stopped before `tune`.")
    benchmark: BenchmarkResult | None = Field(
        default=None, description="None where it stopped before `benchmark`."
    )
    stages: tuple[StageTime, ...]
    sandbox: SandboxStatus
    processor: str = Field(description="The processor that was measured on.")
    stopped_after: Stage | None = Field(
        default=None, description="The last stage that ran, where the request's `stop_after` ended it early."
    )
    preflight: Preflight | None = Field(default=None, description="Where it stopped after `translate`.")
