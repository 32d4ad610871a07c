"""Cost models that learn how fast plans are: what they are trained on, and how well they rank plans."""

import zlib
from datetime import datetime
from typing import Annotated, NamedTuple, Self

from pydantic import Field, FiniteFloat, StringConstraints, model_validator

from bessemer.contract.base import Document

MAX_PLANS = 32
"""The most plans of a function that a model is trained on."""

MAX_FEATURES = 160
"""The most numbers that describe a plan."""

MAX_UNPACKED_BYTES = 1 << 18
MAX_PACKED_BYTES = 1 << 14
"""The limit of a function in the database: four times the usual size of 32 plans."""

MIN_FUNCTIONS = 8
"""Fewer functions prove nothing."""

FamilyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,80}$")]
FeatureName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,80}$")]
Kind = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,40} [0-9]{1,5} (serial|parallel)$")]
FeaturesVersion = Annotated[str, StringConstraints(pattern=r"^[0-9.]{1,20}$")]
Share = Annotated[FiniteFloat, Field(ge=0, le=1)]

Feature = Annotated[FiniteFloat, Field(ge=-1e6, le=1e6)]
Features = Annotated[dict[FeatureName, Feature], Field(max_length=MAX_FEATURES)]
"""The description of a plan that a cost model sees: numbers by name."""


class MeasuredFunction(Document):
    """Plans of one function on one kind of processor, with their times.

    Attributes:
        source: the group that is held out together: a model, or the function's structural hash.
        family: the schedule family of the plans.
        kind: the kind of processor: architecture, width of vectors, and one thread (`serial`) or several.
        features: the features of each plan.
        places: each plan's place in the family's order of preference.
        seconds: the time of each plan.
    """

    source: Annotated[str, StringConstraints(pattern=r"^[ -~]{1,200}$")]
    family: FamilyName
    kind: Kind
    features: Annotated[tuple[Features, ...], Field(min_length=2, max_length=MAX_PLANS)]
    places: tuple[Annotated[int, Field(strict=True, ge=0, le=1 << 20)], ...]
    seconds: tuple[Annotated[FiniteFloat, Field(ge=1e-9, le=1e6)], ...]

    @model_validator(mode="after")
    def _describes_each_plan(self) -> Self:
        if not len(self.features) == len(self.places) == len(self.seconds):
            raise ValueError("the lists differ in length")
        return self


class PackedPlans(NamedTuple):
    """A measured function as it is stored: the number of its plans, and its JSON, deflated by zlib."""

    plans: int
    packed: bytes


def packed(function: MeasuredFunction) -> PackedPlans | None:
    """A measured function as it is stored; None if it takes more than ``MAX_PACKED_BYTES``."""
    found = zlib.compress(function.model_dump_json().encode())
    return PackedPlans(len(function.seconds), found) if len(found) <= MAX_PACKED_BYTES else None


def unpacked(stored: bytes) -> MeasuredFunction:
    """The measured function in what is stored. Raises ``pydantic.ValidationError`` if it is not one."""
    return MeasuredFunction.model_validate_json(zlib.decompressobj().decompress(stored, MAX_UNPACKED_BYTES))


class Judgement(Document):
    """How well a cost model and the schedule family ranked plans of functions that the model had not seen."""

    kind: Kind = Field(
        description="The kind of processor: architecture, width of vectors in bits, and one thread "
        "(`serial`) or several (`parallel`)."
    )
    functions: int = Field(strict=True, ge=0, description="How many functions were ranked.")
    pairs: int = Field(
        strict=True,
        ge=0,
        description="Pairs of plans of the same function whose times differ by 3 % or more.",
    )
    accuracy: Share = Field(description="The share of pairs that the cost model orders correctly.")
    analytic_accuracy: Share = Field(description="The share that the family's own model orders correctly.")
    regret: FiniteFloat = Field(
        description="How much longer than the fastest measured plan the cost model's first choice takes, as "
        "a share: the geometric mean over functions."
    )
    analytic_regret: FiniteFloat = Field(description="The same for the family's first choice.")

    @property
    def is_better(self) -> bool:
        """Whether the cost model beats the family's own model, in pairs and in the first choice."""
        return (
            self.functions >= MIN_FUNCTIONS
            and self.accuracy > self.analytic_accuracy
            and self.regret < self.analytic_regret
        )


class RankedFamily(Judgement):
    """How well a cost model ranks a family's plans, and whether searches use it for them."""

    family: FamilyName = Field(description="The schedule family whose plans were ranked.")
    used: bool = Field(
        description="Whether searches use it: both of its figures are better than the family's, on at least "
        f"{MIN_FUNCTIONS} functions."
    )


class LearnedCostModel(Document):
    """The cost model that the service trained on your tenant's searches."""

    version: str = Field(description="Its version, as `tune.rankers` of a report names it.")
    trained_at: datetime = Field(description="When it was trained.")
    functions: int = Field(description="The number of functions that it was trained on.")
    plans: int = Field(description="The number of measured plans of these functions.")
    families: tuple[RankedFamily, ...] = Field(
        description="Its accuracy on functions that it had not seen, by schedule family and processor."
    )
