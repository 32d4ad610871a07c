"""What a client may ask of each stage."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from bessemer.contract.base import Document
from bessemer.contract.tensor import DType


class Baseline(StrEnum):
    """What the compiled library is timed against."""

    TORCH_EAGER = "torch-eager"


class Tolerance(Document):
    """How far a result may lie from its reference: ``|x - r| <= absolute + relative * |r|``."""

    relative: float = Field(ge=0, le=1, description="In units of the reference's magnitude.")
    absolute: float = Field(ge=0, description="In the output's own unit.")


DEFAULT_TOLERANCES: dict[DType, Tolerance] = {
    DType.FLOAT64: Tolerance(relative=1e-9, absolute=1e-9),
    DType.FLOAT32: Tolerance(relative=1e-4, absolute=1e-5),
    DType.FLOAT16: Tolerance(relative=1e-2, absolute=1e-3),
    DType.BFLOAT16: Tolerance(relative=4e-2, absolute=1e-2),
}
"""Per dtype; integers and booleans must be equal."""


class TranslationLevel(StrEnum):
    """What an operator becomes when the model is translated."""

    OPERATORS = "operators"
    TENSOR_EXPRESSIONS = "tensor_expressions"


class TranslateOptions(Document):
    """How the model becomes Relax."""

    level: TranslationLevel = Field(
        default=TranslationLevel.OPERATORS,
        description="`operators`: Relax operators, which the passes rewrite, lay out and legalize. "
        "`tensor_expressions`: each operator is emitted as a tensor expression at once, so that the "
        "translated module calls TensorIR functions.",
    )


class InspectOptions(Document):
    """What of the work in between is kept."""

    ir: bool = Field(
        strict=True,
        default=False,
        description="Keep the module after translate, after every pass of optimize and after tune: "
        "`GET /v1/compilations/{id}/ir`.",
    )
    assembly: bool = Field(
        strict=True,
        default=False,
        description="Keep LLVM IR and assembly of the kernels: `model.ll`, `model.s`.",
    )


class Fusion(StrEnum):
    """Which operators become one function."""

    AUTOMATIC = "automatic"
    PATTERNS = "patterns"
    NONE = "none"


RewriteName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$", max_length=64)]
MAX_TRIALS = 100_000
MAX_REWRITES = 64


class OptimizeOptions(Document):
    """How the graph is rewritten and fused."""

    enable: tuple[RewriteName, ...] = Field(
        default=(), max_length=MAX_REWRITES, description="Rewrites to switch on (docs/rewriting.md)."
    )
    disable: tuple[RewriteName, ...] = Field(
        default=(), max_length=MAX_REWRITES, description="Rewrites to switch off that are on by default."
    )
    fusion: Fusion = Field(
        default=Fusion.AUTOMATIC,
        description="`automatic`: elementwise operators join what feeds them; `patterns`: only what a "
        "rewrite groups; `none`: every operator is a function of its own.",
    )

    @model_validator(mode="after")
    def _decided(self) -> Self:
        both = sorted(set(self.enable) & set(self.disable))
        if both:
            raise ValueError(f"both switched on and off: {', '.join(both)}")
        return self


FunctionPattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]
SpaceName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class SearchEnd(StrEnum):
    """Why a search stopped."""

    TRIALS = "trials"
    SECONDS = "seconds"
    CANDIDATES = "candidates"


class TuneOptions(Document):
    """How much MetaSchedule may search."""

    trials: int = Field(
        strict=True,
        default=0,
        ge=0,
        le=MAX_TRIALS,
        description="Candidates to measure in all; 0 searches nothing. Where only `seconds` is given, the "
        f"search measures as many as fit: {MAX_TRIALS} at most.",
    )
    seconds: float | None = Field(
        strict=True,
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Stop the search after this long, even if trials are left; null: no limit. Without "
        "`trials`, this is the search's only limit.",
    )
    seed: int = Field(strict=True, default=0, ge=0, lt=1 << 31, description="Of the search's random draws.")
    spaces: dict[FunctionPattern, SpaceName] = Field(
        default={},
        max_length=100,
        description="Search spaces by function, or by a pattern of functions' names such as `fused_linear*`; "
        "of several that fit, the first counts. Where any is named, only these functions are searched.",
    )
    force: bool = Field(
        strict=True,
        default=False,
        description="Give every function that `spaces` names the best schedule of its space, even where the "
        "default is faster.",
    )

    @model_validator(mode="before")
    @classmethod
    def _seconds_grant_trials(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("seconds") is not None:
            return {"trials": MAX_TRIALS, **given}
        return given

    @property
    def is_limited_by_time_alone(self) -> bool:
        """Whether `seconds` is given without `trials`."""
        return self.seconds is not None and self.trials == MAX_TRIALS

    def limit_reached(self, end: SearchEnd) -> str:
        """Why a search with these options stopped, in words."""
        match end:
            case SearchEnd.TRIALS:
                return f"ended by tune.trials={self.trials}"
            case SearchEnd.SECONDS:
                return f"ended by tune.seconds={self.seconds:g}"
            case SearchEnd.CANDIDATES:
                return "ended because nothing was left to try"

    @model_validator(mode="after")
    def _has_trials_for_spaces(self) -> Self:
        if self.spaces and self.trials == 0:
            raise ValueError("`spaces` needs `trials` or `seconds`: without either, nothing is searched")
        if self.force and not self.spaces:
            raise ValueError("`force` needs `spaces`")
        return self


class VerifyOptions(Document):
    """How close to the original the library must be."""

    relative: float | None = Field(
        strict=True,
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="In units of the reference's magnitude; null: by the output's dtype.",
    )
    absolute: float | None = Field(
        strict=True,
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="In the output's own unit; null: by the output's dtype, and wider where the model's own "
        "result lies further from float64's.",
    )
    seed: int = Field(strict=True, default=0, ge=0, lt=1 << 31, description="Of the random inputs.")

    def tolerance(self, dtype: DType) -> Tolerance:
        """The tolerance in force for outputs of a dtype."""
        default = DEFAULT_TOLERANCES.get(dtype, Tolerance(relative=0, absolute=0))
        return Tolerance(
            relative=default.relative if self.relative is None else self.relative,
            absolute=default.absolute if self.absolute is None else self.absolute,
        )


class BenchmarkOptions(Document):
    """How long to measure, and against what."""

    seconds: float = Field(
        strict=True,
        default=0.4,
        gt=0,
        le=600,
        allow_inf_nan=False,
        description="Time for the library and its baselines together.",
    )
    baselines: tuple[Baseline, ...] = Field(
        default=(Baseline.TORCH_EAGER,),
        description="Timed in alternation with the library, on the same inputs; may be none.",
    )
