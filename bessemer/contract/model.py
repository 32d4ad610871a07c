"""Uploaded models."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from bessemer.contract.base import Digest, Document
from bessemer.contract.dynamic import DynamicShapes
from bessemer.contract.names import Name
from bessemer.contract.problem import MODEL_DEFECTS, Problem
from bessemer.contract.tensor import TensorSpec


class ModelFormat(StrEnum):
    """The formats that are told apart by their bytes."""

    PT2 = "pt2"
    TORCHSCRIPT = "torchscript"
    FX = "fx"


class ModelState(StrEnum):
    """``inspecting`` until a confined job has read format and signature."""

    INSPECTING = "inspecting"
    READY = "ready"
    REJECTED = "rejected"


class Signature(Document):
    """What a model takes. A model other than a `.pt2` knows its inputs' names, rarely their shapes."""

    inputs: tuple[TensorSpec, ...] = Field(default=(), description="Empty where shapes are not known.")
    input_names: tuple[str, ...] = Field(
        description="Of every argument, those with a default included: what a request's `inputs` may name."
    )
    parameters: int = Field(ge=0, description="Elements in all parameters and buffers.")
    dynamic: DynamicShapes = Field(
        default=DynamicShapes(),
        description="Sizes that the model leaves open; `inputs` has the example's. They stay open unless a "
        "request names its inputs, which fixes all sizes.",
    )


class Inspection(Document):
    """What an inspection found."""

    format: ModelFormat = Field(description="Found from the bytes.")
    signature: Signature = Field(description="As far as the file tells it.")
    other_methods: tuple[str, ...] = Field(
        default=(),
        description="Methods of a script module besides `forward`, which are compiled only where `forward` "
        "calls them.",
    )


class Model(Document):
    """An uploaded model."""

    digest: Digest = Field(description="The SHA-256 of its bytes, by which it is addressed.")
    name: Name | None = Field(
        default=None, description="From the first upload that had one; null if none had."
    )
    size_bytes: int = Field(description="Of the file.")
    state: ModelState = Field(description="A compilation need not wait for `ready`.")
    inspection: Inspection | None = Field(default=None, description="What was found; null until `ready`.")
    problem: Problem | None = Field(default=None, description="Why it was `rejected`; null where it was not.")
    created_at: datetime = Field(description="When it was uploaded first.")

    @property
    def defective(self) -> bool:
        """Whether it was rejected for what it is: to inspect it again would find the same."""
        return self.problem is not None and self.problem.code in MODEL_DEFECTS


class ModelPage(Document):
    """A page of models, newest first."""

    items: tuple[Model, ...] = Field(description="As many as `limit` says; fewer at the end.")
    next: str | None = Field(
        default=None, description="Pass as `cursor` for the next page; null on the last."
    )
