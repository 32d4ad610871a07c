"""What a client asks for. A field exists when something implements it."""

from enum import StrEnum
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from bessemer.contract.base import Digest, Document
from bessemer.contract.dynamic import MAX_DIMENSIONS, DimensionRange, check_names
from bessemer.contract.names import MAX_LABELS, LabelKey, LabelValue, Name
from bessemer.contract.options import (
    BenchmarkOptions,
    InspectOptions,
    OptimizeOptions,
    TranslateOptions,
    TuneOptions,
    VerifyOptions,
)
from bessemer.contract.stage import Stage
from bessemer.contract.target import Target
from bessemer.contract.target_names import read_target
from bessemer.contract.tensor import MAX_INPUTS, DimensionName, InputSpec

__all__ = [
    "AUTO",
    "MAX_KERNELS",
    "MAX_PRIORITY",
    "OURS",
    "CompilationRequest",
    "KernelKey",
    "KernelName",
    "Parameters",
]


class Parameters(StrEnum):
    """Where a library's parameters are."""

    BOUND = "bound"
    SEPARATE = "separate"


AUTO, OURS = "auto", "none"
MAX_KERNELS = 256
MAX_PRIORITY = 100

KernelKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\[[0-9x?,a-z]+\])?$", max_length=128)]
KernelName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$", max_length=64)]


def _distinct_names(inputs: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
    names = [spec.name for spec in inputs]
    if len(set(names)) != len(names):
        raise ValueError("two inputs have the same name")
    # of one class, so that equal requests are equal
    return tuple(spec if type(spec) is InputSpec else InputSpec(**dict(spec)) for spec in inputs)


class CompilationRequest(Document):
    """One model for one target."""

    model: Digest = Field(description="The SHA-256 of an uploaded model.")
    target: Annotated[Target, BeforeValidator(read_target)] = Field(
        description="The name of a preset or of an LLVM processor, a name with cores, or the compiler's own "
        "terms."
    )
    inputs: Annotated[tuple[InputSpec, ...], AfterValidator(_distinct_names)] = Field(
        default=(),
        max_length=MAX_INPUTS,
        description="Matched to the model's arguments by name. A `.pt2` carries its own; others need them.",
    )
    dimensions: dict[DimensionName, DimensionRange] = Field(
        default={},
        max_length=MAX_DIMENSIONS,
        validate_default=True,
        description="The ranges of the dimensions that shapes in `inputs` name: one library takes any size.",
        examples=[{"batch": {"minimum": 1, "maximum": 64}}],
    )
    translate: TranslateOptions = Field(
        default=TranslateOptions(), description="By default, operators become Relax's."
    )
    optimize: OptimizeOptions = Field(
        default=OptimizeOptions(),
        description="By default, rewrites are on unless they say otherwise, and fusion is automatic.",
    )
    parameters: Parameters = Field(
        default=Parameters.BOUND,
        description="`bound`: constants of the library. `separate`: in `params.safetensors` beside it, under "
        "the model's own names; other weights of the same shapes need no other library.",
    )
    kernels: dict[KernelKey, KernelName] = Field(
        default={},
        max_length=MAX_KERNELS,
        description="By operator (`linear`), or by operator and shapes as the report names them "
        "(`linear[1x784,784x128,128]`): a kernel library, `none` for our own schedules, or `auto` to measure "
        "both and keep the faster. What is not named gets our own schedules.",
    )
    tune: TuneOptions = Field(default=TuneOptions(), description="By default, nothing is searched.")
    verify: VerifyOptions = Field(
        default=VerifyOptions(),
        description="By default, tolerances go by dtype; what lies beyond them fails.",
    )
    benchmark: BenchmarkOptions = Field(
        default=BenchmarkOptions(), description="By default, torch eager is timed beside the library."
    )
    inspect: InspectOptions = Field(
        default=InspectOptions(),
        description="By default, neither modules in between nor machine code is kept.",
    )
    stop_after: Stage | None = Field(
        default=None,
        description="The last stage to run: the compilation succeeds with what exists by then. "
        "`translate` is the preflight: the report says what would not compile. Null: all stages run.",
    )
    name: Name | None = Field(
        default=None,
        description="What people call it: up to 128 printable characters. Null: its model's name.",
        examples=["resnet50"],
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default={},
        max_length=MAX_LABELS,
        description="What the compilation is found by in a list. Keys of up to 63 lower-case letters, digits "
        "and `._/-` inside; values of up to 128 printable ASCII characters.",
    )
    priority: int = Field(
        strict=True,
        default=0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="Of two queued compilations the one of higher priority is taken first; of equals, the "
        "one that came first.",
    )
    timeout_seconds: float | None = Field(
        strict=True,
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="End the job after this long; null: only the worker's own limit, which holds always.",
    )

    @field_validator("dimensions")
    @classmethod
    def _named(
        cls, dimensions: dict[DimensionName, DimensionRange], info: ValidationInfo
    ) -> dict[DimensionName, DimensionRange]:
        if "inputs" in info.data:
            check_names(info.data["inputs"], dimensions)
        return dimensions

    @property
    def makes_bundle(self) -> bool:
        """Whether all stages are to run."""
        return self.stop_after in (None, Stage.PACKAGE)

    @property
    def searches(self) -> bool:
        """Whether a search for schedules is to run."""
        return self.tune.trials > 0 and (self.stop_after is None or self.stop_after.includes(Stage.TUNE))
