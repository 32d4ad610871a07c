"""The options of each stage."""

import re
from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from bessemer.contract.base import Digest, Document, GrowingEnum
from bessemer.contract.names import DOTTED_NAME_PATTERN, IDENTIFIER_PATTERN
from bessemer.contract.tensor import DType, TensorName

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class Baseline(GrowingEnum):
    """What the benchmark times beside the library."""

    TORCH_EAGER = "torch-eager"
    REFERENCE = "reference"


class Peer(GrowingEnum):
    """A runtime that a comparison times besides torch eager."""

    TORCH_COMPILE = "torch-compile"
    ONNX_RUNTIME = "onnxruntime"
    OPENVINO = "openvino"


class Tolerance(Document):
    """How far a result may differ from its reference: ``|x - r| <= absolute + relative * |r|``."""

    relative: float = Field(ge=0, le=1, description="Relative to the reference's magnitude.")
    absolute: float = Field(ge=0, description="In the unit of the output.")


DEFAULT_TOLERANCES: dict[DType, Tolerance] = {
    DType.FLOAT64: Tolerance(relative=1e-9, absolute=1e-9),
    DType.FLOAT32: Tolerance(relative=1e-4, absolute=1e-5),
    DType.FLOAT16: Tolerance(relative=1e-2, absolute=1e-3),
    DType.BFLOAT16: Tolerance(relative=4e-2, absolute=1e-2),
}
"""By dtype; complex numbers have the tolerance of their parts. Integers and booleans must be equal."""


class TranslationLevel(GrowingEnum):
    """The form that an operator has after translation."""

    OPERATORS = "operators"
    TENSOR_EXPRESSIONS = "tensor_expressions"


class _OptionsType(ModelMetaclass):
    """Words for Python users. Requests do not come here: pydantic builds their options without a call."""

    def __call__(self, **fields: Any) -> Any:
        try:
            return super().__call__(**fields)
        except ValidationError as error:
            from bessemer.contract.error_words import validation_message
            from bessemer.errors import InvalidArgumentError

            reason = validation_message(error, self)  # type: ignore[arg-type]
            raise InvalidArgumentError(f"{self.__name__}: {reason}") from None


class Options(Document, metaclass=_OptionsType):
    """The options of a stage.

    Raises:
        InvalidArgumentError: a field is unknown or not valid.
    """


class TranslateOptions(Options):
    """How to translate the model to Relax."""

    level: TranslationLevel = Field(
        default=TranslationLevel.OPERATORS,
        description="`operators`: emit Relax operators, which passes rewrite, lay out and legalize. "
        "`tensor_expressions`: emit each operator as a tensor expression, so the translated module calls "
        "TensorIR functions.",
    )


MAX_IMAGES = 8
MAX_IMAGE_SIDE = 1024


def _read_image_size(value: Any) -> Any:
    """Read the command line's form, `28x28`; leave other values as they are."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,4}[x,][0-9]{1,4}", value, re.ASCII):
        return tuple(map(int, re.split("[x,]", value)))
    return value


ImageSide = Annotated[int, Field(strict=True, ge=1, le=MAX_IMAGE_SIDE)]
ImageSize = Annotated[tuple[ImageSide, ImageSide], BeforeValidator(_read_image_size)]
"""Height and width in pixels."""


class InspectOptions(Options):
    """Which intermediate results to keep."""

    ir: bool = Field(
        strict=True,
        default=False,
        description="Keep snapshots of the module after `translate`, every pass of `optimize`, and `tune`: "
        "`GET /v1/compilations/{id}/ir`.",
    )
    constants: bool = Field(
        strict=True,
        default=False,
        description="Add the values of constants to the snapshots of `ir`, as comments at their end: all "
        "elements if there are at most 256, else minimum, maximum and mean.",
    )
    assembly: bool = Field(
        strict=True,
        default=False,
        description="Keep the kernels' LLVM IR and assembly as `model.ll` and `model.s`, and by function; "
        "for a GPU, their PTX by function: `GET /v1/compilations/{id}/code`.",
    )
    images: dict[TensorName, ImageSize] = Field(
        default={},
        max_length=MAX_IMAGES,
        description="Inputs to show in the report as pictures, with height and width. The first element of a "
        "batch is shown: gray, or red, green and blue planes.",
        examples=[{"x": [28, 28]}],
    )
    graph: bool = Field(
        strict=True,
        default=False,
        description="Keep the model's FX graph with the shapes of its values, as a document and a picture: "
        "`graph.json`, `graph.svg`. Of an FX upload it is the uploaded graph, else the exported "
        "program's; at most 5,000 nodes.",
    )

    @model_validator(mode="after")
    def _has_snapshots_for_constants(self) -> Self:
        if self.constants and not self.ir:
            raise ValueError("`constants` needs `ir`: the values are part of the snapshots")
        return self


IMAGE_CHANNELS = (1, 3)
"""Gray; red, green and blue."""


def image_channels(shape: Sequence[int], height: int, width: int) -> int | None:
    """The channels of the images in a tensor, 1 or 3; None if it holds no images of this size.

    The tensor is one image, or its first dimension counts images.
    """
    pixels = height * width
    counts = [
        count for each in (shape, shape[1:]) for count in IMAGE_CHANNELS if prod(each) == count * pixels
    ]
    return counts[0] if counts else None


class Fusion(GrowingEnum):
    """How to fuse operators into functions."""

    AUTOMATIC = "automatic"
    PATTERNS = "patterns"
    NONE = "none"


class Convolutions(GrowingEnum):
    """How to compute convolutions."""

    AUTOMATIC = "automatic"
    DIRECT = "direct"


class Float32Products(GrowingEnum):
    """How exactly GPUs multiply numbers of float32 in matrix products and convolutions."""

    EXACT = "exact"
    TF32 = "tf32"


RewriteName = Annotated[str, Field(pattern=DOTTED_NAME_PATTERN, max_length=64)]
MAX_TRIALS = 100_000
MAX_REWRITES = 64
MAX_RECORDS = 3
"""The two files of MetaSchedule's database, and the file that names their extensions."""


class OptimizeOptions(Options):
    """How to rewrite and fuse the graph."""

    enable: tuple[RewriteName, ...] = Field(
        default=(), max_length=MAX_REWRITES, description="Rewrites to enable (docs/rewriting.md)."
    )
    disable: tuple[RewriteName, ...] = Field(
        default=(), max_length=MAX_REWRITES, description="Rewrites to disable that are enabled by default."
    )
    fusion: Fusion = Field(
        default=Fusion.AUTOMATIC,
        description="`automatic`: fuse elementwise operators with their producers. `patterns`: fuse only the "
        "groups that rewrites make. `none`: make each operator a separate function.",
    )
    convolutions: Convolutions = Field(
        default=Convolutions.AUTOMATIC,
        description="`automatic`: compute a convolution of 3x3 taps, or 3 of a sequence, by Winograd's "
        "algorithm where the processor's model expects it to be faster and its error with the layer's "
        "weights is at most a tenth of the relative tolerance. `direct`: compute every convolution directly.",
    )
    float32_products: Float32Products = Field(
        default=Float32Products.EXACT,
        description="For a GPU. `exact`: multiply numbers of float32 as they are. `tf32`, which needs "
        "`cuda-sm_80` or a newer architecture: round the factors of matrix products and convolutions to 10 "
        "bits of mantissa for tensor cores, as torch does for convolutions by default; sums stay float32. "
        "The default tolerance of float32 outputs is then that of float16.",
    )

    @model_validator(mode="after")
    def _has_no_conflict(self) -> Self:
        both = sorted(set(self.enable) & set(self.disable))
        if both:
            raise ValueError(f"in both `enable` and `disable`: {', '.join(both)}")
        return self


FunctionPattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]
SpaceName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
StrategyName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
SCHEDULE_PATTERN = r"^[^:]+(:[A-Za-z_][A-Za-z0-9_]*)?$"
ScheduleSource = Annotated[str, StringConstraints(pattern=SCHEDULE_PATTERN, max_length=300)]
"""A file by its digest or name, and the function in it: ``my_schedule.py``, ``my_schedule.py:tile``."""

EVOLUTIONARY, REPLAY_TRACE, REPLAY_FUNC = "evolutionary", "replay-trace", "replay-func"
STRATEGIES = (EVOLUTIONARY, REPLAY_TRACE, REPLAY_FUNC)
"""How MetaSchedule chooses candidates; the names are TVM's. Extensions add others."""


OTHER_LIMITS = ("seconds", "until_ms", "gain_below")
"""The limits of a search other than ``trials``. With one of them, ``trials`` defaults to the maximum."""
SEARCH_LIMITS = "`trials`, `seconds`, `until_ms` or `gain_below`"


STORED_OF_A_FUNCTION = 2
"""How many of the service's records a search measures for each function."""


class SearchEnd(GrowingEnum):
    """Why a search stopped."""

    TRIALS = "trials"
    TRIALS_PER_TASK = "trials_per_task"
    SECONDS = "seconds"
    UNTIL_MS = "until_ms"
    GAIN_BELOW = "gain_below"
    JOB_TIME = "job_time"
    CANDIDATES = "candidates"
    DEVICE = "device"
    NO_GPU = "no_gpu"
    NO_DEVICE = "no_device"
    STOPPED = "stopped"


OTHER_ENDS: Mapping[SearchEnd, str] = MappingProxyType(
    {
        SearchEnd.JOB_TIME: "ended because the job needs the time that it has left",
        SearchEnd.CANDIDATES: "ended because no candidates were left",
        SearchEnd.DEVICE: "ended because no device was left to measure",
        SearchEnd.NO_GPU: "ranked by the cost model: no GPU measured them",
        SearchEnd.NO_DEVICE: "ranked by the cost model: no processor of the target measured them",
        SearchEnd.STOPPED: "ended by the user, who keeps the best so far",
    }
)
"""In words, why a search stopped without reaching a limit of the request."""


class SearchMethod(GrowingEnum):
    """Which spaces a search covers."""

    BOTH = "both"
    PLANS = "plans"
    METASCHEDULE = "metaschedule"


class CostModel(GrowingEnum):
    """What predicts the speed of candidates; the names are TVM's."""

    XGB = "xgb"
    RANDOM = "random"
    NONE = "none"


class TuneOptions(Options):
    """How much to search for schedules."""

    trials: int = Field(
        strict=True,
        default=0,
        ge=0,
        le=MAX_TRIALS,
        description="Total number of candidates to measure; 0 disables the search. If only `seconds`, "
        "`until_ms` or `gain_below` is given, the search measures as many as they allow, at most "
        f"{MAX_TRIALS}. Of several limits, the first that is reached ends the search.",
    )
    seconds: float | None = Field(
        strict=True,
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Stop the search so that tuning takes this long, the final comparison of the whole model "
        "included; null: no limit.",
    )
    until_ms: float | None = Field(
        strict=True,
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Stop the search when the whole model's estimated latency is this many milliseconds or "
        "less; null: no limit.",
        examples=[4.5],
    )
    gain_below: float | None = Field(
        strict=True,
        default=None,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="Stop the search when a lap, which is as many rounds of trials as there are functions to "
        "search, lowers the whole model's estimated latency by less than this share; null: no limit.",
        examples=[0.01],
    )
    max_trials_per_task: int | None = Field(
        strict=True,
        default=None,
        ge=1,
        le=MAX_TRIALS,
        description="Maximum number of candidates to measure for each distinct function; null: no limit.",
    )
    search: SearchMethod = Field(
        default=SearchMethod.BOTH,
        description="`plans`: the plans of the schedule families. `metaschedule`: MetaSchedule's design "
        "spaces, for every function. `both`: first the plans, and MetaSchedule for functions without plans; "
        "once all plans are measured, MetaSchedule gets the remaining trials for every function. Functions "
        "in `spaces` use the space that they name.",
    )
    strategy: StrategyName = Field(
        default=EVOLUTIONARY,
        description="How MetaSchedule chooses candidates. `evolutionary`: mutate the best ones, and measure "
        "the ones that the cost model ranks highest. `replay-trace`: sample each decision of a design space "
        "at random. `replay-func`: generate the design space anew for each candidate. Extensions add others.",
    )
    cost_model: CostModel = Field(
        default=CostModel.XGB,
        description="What ranks candidates before they are measured, in the strategy `evolutionary` and in "
        "custom spaces. `xgb`: gradient-boosted trees that learn from the measurements. `random`: random "
        "scores. `none`: custom spaces measure candidates as they are drawn, and evolution uses random "
        "scores.",
    )
    seed: int = Field(strict=True, default=0, ge=0, lt=1 << 31, description="Random seed of the search.")
    spaces: dict[FunctionPattern, SpaceName] = Field(
        default={},
        max_length=100,
        description="Search space for each function name or pattern, such as `fused_linear*`. The first "
        "match counts. If given, the search covers only these functions.",
    )
    publish_early: bool = Field(
        strict=True,
        default=False,
        description="Make the bundle downloadable as soon as it is verified, before it is measured. With a "
        "search: publish a bundle with the default schedules before the search, and replace it during the "
        "search by each that is clearly faster. It stays if the compilation fails or is cancelled later. "
        "Refused if no target is measured on a worker's processor.",
    )
    force: bool = Field(
        strict=True,
        default=False,
        description="Use the best schedule of its space for every function in `spaces`, even if the default "
        "is faster.",
    )
    schedules: dict[FunctionPattern, ScheduleSource] = Field(
        default={},
        max_length=100,
        description="For each function name or pattern: an extension by its digest or file name, which "
        "defines `schedule(sch)`, or the extension and a function in it, `my_schedules.py:tile`. The first "
        "match counts. The library uses these schedules even if the default is faster, and no search covers "
        "these functions.",
        examples=[{"fused_linear_add_relu": "my_schedule.py"}],
    )

    records: tuple[Digest, ...] = Field(
        default=(),
        max_length=MAX_RECORDS,
        description="The files of an earlier search: the digests of MetaSchedule's "
        "`database_workload.json` and `database_tuning_record.json`, and of `extensions.json` if a bundle "
        "has it beside them, uploaded as extensions. They are advice: the search measures up to 8 of each "
        "function's records first, as trials.",
    )

    from_records: bool = Field(
        strict=True,
        default=True,
        description="Use the service's tuning records of earlier compilations. Without trials, each "
        "function gets the schedule with which an earlier compilation of your tenant became faster. With "
        f"trials, the search measures the best {STORED_OF_A_FUNCTION} of each function first, unless "
        "`search` or `spaces` name where its candidates come from.",
    )
    share_records: bool = Field(
        strict=True,
        default=False,
        description="Share tuning records with other tenants that share theirs: their searches may measure "
        "this search's records, and this search may measure theirs.",
    )

    @model_validator(mode="before")
    @classmethod
    def _other_limits_grant_trials(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and any(given.get(name) is not None for name in OTHER_LIMITS):
            return {"trials": MAX_TRIALS, **given}
        return given

    @property
    def is_without_trials(self) -> bool:
        """Whether the request limits the search, but not by `trials`."""
        has_limit = any(getattr(self, name) is not None for name in OTHER_LIMITS)
        return has_limit and self.trials == MAX_TRIALS

    @property
    def is_open_ended(self) -> bool:
        """Whether the search may never reach a limit of the request."""
        return self.is_without_trials and self.seconds is None

    def limit_reached(self, end: SearchEnd) -> str:
        """Why a search with these options stopped, in words."""
        match end:
            case SearchEnd.TRIALS:
                return f"ended by tune.trials={self.trials}"
            case SearchEnd.TRIALS_PER_TASK:
                return f"ended by tune.max_trials_per_task={self.max_trials_per_task}"
            case SearchEnd.SECONDS:
                return f"ended by tune.seconds={self.seconds:g}"
            case SearchEnd.UNTIL_MS:
                return f"ended by tune.until_ms={self.until_ms:g}"
            case SearchEnd.GAIN_BELOW:
                return f"ended by tune.gain_below={self.gain_below:g}"
            case _:
                return OTHER_ENDS[end]

    @model_validator(mode="after")
    def _has_trials_for_spaces(self) -> Self:
        if self.spaces and self.trials == 0:
            raise ValueError(f"`spaces` needs a search: set {SEARCH_LIMITS}")
        if self.records and self.trials == 0:
            raise ValueError(f"`records` needs a search, which measures them: set {SEARCH_LIMITS}")
        if self.force and not self.spaces:
            raise ValueError("`force` needs `spaces`")
        return self


ReferenceName = Annotated[str, Field(pattern=IDENTIFIER_PATTERN, max_length=128)]
ARRAYS, LOWERING = "arrays", "lowering"
"""The names of references that are not functions."""


class VerifyOptions(Options):
    """How close the library's outputs must be to the model's."""

    relative: float | None = Field(
        strict=True,
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Relative to the reference's magnitude; null: a default for the output's dtype.",
    )
    absolute: float | None = Field(
        strict=True,
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="In the unit of the output; null: a default for the output's dtype, which is raised if "
        "the model's own rounding error is larger.",
    )
    seed: int = Field(strict=True, default=0, ge=0, lt=1 << 31, description="Random seed of the inputs.")
    reference: ReferenceName | None = Field(
        default=None,
        description="For an IRModule, what its library is compared with. `lowering`: the module as TVM "
        "lowers it without schedules. `arrays`: the inputs and outputs of `reference.npz` in the upload. Any "
        "other name: the Python function of that name in the module's file. Null: the arrays if there are "
        "any, else the function `reference` if there is one, else the lowering.",
    )

    def tolerance(self, dtype: DType, products: Float32Products = Float32Products.EXACT) -> Tolerance:
        """The tolerance for outputs of a dtype, given how exactly numbers of float32 are multiplied."""
        part = dtype.part
        if part is DType.FLOAT32 and products is Float32Products.TF32:
            part = DType.FLOAT16
        default = DEFAULT_TOLERANCES.get(part, Tolerance(relative=0, absolute=0))
        return Tolerance(
            relative=default.relative if self.relative is None else self.relative,
            absolute=default.absolute if self.absolute is None else self.absolute,
        )


class BenchmarkOptions(Options):
    """How long to measure, and which baselines."""

    seconds: float = Field(
        strict=True,
        default=0.4,
        gt=0,
        le=600,
        allow_inf_nan=False,
        description="Total time for the library and its baselines.",
    )
    baselines: tuple[Baseline, ...] = Field(
        default=(Baseline.TORCH_EAGER,),
        description="Baselines to time in alternation with the library on the same inputs; may be empty. For "
        "an IRModule, any stands for `reference`, its reference function; without one, none is timed.",
    )
    compare: bool = Field(
        strict=True,
        default=False,
        description="Also time torch eager, torch.compile, ONNX Runtime and OpenVINO, if the worker has "
        "them. The report says whether the library beats them, by how much, and which functions hold it "
        "back. "
        "Loading and compiling the model for them can take minutes. Refused if no target is "
        "measured on a worker's processor.",
    )
