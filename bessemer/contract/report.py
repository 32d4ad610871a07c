"""The report of a finished compilation: the content of ``report.json``."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from bessemer.contract.base import Digest, Document, GrowingEnum
from bessemer.contract.device import DeviceOutput
from bessemer.contract.dynamic import MAX_DIMENSIONS, DynamicShapes, VerifiedSizes
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import SearchEnd, Tolerance
from bessemer.contract.problem import Problem, SourcePlace
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget
from bessemer.contract.tensor import DType, TensorName, TensorSpec

STEADY_WITHIN = 4
"""A baseline is unsteady if the 90th percentile of its ratios exceeds this multiple of the 10th."""

QUANTILES = 40
RUNS_FOR_P90 = 20
RUNS_FOR_P99 = 200
"""With fewer runs, a percentile is little more than the slowest run, so it is omitted."""


class StageTime(Document):
    """The wall-clock time of a stage."""

    stage: Stage = Field(description="A stage that succeeded.")
    seconds: float = Field(description="Wall-clock time, including the wait for a turn to measure.")


class PassTime(Document):
    """One pass of the optimization."""

    phase: str = Field(description="The phase of the optimization that the pass belongs to.")
    name: str = Field(description="The name of the pass, in TVM or in Bessemer.")
    seconds: float = Field(description="Wall-clock time.")
    functions: int = Field(description="Number of functions in the module after the pass.")


class RewriteResult(Document):
    """The effect of one graph rewrite."""

    name: str = Field(description="The name for `optimize.enable` and `optimize.disable`.")
    source: str = Field(
        description="The entry point that provides the rewrite, or the name of an uploaded extension."
    )
    count: int = Field(description="Number of times that it applied.")
    places: tuple[SourcePlace, ...] = Field(
        default=(), description="The first hundred places in the user's model where it applied."
    )


class LoadedExtension(Document):
    """An uploaded extension of the request."""

    digest: Digest = Field(description="The SHA-256 of the file.")
    name: str = Field(description="The file's name.")
    defines: dict[str, tuple[str, ...]] = Field(
        description="What the file defines, by the name of the tuple that has it, such as `REWRITES`."
    )


class Latency(Document):
    """The latency distribution of single runs, in milliseconds."""

    runs: int = Field(description="Number of runs, timed one by one.")
    min_ms: float = Field(description="The fastest run.")
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
    mean_ms: float = Field(description="The arithmetic mean, which one interrupted run can distort.")
    stddev_ms: float = Field(description="The population standard deviation; 0 for one run.")

    @field_validator("p90_ms", "p99_ms")
    @classmethod
    def _needs_runs(cls, value: float | None, info: ValidationInfo) -> float | None:
        least = RUNS_FOR_P90 if info.field_name == "p90_ms" else RUNS_FOR_P99
        return value if info.data.get("runs", 0) >= least else None


class ThreadTrial(Document):
    """The latency of a baseline with one number of threads."""

    threads: int = Field(description="Number of threads that the baseline used.")
    runs: int = Field(description="Number of timed runs.")
    p50_ms: float = Field(description="The median of the runs.")
    min_ms: float = Field(description="The fastest run.")


class BaselineResult(Document):
    """A baseline, timed in alternation with the library on the same inputs."""

    name: str = Field(description="The name in the request's `benchmark.baselines`.")
    threads: int = Field(description="Number of threads: one or all, whichever was faster in `trials`.")
    latency: Latency = Field(description="Latency of the baseline's runs.")
    ratio: float = Field(
        description="The library's latency divided by the baseline's: the median over rounds of the ratio of "
        "medians. Below 1, the library is faster. Ignore it if `unsteady` is not empty."
    )
    ratio_p10: float = Field(description="10th percentile of the ratio over rounds.")
    ratio_p90: float = Field(description="90th percentile of the ratio over rounds.")
    tokens_per_second: float | None = Field(
        default=None, description="As in the library's result; null unless it is a decoder."
    )
    trials: tuple[ThreadTrial, ...] = Field(
        default=(), description="A first measurement with each number of threads; empty in older reports."
    )
    second_look_ms: float | None = Field(
        default=None,
        description="The median in the last half of the rounds; in older reports, after them, or null.",
    )
    unsteady: str = Field(
        default="",
        description="Why the ratio is unreliable: the baseline or the library stalled, or one measurement "
        "took more than 1.5 times as long as another. Empty if the ratio is reliable.",
    )

    @property
    def doubt(self) -> str:
        """Why the ratio should not be quoted; empty if it is reliable."""
        if self.unsteady or not self.ratio_p90 > STEADY_WITHIN * self.ratio_p10:
            return self.unsteady
        return f"its rounds range from {self.ratio_p10:.3g} to {self.ratio_p90:.3g}"

    @property
    def is_steady(self) -> bool:
        """Whether the ratio is reliable."""
        return not self.doubt


RUNTIME = "runtime"
"""Stands for the work of a run outside the functions."""


class FunctionTime(Document):
    """The time of one function of the library in one run of the model."""

    name: str = Field(
        description="The function's name; `runtime` stands for the rest of a run: checking the inputs, "
        "allocating results and calling the functions."
    )
    calls: int = Field(description="Number of calls in one run of the model.")
    milliseconds: float = Field(description="The median of the runs.")
    best_milliseconds: float = Field(default=0.0, description="The time in its fastest run.")
    share: float = Field(description="Share of the sum of all functions' median times, 0 to 1.")
    flops: int = Field(
        default=0,
        description="Floating-point operations of its matrix products and convolutions in one run of the "
        "model; 0 if it has none, or if a size is unknown.",
    )
    products: str = Field(
        default="",
        description="The shapes of these products, such as `1x784 · 784x128 → 1x128`; empty if it has none.",
    )
    places: tuple[SourcePlace, ...] = Field(
        default=(),
        description="The operators that it computes, with their places in the user's model, in the model's "
        "order; empty if they are unknown, and for entry points after the first.",
    )


class RunTimes(Document):
    """The distribution of the single runs of the library or of a baseline."""

    name: str = Field(description="`library`, or the name of the baseline.")
    quantiles_ms: tuple[float, ...] = Field(
        description=f"The {QUANTILES}-quantiles from the fastest run to the slowest, by linear "
        f"interpolation: {QUANTILES + 1} numbers, of which the middle one is the median."
    )


class PeerAbsence(Document):
    """A runtime that a comparison could not time."""

    name: str = Field(description="The runtime, as in `baselines`.")
    reason: str = Field(
        description="Why: it is not installed, cannot run the model, or computes other outputs."
    )


class PeerVerdict(Document):
    """Whether the library beats the other runtimes on the same inputs and threads."""

    beats: tuple[str, ...] = Field(description="The runtimes that it is more than 3 % faster than.")
    loses_to: tuple[str, ...] = Field(description="The runtimes that are more than 3 % faster.")
    undecided: tuple[str, ...] = Field(description="The others: as fast, or measured unsteadily.")
    fastest: str | None = Field(description="The fastest of the steady ones; null if there is none.")
    ratio: float | None = Field(
        description="The library's latency divided by that of `fastest`; below 1, the library is faster. "
        "Null if `fastest` is."
    )
    absent: tuple[PeerAbsence, ...] = Field(default=(), description="The runtimes that were not timed.")

    @property
    def wins(self) -> bool:
        """Whether the library beats every runtime that was timed."""
        return bool(self.beats) and not (self.loses_to or self.undecided)


class MachineCeiling(Document):
    """What the worker's machine reaches with the library's threads."""

    flops_per_second: float = Field(description="Floating-point operations of a float32 product.")
    memory_bytes_per_second: float = Field(description="Bytes that a large copy reads and writes.")
    cache_bytes_per_second: float = Field(
        description="Bytes that the cores read from their second-level caches, by the model of the processor."
    )
    cache_bytes: int = Field(description="The size of these caches together.")


class FunctionGap(Document):
    """How far a function is from the machine's ceiling, over all its calls in one run of the model."""

    name: str = Field(description="The function's name.")
    calls: int = Field(description="Number of calls in one run of the model.")
    milliseconds: float = Field(description="The median time of its calls in one run.")
    share: float = Field(description="Share of the sum of all functions' median times, 0 to 1.")
    ceiling_ms: float = Field(
        description="What its products take at the machine's rate, or its tensors if that takes longer."
    )
    ceiling_share: float = Field(description="`ceiling_ms` divided by `milliseconds`: 1 is the ceiling.")
    bound: str = Field(description="`arithmetic` or `memory`: which of the two the ceiling is.")
    could_save_ms: float = Field(description="What a run would save if it reached 80 % of the ceiling.")


class PeerComparison(PeerVerdict):
    """The verdict, and what holds the library back."""

    ceiling: MachineCeiling | None = Field(description="The ceiling; null if it could not be measured.")
    holding_back: tuple[FunctionGap, ...] = Field(
        description="The functions with most to gain, at most eight, the first first."
    )
    could_save_ms: float = Field(
        description="What a search could still bring, at most: the sum over all functions of what they would "
        "save at 80 % of their ceilings."
    )


class Estimate(Document):
    """The cost of one run, estimated by the processor model for processors without measurements."""

    flops: int = Field(description="Floating-point operations of its matrix products and convolutions.")
    moved_bytes: int = Field(
        description="The bytes of the tensors of each function that it calls, each tensor once."
    )
    cycles: int = Field(
        description="Cycles of each thread if arithmetic, or else loads and stores, ran at the full rate of "
        "the processor's vector units, with all data in the first-level cache."
    )
    threads: int = Field(description="The threads that share the work.")


class MemoryPoint(Document):
    """The memory in use during one call of a run."""

    function: str = Field(description="The function that is called.")
    live_bytes: int = Field(description="Bytes of the intermediate results, outputs and buffers in use.")


class RunMemory(Document):
    """The memory that one run works in, besides parameters and inputs."""

    arena_bytes: int = Field(description="The size of the arena that holds all of it.")
    calls: tuple[MemoryPoint, ...] = Field(
        description="The memory in use during each call, in order; at most 10,000 calls."
    )


class GpuKernel(Document):
    """What one kernel uses on one GPU architecture, as NVIDIA's assembler reports it."""

    name: str = Field(description="The kernel's name.")
    arch: str = Field(description="The architecture, such as `sm_90`.")
    registers: int = Field(description="Registers of each thread.")
    shared_bytes: int = Field(description="Shared memory of each block whose size is fixed in the code.")
    stack_bytes: int = Field(description="Memory of each thread outside registers.")
    spilled_bytes: int = Field(
        description="Bytes of stores and loads because registers were short. 0 is best."
    )


class GpuFunction(Document):
    """The work of one call of a function of a library for GPUs."""

    name: str = Field(description="The function's name.")
    kernels: tuple[str, ...] = Field(description="The kernels that a call starts, in order.")
    calls: int = Field(description="How often a run of the first entry point calls it.")
    flops: int = Field(description="Floating-point operations of its matrix products and convolutions.")
    moved_bytes: int = Field(description="The bytes of its tensors, each once.")


class BenchmarkResult(Document):
    """The result of the benchmark. Sizes are in bytes."""

    latency: Latency = Field(description="Latency of the library on the reference inputs.")
    unsteady: str = Field(
        default="",
        description="Why the latency is unreliable: the library stalled, or one measurement took more than "
        "1.5 times as long as another. Empty if the latency is reliable.",
    )
    drift: str = Field(
        default="",
        description="How the latency changed while it was measured: what the first runs, of up to a second, "
        "and the later ones took, where their ranges (10th to 90th percentile) don't overlap. Empty if they "
        "do.",
    )
    tokens: int | None = Field(
        default=None,
        description="For a decoder, how many tokens a run takes: 1 writes the next, more read a prompt. Null "
        "for other models. A decoder takes the numbers of its tokens, alone or with their positions, and "
        "keeps a cache as state; one of its entry points takes a single token.",
    )
    tokens_per_second: float | None = Field(
        default=None, description="`tokens` divided by the median latency; null unless it is a decoder."
    )
    threads: int = Field(
        description="Number of threads: the target's cores, or the worker's if it has fewer."
    )
    library_bytes: int = Field(description="Size of `model.so`, without the runtime and separate parameters.")
    peak_memory_bytes: int = Field(
        description="Peak memory that loading and running the library adds to a process."
    )
    baselines: tuple[BaselineResult, ...] = Field(description="The baselines, in the request's order.")
    functions: tuple[FunctionTime, ...] = Field(description="The library's functions, slowest first.")
    distributions: tuple[RunTimes, ...] = Field(
        default=(),
        description="How single runs are distributed: of the library, then of each baseline. Empty in older "
        "reports, and for a GPU.",
    )
    comparison: PeerComparison | None = Field(
        default=None,
        description="The verdict on the other runtimes, which are among `baselines`; null unless the request "
        "has `benchmark.compare`, and for entry points after the first.",
    )


class Execution(GrowingEnum):
    """How a library ran to be verified."""

    NATIVE = "native"
    EMULATED = "emulated"
    PROGRAM = "program"
    DEVICE = "device"


class DeviceEntryRun(Document):
    """An entry point on a device."""

    name: str = Field(description="Its name in the request.")
    outputs: tuple[DeviceOutput, ...] = Field(description="Each output on the reference inputs.")
    open_ms: float | None = Field(description="The time to open the model; null if the device is emulated.")
    first_ms: float | None = Field(description="The time of the first run; null if the device is emulated.")
    latency: Latency | None = Field(
        description="The latency of the runs after the first; null if the device is emulated or timed none."
    )


class DeviceRun(Document):
    """How the bundle's program ran on a device."""

    name: str = Field(description="The device's name.")
    platform: str = Field(description="Its platform, such as `aarch64`.")
    processor: str = Field(description="The model of its processor.")
    cores: int = Field(description="Its cores.")
    libc: str = Field(description="Its C library.")
    emulated: bool = Field(description="Whether an emulator ran the program; then nothing is measured.")
    threads: int = Field(description="The threads that the program used.")
    peak_memory_bytes: int | None = Field(
        description="The program's peak memory; null if the device is emulated."
    )
    entries: tuple[DeviceEntryRun, ...] = Field(description="The entry points, the first first.")

    @property
    def latency(self) -> Latency | None:
        """The latency of the first entry point."""
        return self.entries[0].latency if self.entries else None

    @property
    def max_absolute_error(self) -> float:
        """The largest difference of any output."""
        return max(
            (out.max_absolute_error or 0.0 for entry in self.entries for out in entry.outputs), default=0.0
        )


class ReferenceSource(GrowingEnum):
    """What computed the outputs that the library is compared with."""

    MODEL = "model"
    FUNCTION = "function"
    ARRAYS = "arrays"
    LOWERING = "lowering"


class OutputComparison(Document):
    """The comparison of one output with its reference."""

    name: str = Field(description="The output's name, as in `outputs`.")
    shape: tuple[int, ...] = Field(description="The output's shape with the inputs of this comparison.")
    dtype: DType = Field(description="The dtype of the output and of its reference.")
    tolerance: Tolerance = Field(description="The tolerance that applied.")
    max_absolute_error: float = Field(
        description="The largest absolute error of any element. Two NaNs, or two equal infinities, agree."
    )
    max_relative_error: float = Field(
        description="The largest relative error of any element with a nonzero reference."
    )
    worst_index: tuple[int, ...] = Field(
        description="Index of the element closest to its bound; empty for a scalar, and if no element is "
        "finite."
    )
    worst_value: float = Field(description="The library's value at `worst_index`.")
    worst_reference: float = Field(description="The model's value at `worst_index`.")
    mismatches: int = Field(
        description="Number of elements beyond the tolerance; always 0, or the compilation would have failed."
    )
    elements: int = Field(description="Total number of elements.")
    reordered: int = Field(
        default=0,
        description="Rows that come in another order than the model's, since their scores tie within the "
        "tolerance. Only where the number of rows depends on data.",
    )
    moved_inputs: bool = Field(
        default=False,
        description="Whether the library agrees with the model on inputs that differ by rounding (at most 8 "
        "units in the last place), because the model decides differently on the given inputs. "
        "Only where the number of rows depends on data.",
    )
    rounding: float | None = Field(
        default=None,
        description="The model's own rounding error against float64, beyond the relative tolerance, if the "
        "default tolerance was smaller than that. The absolute tolerance is four times this error, unless "
        "that is more than rounding explains. Otherwise null.",
    )


ANALYTIC = "analytic"
"""The ranker that keeps the order of a schedule family."""


class SearchedSpace(Document):
    """The trials of one workload in one search space."""

    name: str = Field(
        description="A space from the request, `plans` (the plans of the function's schedule family), or "
        "`metaschedule` (MetaSchedule's design spaces), or `records` (the request's records)."
    )
    trials: int = Field(description="Number of candidates tried, including `failed` ones.")
    failed: int = Field(description="Candidates that did not build, crashed or took too long.")
    best_ms: float | None = Field(description="Milliseconds of the best trial; null if none ran.")


class TuneTask(Document):
    """The search for one workload. Latencies are milliseconds per call."""

    name: str = Field(description="A function with this workload; others may share it.")
    weight: int = Field(description="Number of calls in one run of the model.")
    trials: int = Field(description="Number of candidates tried, including `failed` ones.")
    failed: int = Field(description="Candidates that did not build, crashed or took too long.")
    best_ms: float | None = Field(
        description="The fastest of the default schedule and all trials; null if nothing ran."
    )
    history_ms: tuple[float, ...] = Field(
        default=(), description="The best latency so far, after each trial."
    )
    space: str = Field(
        default="",
        description="The search space of the best trial; the first of `spaces` if no trial ran.",
    )
    spaces: tuple[SearchedSpace, ...] = Field(
        default=(), description="The spaces that the search reached, in order."
    )
    kept: bool = Field(
        default=False, description="Whether the library uses the schedule that the search found."
    )
    won: bool = Field(
        default=False,
        description="Whether the best trial beat the default schedule in a second measurement of both in "
        "alternation; false if there was none.",
    )
    found_ms: float | None = Field(
        default=None, description="The best trial, not counting the default; null if none ran."
    )
    default_ms: float | None = Field(
        default=None, description="The default schedule; null if it did not run."
    )
    failure: str | None = Field(
        default=None, description="Why the last failed trial failed; null if none failed."
    )
    exhausted: bool = Field(
        default=False, description="Whether the search tried every candidate of its spaces."
    )
    ranked_by: str | None = Field(
        default=None,
        description="What ordered the family's plans before any was measured: `analytic`, the family's own "
        "model of the processor, or `learned` with the version of the learned cost model, used where "
        "it was better on functions that it had not seen; null if no plan was measured.",
    )
    refused: int = Field(
        default=0, description="Draws for which a custom space raised an error; they do not count as trials."
    )
    refusal: str | None = Field(
        default=None, description="The last error that the space raised; null if it raised none."
    )
    skipped: bool = Field(
        default=False,
        description="Whether the space that the request names for a pattern of functions does not fit this "
        "one, which keeps its default schedule. `refusal` or `failure` says why.",
    )

    @property
    def looked_faster(self) -> bool:
        """Whether the search found a faster schedule, by its first measurements."""
        return self.found_ms is not None and (self.default_ms is None or self.found_ms < self.default_ms)


class LayoutTrial(Document):
    """A choice of the layout phase that the search measured beside the expected one, in alternation."""

    layer: str = Field(
        description="A convolution, measured alone: its channels and pixels, and its output channels, as "
        "`64x56x56 -> 64`. Or `model`, measured as a whole."
    )
    function: str = Field(description="A function that the choice concerns, whose record keeps it.")
    choice: str = Field(
        description="`direct`, `winograd-2` or `winograd-4`, after the side of a tile; `blocks-256`: blocks "
        "of channels of 256 bits; `activation-apart`: a function of its own activates a join; "
        "`chains-apart`: a function of its own computes the windows behind a convolution."
    )
    expected: str = Field(description="What the processor's model had chosen.")
    found_ms: float | None = Field(default=None, description="Latency with `choice`; null if it failed.")
    default_ms: float | None = Field(default=None, description="Latency with `expected`; null if it failed.")
    kept: bool = Field(description="Whether the library is laid out so.")


class KernelChoice(Document):
    """A workload that a kernel library can compute. Times are medians in milliseconds per call."""

    workload: str = Field(description="The operator and its operands' shapes, as a request can name them.")
    kernel: str = Field(description="The kernel library.")
    symbol: str = Field(description="The function in the kernel library.")
    calls: int = Field(description="Number of calls in one run of the model.")
    used: bool = Field(
        description="Whether the compiled model calls the kernel library instead of Bessemer's own schedule."
    )
    kernel_ms: float | None = Field(
        default=None, description="Latency of the kernel library; null unless both were measured."
    )
    own_ms: float | None = Field(
        default=None, description="Latency of Bessemer's own schedule; null unless both were measured."
    )


class GivenSchedule(Document):
    """A schedule from the request, which the library uses. Latencies are milliseconds per call."""

    function: str = Field(description="The function that has it.")
    file: str = Field(description="The extension, and the function in it: `my_schedule.py:schedule`.")
    schedule_ms: float | None = Field(
        default=None, description="The function with this schedule; null if its sizes are dynamic."
    )
    default_ms: float | None = Field(
        default=None,
        description="The function with its default schedule, timed in alternation; null if it did not run.",
    )
    skipped: str | None = Field(
        default=None,
        description="Why the file does not fit this function, which a pattern names and which keeps its "
        "default schedule; null if it does.",
    )


class WrittenSchedule(GivenSchedule):
    """A schedule from the request with its trace."""

    trace: str = Field(
        default="", description="The primitives and sampled decisions, as Python; empty if it is skipped."
    )
    script: str = Field(
        default="", description="The scheduled function in TVMScript; empty if it is skipped."
    )


class Schedules(GrowingEnum):
    """The origin of a library's schedules."""

    SEARCH = "search"
    DEFAULT = "default"


class SearchDevice(Document):
    """A device that measured the candidates of a search."""

    name: str = Field(description="The device's name.")
    platform: str = Field(description="Its platform, such as `aarch64`.")
    processor: str = Field(description="The model of its processor; empty if it is emulated.")
    emulated: bool = Field(
        description="Whether an emulator ran the candidates: their times only rank them, and say nothing "
        "about the hardware."
    )


class ModelEstimate(Document):
    """What is known of the whole model's latency while a search runs, in milliseconds."""

    latency_ms: float = Field(
        description="The estimate: the untuned latency, less what the best schedules so far save in the "
        "functions that call them. Without an untuned latency, the sum over the searched functions."
    )
    untuned_ms: float | None = Field(
        default=None, description="The measured latency with the default schedules; null if not measured."
    )
    peers_ms: dict[Annotated[str, Field(max_length=64)], float] = Field(
        default={},
        max_length=8,
        description="Measured medians of other runtimes by name; empty unless the request compares.",
    )


class SearchPoint(Document):
    """The state of a search after a round."""

    seconds: float = Field(description="Seconds since the search began.")
    trials: int = Field(description="Number of candidates measured until then.")
    latency_ms: float = Field(description="The whole model's estimated latency.")


class SearchShares(Document):
    """Where the rounds of a search spent their time; the shares are from 0 to 1."""

    trials_per_minute: float = Field(description="Candidates measured, by the time of the rounds.")
    search: float = Field(description="Proposing candidates, and learning from their times.")
    build: float = Field(description="Building candidates.")
    measure: float = Field(description="Measuring candidates, with the wait for a turn.")


class StoredRecordsUse(Document):
    """How a compilation used the service's tuning records, by distinct function."""

    hits: int = Field(
        description="Functions for which it used a record: without trials, as their schedule; with "
        "trials, as candidates."
    )
    misses: int = Field(description="Functions of fixed sizes for which there was no record to use.")
    misfits: int = Field(
        default=0,
        description="Records whose traces or plans do not apply to their function; they were skipped.",
    )
    near: int = Field(
        default=0,
        description="Functions without a record whose search began with schedules of similar functions.",
    )
    near_trials: int = Field(
        default=0, description="Candidates that the search measured because of similar functions."
    )
    passed_over: int = Field(
        default=0,
        description="Candidates that the search passed over, as they did not compile in an earlier search.",
    )
    restored_trials: int = Field(
        default=0, description="Trials that an earlier attempt at the compilation had measured."
    )
    dropped: str | None = Field(
        default=None,
        description="Why the library uses the default schedules after all: with the records, it could not be "
        "built, or was wrong; null if it was not.",
    )


class TuneVerdict(Document):
    """How a search ended. Latencies are medians of the whole model in milliseconds."""

    trials: int = Field(description="Trials of all workloads; 0 without a search.")
    kept: Schedules | None = Field(
        default=None, description="The schedules that the library uses; null without a search."
    )
    search_ms: float | None = Field(
        default=None,
        description="Latency with the schedules from the search; null unless both were timed in alternation.",
    )
    default_ms: float | None = Field(
        default=None,
        description="Latency with the default schedules; null unless both were timed in alternation.",
    )
    crashed: Schedules | None = Field(
        default=None, description="The schedules with which the whole model crashed; null if it never did."
    )
    unsearched: int = Field(
        default=0, description="Number of functions that the search skipped because their sizes are dynamic."
    )
    skipped: int = Field(
        default=0,
        description="Number of functions that match a pattern in `tune.spaces` but that its space does not "
        "fit.",
    )
    schedules: tuple[GivenSchedule, ...] = Field(
        default=(), description="The schedules that the request gives, by function."
    )
    records: int = Field(default=0, description="Number of tuning records that the request gives.")
    unused_records: int = Field(
        default=0, description="Number of these records that fit no function of the search."
    )
    stored: StoredRecordsUse | None = Field(
        default=None,
        description="How the service's tuning records were used; null if they were not asked for.",
    )
    ended_by: SearchEnd | None = Field(
        default=None,
        description="Why the search stopped. `trials`, `seconds`: it reached this limit of the request. "
        "`until_ms`, `gain_below`: likewise, by the whole model's estimated latency. `job_time`: a search "
        "without `trials` and `seconds` left the job the time for its other stages. "
        "`trials_per_task`: every function reached `tune.max_trials_per_task` or has no candidates left. "
        "`candidates`: it measured every candidate that it could generate. `stopped`: the user cancelled the "
        "compilation and keeps the best so far. `device`: no device measured any "
        "more; see `device_failure`. `no_gpu`: the target is a GPU and the worker has none, so the "
        "cost model ranked the plans. Null without a search.",
    )
    workloads: int = Field(
        default=0, description="Number of functions that the search had; 0 without a search."
    )
    seemed_faster: int = Field(
        default=0,
        description="Number of functions for which a candidate looked faster in the search, but not clearly "
        "when measured again beside the default schedule.",
    )
    enough_seconds: float | None = Field(
        default=None,
        description="About how long the search would have to take for a trial of every function; null unless "
        "its time ended before that, and if nothing has shown how long a trial takes.",
    )
    devices: tuple[SearchDevice, ...] = Field(
        default=(),
        description="The devices that measured, in the order of their first measurements; empty if the "
        "worker did.",
    )
    device_failure: str | None = Field(
        default=None, description="Why no device was left to measure; null unless that ended the search."
    )


class TuneResult(TuneVerdict):
    """The result of the search."""

    seconds: float = Field(
        description="Wall-clock time of the search and the comparison; 0 without a search."
    )
    tasks: tuple[TuneTask, ...] = Field(description="Each workload once; empty without a search.")
    estimate: ModelEstimate | None = Field(
        default=None, description="The whole model at the end of the search; null if nothing was measured."
    )
    curve: tuple[SearchPoint, ...] = Field(
        default=(),
        description="The whole model's estimated latency over the search: the first and the last round, and "
        "each that lowered it.",
    )
    rankers: dict[str, int] = Field(
        default={},
        description="What ranked plans before any was measured, with the number of functions: `analytic`, "
        "their families' own models, or `learned` with the version of the learned cost model.",
    )
    shares: SearchShares | None = Field(
        default=None, description="Where the rounds spent their time; null if there was none."
    )
    layouts: tuple[LayoutTrial, ...] = Field(
        default=(),
        description="The choices of the layout phase that the search measured; each counts as a trial.",
    )
    schedules: tuple[WrittenSchedule, ...] = Field(
        default=(), description="The schedules that the request gives, by function."
    )
    unclaimed: int = Field(
        default=0,
        description="Number of functions that match no schedule family and use general rules instead.",
    )
    unclaimed_functions: tuple[str, ...] = Field(default=(), description="The names of these functions.")


class BuiltFunctions(Document):
    """How many functions of a library `build` compiled, and how many it took from the worker's cache."""

    compiled: int = Field(description="Number of functions that `build` compiled.")
    cached: int = Field(description="Number of functions that the worker's cache had.")


class FunctionSplit(Document):
    """A function that `build` compiled in parts because it took too long as a whole."""

    name: str = Field(description="The name of the function. The library contains its parts instead.")
    seconds: float = Field(description="The CPU time limit that it exceeded.")
    parts: tuple[str, ...] = Field(description="The functions called instead, in call order.")
    places: tuple[SourcePlace, ...] = Field(
        default=(), description="The places in the user's model that it comes from, as far as known."
    )


class OperatorUse(Document):
    """A torch operator, after decomposition to core operators."""

    name: str = Field(description="The name in `torch.ops`, such as `aten.linear.default`.")
    calls: int = Field(description="Number of calls in the graph.")
    flops: int = Field(
        description="Floating-point operations of its matrix products and convolutions in one run; else 0."
    )
    supported: bool = Field(description="Whether the compiler can translate it.")


class Preflight(Document):
    """The result of a compilation that stops after `translate`. For dynamic sizes, see `sizes`."""

    compiles: bool = Field(description="Whether the model can be translated; false if there are `problems`.")
    problems: tuple[Problem, ...] = Field(
        description="Why the model would not compile: all unsupported operators with their places, or the "
        "place where the translation failed."
    )
    rule_template: str = Field(
        default="",
        description="Python source of translation rules to fill in for unsupported operators; empty if none "
        "would help.",
    )
    operators: tuple[OperatorUse, ...] = Field(description="The operators, most frequent first.")
    flops: int | None = Field(
        description="Floating-point operations of one run: two for each term of a matrix product or "
        "convolution; other operators do not count. Null for an IRModule."
    )
    sizes: dict[str, int] = Field(
        default={},
        max_length=MAX_DIMENSIONS,
        description="The dynamic sizes for which `flops` and `peak_activation_bytes` hold: those that the "
        "model was exported for; a size of 1 in the request is exported as 2. Empty if all sizes are fixed, "
        "and for an IRModule.",
    )
    parameters: int = Field(description="Number of elements in all parameters and buffers.")
    parameter_bytes: int = Field(description="Their size; shared memory counts once.")
    peak_activation_bytes: int | None = Field(
        description="Peak memory of inputs and intermediate results without fusion, each kept until its last "
        "use. The library needs less. Null for an IRModule."
    )


class EntryReport(Document):
    """What the report says about an entry point after the first."""

    name: str = Field(description="Its name in the request.")
    inputs: tuple[TensorSpec, ...] = Field(description="The inputs, in the order of the method's arguments.")
    outputs: tuple[TensorSpec, ...] = Field(description="The flattened outputs, in the method's order.")
    state: tuple[TensorSpec, ...] = Field(default=(), description="What it keeps between runs.")
    seed: TensorName | None = Field(default=None, description="As in the report; null if it draws none.")
    dynamic: DynamicShapes = Field(default=DynamicShapes(), description="Its dynamic sizes.")
    comparisons: tuple[OutputComparison, ...] = Field(
        description="As in the report; empty if the compilation stopped before `verify`."
    )
    verified_sizes: tuple[VerifiedSizes, ...] = Field(
        default=(), description="As in the report; empty if all sizes are fixed."
    )
    benchmark: BenchmarkResult | None = Field(
        default=None, description="As in the report; null if the compilation stopped before `benchmark`."
    )


class Report(Document):
    """The report of a finished compilation, or of one that stopped early."""

    bessemer: str = Field(description="The worker's version of Bessemer.")
    versions: dict[str, str] = Field(
        description="Versions of Python and of the packages that the library depends on."
    )
    created_at: datetime = Field(description="When the report was written.")
    model: Digest = Field(description="The SHA-256 of the uploaded model.")
    model_format: ModelFormat = Field(description="The format, recognized by the model's bytes.")
    model_parameters: int = Field(
        description="Number of elements in all parameters and buffers. Equal ones of several entry points "
        "count once."
    )
    other_methods: tuple[str, ...] = Field(
        default=(),
        description="The other methods of a script module, or programs of a `.pt2`. `entries` compiles them.",
    )
    request: CompilationRequest = Field(description="The request, with defaults filled in.")
    target: ResolvedTarget = Field(description="The target with every choice made.")
    inputs: tuple[TensorSpec, ...] = Field(description="The inputs, in the order of the model's arguments.")
    outputs: tuple[TensorSpec, ...] = Field(description="The flattened outputs, in the model's order.")
    state: tuple[TensorSpec, ...] = Field(
        default=(),
        description="What the model keeps between runs. `comparisons` has the worst of several runs for each "
        "output and state.",
    )
    seed: TensorName | None = Field(
        default=None,
        description="The input that is the seed of the model's random numbers; null if it draws none.",
    )
    dynamic: DynamicShapes = Field(
        default=DynamicShapes(),
        description="Dynamic sizes of the library; `inputs` and `outputs` show those of the reference.",
    )
    verified: bool = Field(
        description="Whether the library passed verification; false if the compilation stopped before "
        "`verify`, or if the request asks for no verification."
    )
    execution: Execution | None = Field(
        default=None,
        description="How the library ran to be verified: `native`, on the worker's processor; `emulated`, by "
        "qemu; `program`, on the worker's processor by the bundle's own program, since the target's C "
        "library is another; or `device`, on the device that `device` describes. Only `native` libraries are "
        "measured by the worker. Null before `verify`.",
    )
    device: DeviceRun | None = Field(
        default=None,
        description="The device that verified the bundle, and its measurements; null if none did.",
    )
    reference: ReferenceSource = Field(
        default=ReferenceSource.MODEL,
        description="What the library is compared with. `model`: the uploaded model, run by torch. For an "
        "IRModule, `function`: a Python function in the same file; `arrays`: uploaded inputs and outputs; "
        "`lowering`: the module as TVM lowers it without rewrites, fusion and schedules of Bessemer's.",
    )
    comparisons: tuple[OutputComparison, ...] = Field(
        description="Each output on the reference inputs; with dynamic sizes, also at other sizes."
    )
    verified_sizes: tuple[VerifiedSizes, ...] = Field(
        default=(),
        description="The dynamic sizes of `comparisons`: those of the reference inputs, then others. Empty "
        "if all sizes are fixed, and if the worker did not run the library.",
    )
    winograd_mismatch: str | None = Field(
        default=None,
        description="If an output differed with convolutions by Winograd's algorithm: which and by how much. "
        "The library was then compiled again with direct convolutions, in the time of the stage `verify`; "
        "null if none differed.",
    )
    operators: dict[str, int] = Field(description="Counts of Relax operators after translation.")
    passes: tuple[PassTime, ...] = Field(
        description="The passes, in order; empty if the compilation stopped before `optimize`."
    )
    rewrites: tuple[RewriteResult, ...] = Field(default=(), description="The enabled rewrites, in order.")
    extensions: tuple[LoadedExtension, ...] = Field(
        default=(), description="The uploaded extensions of the request, in its order."
    )
    functions: tuple[str, ...] = Field(
        default=(),
        description="Functions of extensions that the library calls, and that each of its users registers "
        "with `run.py --functions`.",
    )
    kernels: tuple[KernelChoice, ...] = Field(
        default=(), description="Workloads for which the request chose a kernel library or `auto`."
    )
    tune: TuneResult | None = Field(
        default=None, description="The result of the search; null if the compilation stopped before `tune`."
    )
    built_functions: BuiltFunctions | None = Field(
        default=None,
        description="The functions that `build` compiled or took from the worker's cache; null if the "
        "compilation stopped before `build`, and for a GPU.",
    )
    splits: tuple[FunctionSplit, ...] = Field(
        default=(),
        description="Functions that took too long to compile and were split. The parts exchange tensors "
        "through memory, which can make the library slower.",
    )
    gpu_functions: tuple[GpuFunction, ...] = Field(
        default=(), description="The functions of a library for GPUs, and the kernels that they start."
    )
    gpu_kernels: tuple[GpuKernel, ...] = Field(
        default=(), description="What each kernel of a library for GPUs uses, on each architecture."
    )
    estimate: Estimate | None = Field(
        default=None,
        description="The work of one run of the first entry point; null if a size is dynamic or if C cannot "
        "call the library.",
    )
    memory: RunMemory | None = Field(
        default=None,
        description="The memory of one run of the first entry point, call by call; null if a size is "
        "dynamic, if C cannot call the library, and for a GPU.",
    )
    benchmark: BenchmarkResult | None = Field(
        default=None,
        description="The measurements; null if the compilation stopped before `benchmark`, or if no machine "
        "here measures the target.",
    )
    entries: tuple[EntryReport, ...] = Field(
        default=(),
        description="The entry points after the first. `inputs`, `outputs`, `comparisons`, `operators`, "
        "`passes`, `rewrites` and `benchmark` of the report are about the first.",
    )
    stages: tuple[StageTime, ...] = Field(
        description="The stages in order, without `package`, which writes this report."
    )
    sandbox: SandboxStatus = Field(description="The sandbox in which the model ran.")
    processor: str = Field(description="The processor of the measurements.")
    stopped_after: Stage | None = Field(
        default=None,
        description="The last stage that ran; null unless `stop_after` ended the compilation early.",
    )
    preflight: Preflight | None = Field(
        default=None, description="The preflight; null unless the compilation stopped after `translate`."
    )
