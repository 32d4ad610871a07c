"""The frozen values that pass from stage to stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bessemer.bundle.manifest import OutputTolerance
from bessemer.contract.base import Digest
from bessemer.contract.dynamic import DynamicShapes
from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import SourcePlace
from bessemer.contract.records import JudgedTrial
from bessemer.contract.report import (
    BenchmarkResult,
    BuiltFunctions,
    Estimate,
    FunctionSplit,
    GpuFunction,
    GpuKernel,
    KernelChoice,
    LoadedExtension,
    OutputComparison,
    PassTime,
    ReferenceSource,
    RewriteResult,
    RunMemory,
    StageTime,
    TuneResult,
)
from bessemer.contract.request import CompilationRequest, Constant
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.structure import CallStructure
from bessemer.contract.tensor import TensorSpec
from worker.candidates.library import ENTRY_PREFIX, MAIN
from worker.protocol.objects import CachedObjects, NoObjects
from worker.protocol.observer import JobObserver

if TYPE_CHECKING:
    import numpy as np
    import torch
    import tvm
    from torch.fx import Node

    from worker.candidates.client import CandidateClient
    from worker.compiler.target import CompileTarget
    from worker.parameters import ParameterFile
    from worker.protocol.devices import Devices
    from worker.protocol.records import Records

    Arrays = tuple[np.ndarray, ...]

Value = TypeVar("Value")


@dataclass(frozen=True)
class StageContext:
    """What stages work with besides their input: folders, processes, and an observer of their work.

    ``left_seconds`` returns the wall-clock time that the job has left. ``extensions`` are the uploaded ones,
    ``records`` the files of tuning records that the request gives. If this machine cannot run the library,
    ``by_device`` says that a device verifies the bundle. ``devices`` measure the candidates of a search; if
    None, this machine does. ``direct_convolutions`` forbids Winograd's algorithm. ``publish`` publishes the
    early bundle in ``output`` and returns why it could not. ``compares`` says that the benchmark may time
    other runtimes. ``stored`` are the service's tuning records, if they serve this compilation.
    ``cost_model`` is the file of the tenant's own cost model, if there is one. ``objects`` has
    compiled functions, if the worker keeps any.
    """

    scratch: Path
    output: Path
    candidates: CandidateClient
    sandbox: SandboxStatus
    finished_stages: Callable[[], tuple[StageTime, ...]]
    left_seconds: Callable[[], float]
    extensions: tuple[LoadedExtension, ...] = ()
    records: tuple[Path, ...] = ()
    observer: JobObserver = field(default_factory=JobObserver)
    by_device: bool = False
    direct_convolutions: bool = False
    devices: Devices | None = None
    publish: Callable[[Benchmarked], str] = lambda _benchmarked: "nothing publishes bundles here"
    compares: bool = True
    stored: Records | None = None
    cost_model: Path | None = None
    objects: CachedObjects = field(default_factory=NoObjects)


@dataclass(frozen=True)
class MethodName:
    """The method to run. Unless it is ``required``, a model without it runs its default method."""

    name: str
    required: bool = True


@dataclass(frozen=True)
class Selection:
    """What a request selects of a model.

    Attributes:
        constants: the values of arguments that are not tensors.
        method: the method of a script module, or the program of a `.pt2`; None for the default.
        inputs: the names of the inputs, which decide the lengths of lists; empty for the file's own.
    """

    constants: Mapping[str, Constant] = field(default_factory=dict)
    method: MethodName | None = None
    inputs: tuple[str, ...] = ()


WHOLE = Selection()


@dataclass(frozen=True)
class Upload:
    """The bytes of a model, the request, and the target that every stage compiles for.

    ``entry`` is the entry point that this is about; None if the request names none. ``own_models`` has the
    files of entries' own models by digest.
    """

    path: Path
    request: CompilationRequest
    target: CompileTarget
    entry: str | None = None
    own_models: Mapping[Digest, Path] = field(default_factory=dict)

    @property
    def entries(self) -> tuple[Upload, ...]:
        """The same for each entry point that the request names."""
        paths = {self.request.model: self.path, **self.own_models}
        return tuple(
            replace(self, entry=name, path=paths[entry.model or self.request.model])
            for name, entry in self.request.entries.items()
        ) or (self,)

    @property
    def asked(self) -> CompilationRequest:
        """The request, of this entry point alone if there are several."""
        return self.request if self.entry is None else self.request.for_entry(self.entry)

    @property
    def method(self) -> MethodName | None:
        """The method of this entry point: the one that the request names, or one of the same name."""
        if self.entry is None:
            return None
        named = self.request.entries[self.entry].method
        return MethodName(named or self.entry, required=named is not None)

    @property
    def selection(self) -> Selection:
        """What this entry point selects of the model."""
        request = self.asked
        return Selection(request.constants, self.method, tuple(spec.name for spec in request.inputs))


@dataclass(frozen=True)
class Sample:
    """Inputs and the original's outputs in the order of the specs; ``sizes`` differ from the example's.

    If it ``follows``, it is the call after the previous sample's: the library takes its own state from there.
    ``exact`` are the outputs in float64, where they are known already.
    """

    sizes: dict[str, int]
    inputs: Arrays
    references: Arrays
    follows: bool = False
    exact: Arrays | None = None


@dataclass(frozen=True)
class Turn:
    """A call of one entry point, which starts from the state that the calls of others before it left."""

    entry: str
    sample: Sample


@dataclass(frozen=True)
class BufferUse:
    """The buffers that a program reads and the ones that it changes, by their names in the user's model."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RelaxProgram:
    """An uploaded IRModule. Its ``main`` takes the inputs, then the weights, and returns a flat tuple.

    ``function`` is the name of the reference function in the upload; None if the references are not its.
    """

    module: tvm.IRModule
    weights: Mapping[str, np.ndarray]
    source: ReferenceSource
    function: str | None = None


@dataclass(frozen=True)
class Captured:
    """The model as an exported program, or an IRModule, that has run.

    ``inputs`` and ``references`` are contiguous
    arrays in the order of ``input_specs`` and ``output_specs``. If sizes are ``dynamic``, specs and arrays
    have the example's sizes, and ``samples`` have others.

    Inputs and outputs with ``complex_names`` are complex in the model. Here they are real, with a last axis
    of two for the parts.

    The last inputs are the model's state before the run, one for each of ``state_buffers``, and the last
    outputs are the same after it. The input before them may be the ``seed`` of the model's random numbers,
    which the original does not take. ``call`` tells how the model's arguments and result are made of the
    other inputs and outputs. The first of several entry points has the ``others``, and ``turns``: a sequence
    of calls in which the originals share their state.
    """

    upload: Upload
    format: ModelFormat
    program: torch.export.ExportedProgram | RelaxProgram
    input_specs: tuple[TensorSpec, ...]
    output_specs: tuple[TensorSpec, ...]
    inputs: Arrays
    references: Arrays
    parameters: int
    dynamic: DynamicShapes = field(default_factory=DynamicShapes)
    samples: tuple[Sample, ...] = ()
    method: MethodName | None = None
    other_methods: tuple[str, ...] = ()
    state_buffers: tuple[str, ...] = ()
    call: CallStructure = field(default_factory=CallStructure)
    buffers: BufferUse = field(default_factory=BufferUse)
    complex_names: frozenset[str] = frozenset()
    seed: str | None = None
    exact: Arrays | None = None
    others: tuple[Captured, ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def entries(self) -> tuple[Captured, ...]:
        """All entry points, this one first."""
        return (replace(self, others=(), turns=()), *self.others)

    @property
    def name(self) -> str:
        """The name of the entry point."""
        return self.upload.entry or MAIN

    @property
    def function(self) -> str:
        """The name of the library's function."""
        return MAIN if self.is_first else f"{ENTRY_PREFIX}{self.upload.entry}"

    @property
    def is_first(self) -> bool:
        """Whether this is the entry point that runs by default."""
        return self.upload.entry == next(iter(self.upload.request.entries), None)

    @property
    def exported(self) -> torch.export.ExportedProgram:
        """The exported program. Raises ``TypeError`` for an IRModule."""
        if isinstance(self.program, RelaxProgram):
            raise TypeError("an IRModule is not an exported program")
        return self.program

    @property
    def states(self) -> int:
        """The number of inputs, and of outputs, that hold the state."""
        return len(self.state_buffers)

    @property
    def initial_state(self) -> dict[str, np.ndarray]:
        """The state before the first run, by the names of the inputs."""
        names = (spec.name for spec in self.input_specs[self.own_inputs :])
        return dict(zip(names, self.initial_buffers.values(), strict=True))

    @property
    def initial_buffers(self) -> dict[str, np.ndarray]:
        """The state before the first run, by the names of the buffers in the user's model."""
        return dict(zip(self.state_buffers, self.with_complex.inputs[self.own_inputs :], strict=True))

    @property
    def own_inputs(self) -> int:
        """The number of inputs without the state."""
        return len(self.input_specs) - self.states

    @property
    def original_inputs(self) -> Arrays:
        """The reference inputs that the original takes: neither state nor seed."""
        return self.with_complex.inputs[: self.own_inputs - (self.seed is not None)]

    @property
    def own_outputs(self) -> int:
        """The number of outputs without the state."""
        return len(self.output_specs) - self.states

    @property
    def kept(self) -> int:
        """The number of states that the runner keeps; 0 if its users pass them."""
        return 0 if self.upload.request.stateless else self.states

    @property
    def kept_specs(self) -> tuple[TensorSpec, ...]:
        """The states that the runner keeps."""
        return self.with_complex.input_specs[len(self.input_specs) - self.kept :]

    @property
    def passed_by_users(self) -> Captured:
        """The same without the inputs and outputs that the runner keeps."""
        inputs, outputs = len(self.input_specs) - self.kept, len(self.output_specs) - self.kept
        whole = self.with_complex
        return replace(
            whole,
            input_specs=whole.input_specs[:inputs],
            output_specs=whole.output_specs[:outputs],
            inputs=whole.inputs[:inputs],
            references=whole.references[:outputs],
        )

    @property
    def with_complex(self) -> Captured:
        """The same with complex inputs and outputs in place of their parts."""
        if not self.complex_names:
            return self
        names = self.complex_names
        return replace(
            self,
            input_specs=tuple(_joined_spec(spec, names) for spec in self.input_specs),
            output_specs=tuple(_joined_spec(spec, names) for spec in self.output_specs),
            inputs=tuple(map(_joined, self.inputs, self.input_specs, repeat(names))),
            references=tuple(map(_joined, self.references, self.output_specs, repeat(names))),
            complex_names=frozenset(),
        )

    @property
    def example(self) -> Sample:
        """The reference inputs and outputs."""
        return Sample({}, self.inputs, self.references, exact=self.exact)


def _joined_spec(spec: TensorSpec, names: frozenset[str]) -> TensorSpec:
    if spec.name not in names:
        return spec
    return TensorSpec(name=spec.name, shape=spec.shape[:-1], dtype=spec.dtype.complex_of_parts)


def _joined(array: np.ndarray, spec: TensorSpec, names: frozenset[str]) -> np.ndarray:
    if spec.name not in names:
        return array
    return array.view(spec.dtype.complex_of_parts.value).reshape(array.shape[:-1])


@dataclass(frozen=True)
class Translated:
    """The model in Relax. ``main`` takes the inputs in order, then the ``separate`` parameters.

    ``separate`` has these by their names in the file. The first of several entry points has the ``others``
    and the file. ``places`` and ``nodes`` map names of variables of ``main`` to places in the user's model
    and to nodes of the exported program.
    """

    captured: Captured
    module: tvm.IRModule
    operators: dict[str, int]
    places: Mapping[str, SourcePlace] = field(default_factory=dict)
    separate: Mapping[str, torch.Tensor] = field(default_factory=dict)
    parameters: ParameterFile | None = None
    nodes: Mapping[str, Node] = field(default_factory=dict)
    others: tuple[Translated, ...] = ()


@dataclass(frozen=True)
class Optimized:
    """The module, legalized and fused: ``main`` calls only primitive TensorIR functions.

    ``nodes`` maps names of variables to the nodes of the exported program that became them. ``unlaid`` is the
    module before the layout phase, if a search may lay it out otherwise.
    """

    captured: Captured
    operators: dict[str, int]
    module: tvm.IRModule
    passes: tuple[PassTime, ...]
    rewrites: tuple[RewriteResult, ...] = ()
    parameters: ParameterFile | None = None
    kernels: tuple[KernelChoice, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    unlaid: tvm.IRModule | None = None


@dataclass(frozen=True)
class Tuned:
    """The module with a schedule for every function.

    ``records`` is MetaSchedule's database, if any. ``applied`` names the service's records that it uses.
    ``as_expected`` is the model as the layout phase made it, if records have laid it out otherwise.
    """

    optimized: Optimized
    module: tvm.IRModule
    result: TuneResult
    records: Path | None
    applied: tuple[JudgedTrial, ...] = ()
    as_expected: Optimized | None = None

    @property
    def captured(self) -> Captured:
        """The model."""
        return self.optimized.captured


@dataclass(frozen=True)
class Built:
    """A shared library on disk, linked for the target.

    ``imports`` are the runtime functions that it calls; ``functions`` those of extensions. ``own_memory`` has
    the outputs of each entry point's function whose memory belongs to nothing else.
    ``built_functions`` says how many functions were compiled; None for a GPU.

    ``module`` has the library's functions without schedules, split where they took too long to compile.
    ``program`` runs the library without TVM. It is None if C cannot call the library, and ``no_program`` says
    why. ``estimate`` is the work of a run of the first entry point, and ``memory`` what it works in; None if
    its calls are not known.
    ``gpu_functions`` are the functions of a library for a GPU; ``gpu_kernels`` is what their kernels use.
    """

    tuned: Tuned
    library: Path
    imports: frozenset[str]
    module: tvm.IRModule
    functions: tuple[str, ...] = ()
    own_memory: Mapping[str, frozenset[str]] = field(default_factory=dict)
    splits: tuple[FunctionSplit, ...] = ()
    built_functions: BuiltFunctions | None = None
    program: Path | None = None
    no_program: str = ""
    estimate: Estimate | None = None
    memory: RunMemory | None = None
    gpu_functions: tuple[GpuFunction, ...] = ()
    gpu_kernels: tuple[GpuKernel, ...] = ()

    @property
    def captured(self) -> Captured:
        """The model."""
        return self.tuned.captured

    @property
    def parameters(self) -> ParameterFile | None:
        """The parameters that the library does not contain."""
        return self.tuned.optimized.parameters


@dataclass(frozen=True)
class Verified:
    """The library, whose outputs are within the tolerances: those of the first entry point and the others.

    ``captured`` is the model with the references that the first outputs agree with. If only a device can run
    the library, there are no comparisons, and ``not_run`` has the tolerances of each entry
    point. ``winograd_mismatch`` tells what differed before all convolutions became direct.
    """

    built: Built
    captured: Captured
    comparisons: tuple[OutputComparison, ...]
    other_comparisons: tuple[tuple[OutputComparison, ...], ...] = ()
    not_run: tuple[tuple[OutputTolerance, ...], ...] = ()
    winograd_mismatch: str | None = None

    @property
    def ran(self) -> bool:
        """Whether the library ran here."""
        return not self.not_run

    @property
    def all_comparisons(self) -> tuple[tuple[OutputComparison, ...], ...]:
        """The comparisons of each entry point."""
        return (self.comparisons, *self.other_comparisons)

    @property
    def tolerances(self) -> tuple[tuple[OutputTolerance, ...], ...]:
        """The tolerances of each entry point; those of a model's first run come first."""
        return self.not_run or tuple(map(_tolerances, self.all_comparisons))


def _tolerances(comparisons: tuple[OutputComparison, ...]) -> tuple[OutputTolerance, ...]:
    return tuple(OutputTolerance(name=one.name, **one.tolerance.model_dump()) for one in comparisons)


@dataclass(frozen=True)
class Benchmarked:
    """The library and the measurements of its first entry point and the others.

    ``result`` is None if no machine here measures the target.
    """

    verified: Verified
    result: BenchmarkResult | None
    other_results: tuple[BenchmarkResult, ...] = ()

    @property
    def captured(self) -> Captured:
        """The model."""
        return self.verified.captured


@dataclass(frozen=True)
class Packaged:
    """The files of the bundle, by name, all in the job's output folder."""

    benchmarked: Benchmarked
    files: tuple[str, ...]


def made_from(value: object, kind: type[Value]) -> Value | None:
    """A stage's value or a predecessor of the given kind; None if that stage has not run."""
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
