"""The request for a compilation."""

import math
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    Tag,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticKnownError

from bessemer.contract.base import Digest, Document, GrowingEnum
from bessemer.contract.capability import Needs, needs_of
from bessemer.contract.dynamic import MAX_DIMENSIONS, DimensionRange, check_names
from bessemer.contract.extension import MAX_EXTENSIONS
from bessemer.contract.names import (
    DOTTED_NAME_PATTERN,
    IDENTIFIER_PATTERN,
    MAX_LABELS,
    PLAIN_NAME_PATTERN,
    DeviceName,
    LabelKey,
    LabelValue,
    Name,
)
from bessemer.contract.options import (
    BenchmarkOptions,
    Float32Products,
    InspectOptions,
    OptimizeOptions,
    Tolerance,
    TranslateOptions,
    TuneOptions,
    VerifyOptions,
)
from bessemer.contract.stage import Stage
from bessemer.contract.target import (
    GPU_ARCHITECTURES,
    HOST,
    Target,
    gpus_of,
    resolve_target,
    target_name,
)
from bessemer.contract.target_names import read_target
from bessemer.contract.tensor import MAX_INPUTS, DimensionName, DType, InputSpec, TensorName


class Parameters(GrowingEnum):
    """Where the parameters of a library are stored."""

    BOUND = "bound"
    SEPARATE = "separate"


class Verification(GrowingEnum):
    """Whether a library must be run before it is handed out."""

    REQUIRED = "required"
    NONE = "none"


AUTO, OURS = "auto", "none"
MAX_KERNELS = 256
MAX_PRIORITY = 100
MAX_CONSTANTS = 64
MAX_ENTRIES = 32
MAX_TARGETS = 16
MAIN_ENTRY = "main"
"""The name of the entry point if the request names none."""

EntryName = Annotated[str, Field(pattern=PLAIN_NAME_PATTERN, max_length=64)]
Method = Annotated[str, Field(pattern=IDENTIFIER_PATTERN, max_length=128)]

ConstantText = Annotated[str, Field(strict=True, max_length=1024)]


def _storable(value: object) -> object:
    if not isinstance(value, bool | int | float | str | None):
        raise ValueError("expected a number, a boolean, a text or null")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("expected a whole number of 64 bits")
    return value


Constant = Annotated[StrictBool | StrictInt | StrictFloat | ConstantText | None, BeforeValidator(_storable)]
"""The value of an argument that is not a tensor."""

KERNEL_KEY_PATTERN = r"^[a-z][a-z0-9_]*(\[[0-9x?,a-z]+\])?$"
KernelKey = Annotated[str, Field(pattern=KERNEL_KEY_PATTERN, max_length=128)]
KernelName = Annotated[str, Field(pattern=DOTTED_NAME_PATTERN, max_length=64)]


def _distinct_names(inputs: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
    names = [spec.name for spec in inputs]
    if len(set(names)) != len(names):
        raise ValueError("two inputs have the same name")
    # one class for all, so that equal requests compare equal
    return tuple(spec if type(spec) is InputSpec else InputSpec(**dict(spec)) for spec in inputs)


Inputs = Annotated[tuple[InputSpec, ...], AfterValidator(_distinct_names), Field(max_length=MAX_INPUTS)]
Dimensions = Annotated[
    dict[DimensionName, DimensionRange], Field(max_length=MAX_DIMENSIONS, validate_default=True)
]
Constants = Annotated[dict[TensorName, Constant], Field(max_length=MAX_CONSTANTS)]


def _distinct_extensions(digests: tuple[Digest, ...]) -> tuple[Digest, ...]:
    if len(set(digests)) != len(digests):
        raise ValueError("an extension is named twice")
    return digests


Extensions = Annotated[
    tuple[Digest, ...], AfterValidator(_distinct_extensions), Field(max_length=MAX_EXTENSIONS)
]
ExtensionNames = Annotated[dict[Digest, Name], Field(max_length=MAX_EXTENSIONS)]


def _check_dimension_names(dimensions: Dimensions, info: ValidationInfo) -> Dimensions:
    if "inputs" in info.data:
        check_names(info.data["inputs"], dimensions)
    return dimensions


class Entry(Document):
    """One entry point of a library."""

    model: Digest | None = Field(
        default=None, description="The SHA-256 of another uploaded model; null: the request's `model`."
    )
    method: Method | None = Field(
        default=None,
        description="The method of a script module, or the program of a `.pt2` that contains several. Null: "
        "the one with the entry's name, or else the model's only or first.",
    )
    inputs: Inputs = Field(default=(), description="As in the request; empty: the request's.")
    dimensions: Dimensions = Field(
        default={},
        description="The ranges of the dimensions that `inputs` name; without `inputs`, of the model's own.",
    )
    constants: Constants = Field(default={}, description="Added to the request's, or in place of them.")

    _check_dimensions = field_validator("dimensions")(_check_dimension_names)


def _read_one(value: object) -> object:
    if isinstance(value, list | tuple):
        raise ValueError("expected one target, not a list")
    return read_target(value)


OneTarget = Annotated[Target, BeforeValidator(_read_one)]


def _distinct_targets(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    if not targets:
        raise ValueError("expected at least one target")
    known: set[str] = set()
    for target in targets:
        code = resolve_target(target, HOST, 1).model_dump_json(exclude={"name"})
        if code in known:
            raise ValueError(f"the target '{target_name(target)}' is given twice")
        known.add(code)
    return targets


def _few_targets(targets: object) -> object:
    """Refuse many targets before each is parsed."""
    if isinstance(targets, list | tuple) and len(targets) > MAX_TARGETS:
        length = {"field_type": "Tuple", "max_length": MAX_TARGETS, "actual_length": len(targets)}
        raise PydanticKnownError("too_long", length)
    return targets


Targets = Annotated[
    tuple[OneTarget, ...],
    AfterValidator(_distinct_targets),
    Field(max_length=MAX_TARGETS),
    BeforeValidator(_few_targets),
]
ONE, SEVERAL = "Target", "Targets"
TARGET_FORMS = frozenset((ONE, SEVERAL))
"""The forms of a submission's target, which pydantic's errors name beside the fields."""


def _form_of(target: object) -> str:
    return SEVERAL if isinstance(target, list | tuple) else ONE


class Submission(Document):
    """A request to compile one model for one target, or for each of several."""

    model: Digest = Field(description="The SHA-256 of an uploaded model.")
    target: Annotated[
        Annotated[OneTarget, Tag(ONE)] | Annotated[Targets, Tag(SEVERAL)], Discriminator(_form_of)
    ] = Field(
        description="The name of a preset or LLVM processor, alone or with `cores`, or a full LLVM target. A "
        f"list of up to {MAX_TARGETS} makes a group, with a compilation for each."
    )
    inputs: Inputs = Field(
        default=(),
        description="The inputs, matched to the model's arguments by name. Required unless the model file "
        "contains its input shapes, as a `.pt2` does.",
    )
    dimensions: Dimensions = Field(
        default={},
        description="A range for each dimension that shapes in `inputs` name. One library accepts every "
        "size in it.",
        examples=[{"batch": {"minimum": 1, "maximum": 64}}],
    )
    constants: Constants = Field(
        default={},
        description="Values for arguments that are not tensors: numbers, booleans, texts or null. The "
        "library is compiled for them and does not take them.",
        examples=[{"sr": 16000}],
    )
    entries: dict[EntryName, Entry] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description="The entry points of the library: methods of the model, the model at several shapes, or "
        "several models. "
        "They share parameters and state, and each is verified and measured. The first is what `run.py` runs "
        "by default. Empty: one entry point.",
        examples=[{"prefill": {}, "decode": {}}],
    )
    extensions: Extensions = Field(
        default=(),
        description="The SHA-256 of each uploaded extension: Python files with rewrites, translation rules, "
        "legalizations, search spaces, kernels or functions for this compilation alone.",
    )
    extension_names: ExtensionNames = Field(
        default={},
        description="The file names of extensions by SHA-256, for this compilation: they import each other "
        "and `tune.schedules` names them by these. Others have the names of their uploads.",
    )
    stateless: bool = Field(
        strict=True,
        default=False,
        description="For a model that keeps state between runs: whether the library's users pass the state, "
        "as inputs and outputs named `state.…`. By default, `run.py` keeps it.",
    )
    translate: TranslateOptions = Field(
        default=TranslateOptions(), description="By default, operators become Relax operators."
    )
    optimize: OptimizeOptions = Field(
        default=OptimizeOptions(),
        description="By default, each rewrite has its own default, and fusion is automatic.",
    )
    parameters: Parameters = Field(
        default=Parameters.BOUND,
        description="`bound`: store parameters in the library. `separate`: store them beside it in "
        "`params.safetensors`, under the model's own names, so you can swap weights of the same shapes "
        "without recompiling.",
    )
    static_library: bool = Field(
        strict=True,
        default=False,
        description="Whether the bundle also has `libmodel.a`, the library for static linking, with the "
        "parameters once more.",
    )
    kernels: dict[KernelKey, KernelName] = Field(
        default={},
        max_length=MAX_KERNELS,
        description="For each operator (`linear`), or operator and shapes as in the report "
        "(`linear[1x784,784x128,128]`): a kernel library, `none` for Bessemer's own schedules (the default), "
        "or `auto` to measure both and keep the faster.",
    )
    tune: TuneOptions = Field(default=TuneOptions(), description="By default, nothing is searched.")
    verify: VerifyOptions = Field(
        default=VerifyOptions(),
        description="By default, the tolerance depends on the dtype. An output beyond it fails the "
        "compilation.",
    )
    verification: Verification = Field(
        default=Verification.REQUIRED,
        description="`required`: a worker runs the library and compares its outputs with the model's. "
        "`none`: nothing runs it, for a target that nothing here can run; report and bundle say so.",
    )
    benchmark: BenchmarkOptions = Field(
        default=BenchmarkOptions(), description="By default, the benchmark also times torch eager."
    )
    inspect: InspectOptions = Field(
        default=InspectOptions(), description="By default, no snapshots or machine code are kept."
    )
    stop_after: Stage | None = Field(
        default=None,
        description="The last stage to run; null: run all stages. With `translate`, the compilation is a "
        "preflight: its report says what would not compile.",
    )
    device: DeviceName | None = Field(
        default=None,
        description="The device that verifies and measures the bundle, and times the candidates of a search. "
        "Null: for another platform than the worker's, any live device of that platform; one that is "
        "emulated verifies only. `GET /v1/devices` lists them.",
        examples=["pi-4"],
    )
    name: Name | None = Field(
        default=None,
        description="A name for people, of up to 128 printable characters. Null: the model's name.",
        examples=["resnet50"],
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default={},
        max_length=MAX_LABELS,
        description="Labels to filter lists by. A key has up to 63 lower-case letters and digits, with "
        "`._/-` inside; a value has up to 128 printable ASCII characters.",
    )
    priority: int = Field(
        strict=True,
        default=0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="Workers take your tenant's queued compilations with a higher priority first, then older "
        "ones first.",
    )
    timeout_seconds: float | None = Field(
        strict=True,
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Fail the job after this time. The worker's own limit applies as well; null: only that "
        "one.",
    )

    cache: bool = Field(
        strict=True,
        default=True,
        description="Answer at once with the results of an earlier compilation of an identical request, if "
        "your tenant has one. With `false`, a worker compiles and measures again.",
    )

    _check_dimensions = field_validator("dimensions")(_check_dimension_names)

    @field_validator("extension_names")
    @classmethod
    def _check_extension_names(cls, names: ExtensionNames, info: ValidationInfo) -> ExtensionNames:
        unknown = sorted(set(names) - set(info.data.get("extensions", names)))
        if unknown:
            raise ValueError(f"`extensions` does not have {unknown[0]}")
        return names

    @field_validator("tune")
    @classmethod
    def _check_schedules(cls, tune: TuneOptions, info: ValidationInfo) -> TuneOptions:
        if tune.schedules and not info.data.get("extensions", True):
            raise ValueError("`schedules` needs `extensions`: the files that define the schedules")
        return tune

    @field_validator("device")
    @classmethod
    def _check_device(cls, device: str | None, info: ValidationInfo) -> str | None:
        if device is not None and info.data.get("stop_after") not in (None, Stage.PACKAGE):
            raise ValueError("a device runs the bundle: leave out `stop_after`")
        return device

    @field_validator("optimize")
    @classmethod
    def _check_products(cls, optimize: OptimizeOptions, info: ValidationInfo) -> OptimizeOptions:
        if optimize.float32_products is Float32Products.EXACT or "target" not in info.data:
            return optimize
        given = info.data["target"]
        for target in given if isinstance(given, tuple) else (given,):
            gpus = gpus_of(target)
            if not gpus or gpus[0] == GPU_ARCHITECTURES[0]:
                reason = f"which serves {gpus[0]}: that has no tf32" if gpus else "which is not a GPU"
                raise ValueError(
                    f"`float32_products` must be `exact` for the target '{target_name(target)}', {reason}"
                )
        return optimize

    def for_entry(self, name: str) -> Self:
        """The request for one of its entries alone."""
        entry = self.entries[name]
        return self.model_copy(
            update={
                "model": entry.model or self.model,
                "inputs": entry.inputs or self.inputs,
                "dimensions": entry.dimensions if entry.inputs or entry.dimensions else self.dimensions,
                "constants": {**self.constants, **entry.constants},
                "entries": {},
            }
        )

    @property
    def targets(self) -> tuple[Target, ...]:
        """The target, or each of several."""
        return self.target if isinstance(self.target, tuple) else (self.target,)

    def for_each_target(self) -> "tuple[CompilationRequest, ...]":
        """The request for each of the targets."""
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return tuple(CompilationRequest.model_validate({**fields, "target": each}) for each in self.targets)

    @property
    def models(self) -> tuple[Digest, ...]:
        """The request's model and those of its entries, each once."""
        return tuple(dict.fromkeys((self.model, *(one.model for one in self.entries.values() if one.model))))

    @property
    def uploads(self) -> tuple[Digest, ...]:
        """What the request needs besides models: extensions and records, each once."""
        return tuple(dict.fromkeys((*self.extensions, *self.tune.records)))

    @property
    def is_verified(self) -> bool:
        """Whether the library must be run before it is handed out."""
        return self.verification is not Verification.NONE

    @property
    def makes_bundle(self) -> bool:
        """Whether the request runs all stages."""
        return self.stop_after in (None, Stage.PACKAGE)

    def tolerance(self, dtype: DType) -> Tolerance:
        """How close outputs of a dtype must be to the model's."""
        return self.verify.tolerance(dtype, self.optimize.float32_products)

    @property
    def searches(self) -> bool:
        """Whether the request runs a search for schedules."""
        return self.tune.trials > 0 and (self.stop_after is None or self.stop_after.includes(Stage.TUNE))

    @property
    def can_keep_best(self) -> bool:
        """Whether the user can end the search early, and get the best so far."""
        return self.searches and self.is_verified


class CompilationRequest(Submission):
    """A request to compile one model for one target."""

    target: OneTarget = Field(
        description="The name of a preset or LLVM processor, alone or with `cores`, or a full LLVM target."
    )

    @property
    def needs(self) -> Needs | None:
        """What the worker must be able to run; None if any worker can compile it."""
        return needs_of(self.target, self.is_verified)
