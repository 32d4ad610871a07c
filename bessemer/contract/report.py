"""What a finished compilation found out: the content of ``report.json``."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field, ValidationInfo, field_validator

from bessemer.contract.base import Digest, Document
from bessemer.contract.dynamic import DynamicShapes
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import SearchEnd, Tolerance
from bessemer.contract.preflight import Preflight
from bessemer.contract.problem import SourcePlace
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget
from bessemer.contract.tensor import DType, TensorSpec

STEADY_WITHIN = 4
"""How much larger the ratio of slow rounds may be than that of fast rounds before a baseline is unsteady."""

RUNS_FOR_P90 = 20
RUNS_FOR_P99 = 200
"""With fewer runs, a percentile is little more than the slowest run: there is none."""


class StageTime(Document):
    """How long a stage took, in seconds of wall clock."""

    stage: Stage = Field(description="One that has ended well.")
    seconds: float = Field(description="Waiting for a turn to measure included.")


class PassTime(Document):
    """One pass of the optimization."""

    phase: str = Field(description="The part of the optimization to which it belongs.")
    name: str = Field(description="TVM's, or that of a pass of ours.")
    seconds: float = Field(description="Wall clock.")
    functions: int = Field(description="Functions in the module afterwards.")


class RewriteResult(Document):
    """What one rewrite of the graph did."""

    name: str = Field(description="As `optimize.enable` and `optimize.disable` name it.")
    source: str = Field(description="The entry point that it comes from.")
    count: int = Field(description="How often it fired.")
    places: tuple[SourcePlace, ...] = Field(
        default=(), description="Where in the user's model, the first hundred."
    )


class Latency(Document):
    """The distribution of single runs, in milliseconds."""

    runs: int = Field(description="How many runs were timed, one by one.")
    min_ms: float = Field(description="The fastest.")
    p50_ms: float = Field(description="The median.")
    p90_ms: float | None = Field(
        default=None,
        description="90th percentile, by linear interpolation between runs; null with fewer than "
        f"{RUNS_FOR_P90} runs.",
    )
    p99_ms: float | None = Field(
        default=None,
        description="99th percentile, by linear interpolation between runs; null with fewer than "
        f"{RUNS_FOR_P99} runs.",
    )
    mean_ms: float = Field(description="The arithmetic mean: one interrupted run shows in it.")
    stddev_ms: float = Field(description="The population's standard deviation; 0 for one run.")

    @field_validator("p90_ms", "p99_ms")
    @classmethod
    def _needs_runs(cls, value: float | None, info: ValidationInfo) -> float | None:
        least = RUNS_FOR_P90 if info.field_name == "p90_ms" else RUNS_FOR_P99
        return value if info.data.get("runs", 0) >= least else None


class ThreadTrial(Document):
    """How fast a baseline was with one number of threads."""

    threads: int = Field(description="How many threads the baseline used.")
    runs: int = Field(description="How many runs were timed.")
    p50_ms: float = Field(description="The median of those runs.")
    min_ms: float = Field(description="The fastest of those runs.")


class BaselineResult(Document):
    """A baseline on the same inputs, timed in alternation with the library."""

    name: str = Field(description="As the request's `benchmark.baselines` names it.")
    threads: int = Field(
        description="How many threads it used: one or all of them, whichever was faster in `trials`."
    )
    latency: Latency = Field(description="Of the baseline's runs, in alternation with the library.")
    ratio: float = Field(
        description="The library's median divided by the baseline's, round by round; the median of that. "
        "Below 1, the library is faster. It means nothing where `unsteady` says why."
    )
    ratio_p10: float = Field(description="10th percentile of the ratios, round by round.")
    ratio_p90: float = Field(description="90th percentile of the ratios, round by round.")
    trials: tuple[ThreadTrial, ...] = Field(
        default=(), description="The first look, with each number of threads; empty in older reports."
    )
    second_look_ms: float | None = Field(
        default=None, description="The median when it was measured again at the end; null in older reports."
    )
    unsteady: str = Field(
        default="",
        description="Why the ratio is unreliable: the baseline or the library stalled, or took more "
        "than 1.5 times as long at one look as at another. Empty where it was steady.",
    )

    @property
    def doubt(self) -> str:
        """Why the ratio makes no headline; empty where it holds."""
        if self.unsteady or not self.ratio_p90 > STEADY_WITHIN * self.ratio_p10:
            return self.unsteady
        return f"its rounds range from {self.ratio_p10:.3g} to {self.ratio_p90:.3g}"

    @property
    def is_steady(self) -> bool:
        """Whether one ratio can stand for the comparison."""
        return not self.doubt


class FunctionTime(Document):
    """One function of the library, over one run of the model."""

    name: str = Field(description="In the library; `runtime` is what remains of a run beside all others.")
    calls: int = Field(description="In one run of the model.")
    milliseconds: float = Field(description="The median of the runs.")
    best_milliseconds: float = Field(default=0.0, description="The run in which it was fastest.")
    share: float = Field(description="Of all functions' median times, 0 to 1.")
    flops: int = Field(
        default=0,
        description="Floating-point operations of its matrix products and convolutions, over one run of the "
        "model; 0 where it has none, or where a size is not known.",
    )
    products: str = Field(
        default="", description="The shapes of those products: `1x784 · 784x128 → 1x128`; empty without any."
    )


class BenchmarkResult(Document):
    """What was measured. Sizes in bytes."""

    latency: Latency = Field(description="Of the library, on the reference inputs.")
    unsteady: str = Field(
        default="",
        description="Why the latency is unreliable: the library stalled, or took more than 1.5 "
        "times as long at one look as at another. Empty where it was steady.",
    )
    threads: int = Field(description="The target's cores, or as many of them as the worker had.")
    library_bytes: int = Field(description="Of `model.so`; runtime and separate parameters come on top.")
    peak_memory_bytes: int = Field(description="The most that loading and running it adds to a process.")
    baselines: tuple[BaselineResult, ...] = Field(description="In the request's order.")
    functions: tuple[FunctionTime, ...] = Field(description="Those that take longest first.")


class OutputComparison(Document):
    """One output against its reference."""

    name: str = Field(description="Of the output, as in `outputs`.")
    shape: tuple[int, ...] = Field(description="With the inputs of this comparison.")
    dtype: DType = Field(description="The library's and the model's.")
    tolerance: Tolerance = Field(description="The one that was in force.")
    max_absolute_error: float = Field(description="Of any element; two NaN, or two equal infinities, agree.")
    max_relative_error: float = Field(description="Of any element whose reference is not 0.")
    worst_index: tuple[int, ...] = Field(
        description="Of the element nearest to its bound; empty of a scalar, and where none is finite."
    )
    worst_value: float = Field(description="There, the library's.")
    worst_reference: float = Field(description="There, the model's.")
    mismatches: int = Field(description="Elements beyond the tolerance: 0, or the compilation had failed.")
    elements: int = Field(description="Compared in all.")
    rounding: float | None = Field(
        default=None,
        description="Where the default tolerance was too narrow: how far the model's own output lies from "
        "float64's, beyond the relative part. The absolute part is four times it, unless that is more than "
        "rounding. Else null.",
    )


class TuneTask(Document):
    """One workload that was searched. Latencies are of one call, in milliseconds."""

    name: str = Field(description="Of a function that computes it; others may compute the same.")
    weight: int = Field(description="How often the model calls it.")
    trials: int = Field(description="Candidates that were tried, `failed` ones included.")
    failed: int = Field(description="Candidates that did not build, crashed or took too long.")
    best_ms: float | None = Field(
        description="The fastest of the default schedule and all trials; null where nothing ran."
    )
    history_ms: tuple[float, ...] = Field(default=(), description="The best so far, after each trial.")
    space: str = Field(
        default="",
        description="Where it was searched: a space that the request names, `plans` (its family's), or "
        "`metaschedule` (its own rules).",
    )
    kept: bool = Field(default=False, description="Whether the library has the schedule that was found.")
    won: bool = Field(
        default=False,
        description="Whether the best trial beat the default schedule when both were measured again, in "
        "alternation; false where nothing was compared.",
    )
    found_ms: float | None = Field(
        default=None, description="The best trial, the default apart; null where none ran."
    )
    default_ms: float | None = Field(
        default=None, description="The default schedule; null where it did not run."
    )
    failure: str | None = Field(
        default=None, description="Why the last trial that failed did; null where none failed."
    )
    exhausted: bool = Field(default=False, description="Whether its space has no candidates left.")
    refused: int = Field(default=0, description="Draws on which a space by hand raised; they are no trials.")
    refusal: str | None = Field(
        default=None, description="What it raised the last time; null where it never did."
    )


class KernelChoice(Document):
    """One workload that a kernel library could compute. Times are medians of one call, in milliseconds."""

    workload: str = Field(description="The operator and its operands' shapes; a request may name it.")
    kernel: str = Field(description="The library.")
    symbol: str = Field(description="Its function.")
    calls: int = Field(description="How often the model has it.")
    used: bool = Field(description="Whether the library is called; else our own schedules run.")
    kernel_ms: float | None = Field(
        default=None, description="By the library; null unless both were measured."
    )
    own_ms: float | None = Field(
        default=None, description="By our own schedules; null unless both were measured."
    )


class Schedules(StrEnum):
    """Where the schedules of a library come from."""

    SEARCH = "search"
    DEFAULT = "default"


class TuneVerdict(Document):
    """How a search ended. Latencies are medians of the whole model, in milliseconds."""

    trials: int = Field(description="Of all tasks; 0 where nothing was to be searched.")
    kept: Schedules | None = Field(
        default=None, description="The schedules that the library has; null without a search."
    )
    search_ms: float | None = Field(
        default=None,
        description="With the search's schedules; null unless both were timed in alternation.",
    )
    default_ms: float | None = Field(
        default=None,
        description="With the default schedules; null unless both were timed in alternation.",
    )
    crashed: Schedules | None = Field(
        default=None, description="Those with which the whole model crashed; null where it never did."
    )
    unsearched: int = Field(
        default=0, description="Functions that the search left out because their sizes are open."
    )
    ended_by: SearchEnd | None = Field(
        default=None,
        description="Why the search stopped. `trials`, `seconds`: it reached this limit of the request. "
        "`candidates`: it measured every candidate that it could make. Null without a search.",
    )


class TuneResult(TuneVerdict):
    """What the search did."""

    seconds: float = Field(description="Wall clock of search and comparison; 0 without a search.")
    tasks: tuple[TuneTask, ...] = Field(description="Each workload once; none without a search.")
    unclaimed: int = Field(
        default=0, description="Functions that no family of schedules knows, scheduled by general rules."
    )
    unclaimed_functions: tuple[str, ...] = Field(default=(), description="Their names, in order.")


class FunctionSplit(Document):
    """One function that `build` compiled in parts, because it took too long as a whole."""

    name: str = Field(description="The function's; the library has its parts instead.")
    seconds: float = Field(description="The processor time that it was allowed.")
    parts: tuple[str, ...] = Field(description="The functions called instead, in the order of their calls.")
    places: tuple[SourcePlace, ...] = Field(
        default=(), description="Where in the user's model it comes from, as far as that is known."
    )


class Report(Document):
    """Everything that is known about a finished compilation; of one that stopped early, as far as it went."""

    bessemer: str = Field(description="The worker's version of Bessemer.")
    versions: dict[str, str] = Field(description="Of Python and the packages on which the library depends.")
    created_at: datetime = Field(description="When it was written.")
    model: Digest = Field(description="The SHA-256 of the uploaded model.")
    model_format: ModelFormat = Field(description="Found from the model's bytes.")
    model_parameters: int = Field(description="Elements in all parameters and buffers.")
    other_methods: tuple[str, ...] = Field(
        default=(),
        description="Methods of a script module besides `forward`, which are compiled only where `forward` "
        "calls them.",
    )
    request: CompilationRequest = Field(description="What was asked for, every default filled in.")
    target: ResolvedTarget = Field(description="What the library was compiled for.")
    inputs: tuple[TensorSpec, ...] = Field(description="In the order of the model's arguments.")
    outputs: tuple[TensorSpec, ...] = Field(description="Flat, in the model's order.")
    dynamic: DynamicShapes = Field(
        default=DynamicShapes(),
        description="Sizes that the library leaves open; `inputs` and `outputs` have those of the reference.",
    )
    verified: bool = Field(description="False where it stopped before `verify`, too.")
    comparisons: tuple[OutputComparison, ...] = Field(
        description="Each output with the reference inputs; where sizes are open, then with other sizes."
    )
    operators: dict[str, int] = Field(description="Relax operators after translation, with their counts.")
    passes: tuple[PassTime, ...] = Field(
        description="In the order in which they ran; none where it stopped before `optimize`."
    )
    rewrites: tuple[RewriteResult, ...] = Field(
        default=(), description="The rewrites that were on, in the order in which they ran."
    )
    kernels: tuple[KernelChoice, ...] = Field(
        default=(), description="Workloads that the request left to a kernel library, or to measurement."
    )
    tune: TuneResult | None = Field(default=None, description="Null where it stopped before `tune`.")
    splits: tuple[FunctionSplit, ...] = Field(
        default=(),
        description="Functions that took too long to compile, and were compiled in parts: these pass on "
        "tensors in memory, which may make the library slower.",
    )
    benchmark: BenchmarkResult | None = Field(
        default=None, description="Null where it stopped before `benchmark`."
    )
    stages: tuple[StageTime, ...] = Field(
        description="In their order; not `package`, which writes this document."
    )
    sandbox: SandboxStatus = Field(description="The confinement in which the model ran.")
    processor: str = Field(description="The processor that was measured on.")
    stopped_after: Stage | None = Field(
        default=None, description="The last stage that ran; null unless `stop_after` ended it early."
    )
    preflight: Preflight | None = Field(default=None, description="Null unless it stopped after `translate`.")
