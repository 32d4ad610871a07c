"""The values that pass from stage to stage. Each is frozen; each holds what the later stages need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bessemer.contract.dynamic import DynamicShapes
from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import SourcePlace
from bessemer.contract.report import (
    BenchmarkResult,
    FunctionSplit,
    KernelChoice,
    OutputComparison,
    PassTime,
    RewriteResult,
    StageTime,
    TuneResult,
)
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.target import ResolvedTarget
from bessemer.contract.tensor import TensorSpec
from worker.measure.machine import threads_here
from worker.protocol.observer import JobObserver

if TYPE_CHECKING:
    import numpy as np
    import torch
    import tvm
    from torch.fx import Node

    from worker.candidates.client import CandidateClient
    from worker.parameters import ParameterFile

    Arrays = tuple[np.ndarray, ...]

Value = TypeVar("Value")


@dataclass(frozen=True)
class StageContext:
    """What stages work with besides their input: folders, processes, and an observer of their work.

    ``left_seconds`` says how much wall clock the job has left.
    """

    scratch: Path
    output: Path
    candidates: CandidateClient
    sandbox: SandboxStatus
    finished_stages: Callable[[], tuple[StageTime, ...]]
    left_seconds: Callable[[], float]
    observer: JobObserver = field(default_factory=JobObserver)


@dataclass(frozen=True)
class Upload:
    """The bytes of a model, and what is wanted of them."""

    path: Path
    request: CompilationRequest
    target: ResolvedTarget

    @property
    def threads(self) -> int:
        """With how many threads the library is run here: its target may have more cores than this machine."""
        return threads_here(self.target.cores)


@dataclass(frozen=True)
class Sample:
    """What the original makes of inputs: arrays in the order of the specs; ``sizes`` if they are others."""

    sizes: dict[str, int]
    inputs: Arrays
    references: Arrays


@dataclass(frozen=True)
class Captured:
    """The model as an exported program, run once.

    ``eager(*tensors)`` runs the original as its user would, for the baseline. ``inputs`` and ``references``
    are contiguous arrays in the order of ``input_specs`` and ``output_specs``. Where sizes are ``dynamic``,
    specs and arrays have the example's, and ``samples`` hold others.
    """

    upload: Upload
    format: ModelFormat
    program: torch.export.ExportedProgram
    eager: Callable[..., object]
    input_specs: tuple[TensorSpec, ...]
    output_specs: tuple[TensorSpec, ...]
    inputs: Arrays
    references: Arrays
    parameters: int
    dynamic: DynamicShapes = field(default_factory=DynamicShapes)
    samples: tuple[Sample, ...] = ()
    other_methods: tuple[str, ...] = ()

    @property
    def example(self) -> Sample:
        """The reference inputs, and what the original makes of them."""
        return Sample({}, self.inputs, self.references)


@dataclass(frozen=True)
class Translated:
    """The model in Relax. ``main`` takes the inputs in their order, then the parameters that are separate.

    ``places`` says where in the user's model a variable of ``main`` comes from, by its name; ``nodes``
    are those of the exported program.
    """

    captured: Captured
    module: tvm.IRModule
    operators: dict[str, int]
    places: Mapping[str, SourcePlace] = field(default_factory=dict)
    parameters: ParameterFile | None = None
    nodes: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Optimized:
    """The module legalized and fused: ``main`` calls primitive TensorIR functions only.

    ``nodes`` of the exported program are known by the names of the variables that they became.
    """

    captured: Captured
    operators: dict[str, int]
    module: tvm.IRModule
    passes: tuple[PassTime, ...]
    rewrites: tuple[RewriteResult, ...] = ()
    parameters: ParameterFile | None = None
    kernels: tuple[KernelChoice, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Tuned:
    """The module with every function scheduled. ``records`` is MetaSchedule's database, if any."""

    optimized: Optimized
    module: tvm.IRModule
    result: TuneResult
    records: Path | None

    @property
    def captured(self) -> Captured:
        """The model that this was made from."""
        return self.optimized.captured


@dataclass(frozen=True)
class Built:
    """A shared library on disk, linked for the target. ``imports`` are the runtime functions it calls.

    ``module`` has the library's functions before they were scheduled; those that took too long to compile
    are split.
    """

    tuned: Tuned
    library: Path
    imports: frozenset[str]
    module: tvm.IRModule
    splits: tuple[FunctionSplit, ...] = ()

    @property
    def captured(self) -> Captured:
        """The model that this was made from."""
        return self.tuned.captured

    @property
    def parameters(self) -> ParameterFile | None:
        """The parameters that the library does not contain."""
        return self.tuned.optimized.parameters


@dataclass(frozen=True)
class Verified:
    """The library computes what the model computes, within the tolerances."""

    built: Built
    comparisons: tuple[OutputComparison, ...]

    @property
    def captured(self) -> Captured:
        """The model that this was made from."""
        return self.built.captured


@dataclass(frozen=True)
class Benchmarked:
    """The library was measured."""

    verified: Verified
    result: BenchmarkResult

    @property
    def captured(self) -> Captured:
        """The model that this was made from."""
        return self.verified.captured


@dataclass(frozen=True)
class Packaged:
    """The files of the bundle, by name, all in the job's output folder."""

    benchmarked: Benchmarked
    files: tuple[str, ...]


def made_from(value: object, kind: type[Value]) -> Value | None:
    """The value of a kind that a stage's value was made from, or is; None where its stage has not run."""
    while value is not None and not isinstance(value, kind):
        value = _predecessor(value)
    return value


def _predecessor(value: object) -> object:
    match value:
        case Packaged(benchmarked=before):
            return before
        case Benchmarked(verified=before):
            return before
        case Verified(built=before):
            return before
        case Built(tuned=before):
            return before
        case Tuned(optimized=before):
            return before
        case Optimized(captured=before) | Translated(captured=before):
            return before
        case _:
            return None
