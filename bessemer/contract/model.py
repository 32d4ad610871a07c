"""Uploaded models."""

from collections.abc import Collection
from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Digest, Document, GrowingEnum
from bessemer.contract.dynamic import DynamicShapes
from bessemer.contract.names import Name, nearest
from bessemer.contract.problem import MODEL_DEFECTS, Problem
from bessemer.contract.structure import CallStructure
from bessemer.contract.tensor import TensorName, TensorSpec


class ModelFormat(GrowingEnum):
    """Formats of model files, recognized by their bytes."""

    PT2 = "pt2"
    TORCHSCRIPT = "torchscript"
    FX = "fx"
    IR_MODULE = "ir-module"


class ModelState(GrowingEnum):
    """``inspecting`` until a sandboxed job has read the format and the signature."""

    INSPECTING = "inspecting"
    READY = "ready"
    REJECTED = "rejected"


class ConstantSpec(Document):
    """An argument that is not a tensor."""

    name: TensorName = Field(description="The model's own name for it.")
    type: str = Field(description="Its type, as TorchScript writes it.", examples=["int", "Optional[float]"])
    required: bool = Field(description="Whether it has no default, so that a request must fix it.")


class Signature(Document):
    """The inputs and the size of a model. Only a `.pt2` always has the shapes of its inputs."""

    inputs: tuple[TensorSpec, ...] = Field(
        default=(), description="The inputs; empty if the file does not contain their shapes."
    )
    input_names: tuple[str, ...] = Field(
        description="The names of all arguments, including those with defaults. A request's `inputs` may "
        "name these."
    )
    constants: tuple[ConstantSpec, ...] = Field(
        default=(),
        description="The arguments that are not tensors. A request fixes their values in `constants`.",
    )
    call: CallStructure = Field(
        default=CallStructure(),
        description="How the model's own arguments, and its result if the file tells, are made of named "
        "tensors.",
    )
    parameters: int = Field(ge=0, description="Number of elements in all parameters and buffers.")
    dynamic: DynamicShapes = Field(
        default=DynamicShapes(),
        description="Dynamic sizes of the model; `inputs` shows those of the example. They stay dynamic "
        "unless a request names its inputs, which fixes all sizes.",
    )

    def covers(self, name: str) -> bool:
        """Whether a container, whose values only a request names, can have a value of this name."""
        return any(argument.covers(name) for argument in self.call.arguments)


class Inspection(Document):
    """The result of an inspection."""

    format: ModelFormat = Field(description="The format, recognized by the bytes.")
    signature: Signature = Field(description="The signature, as far as the file contains it.")
    method: str = Field(
        default="forward",
        description="The method with this signature: `forward`, or the first of a model without `forward`.",
    )
    other_methods: tuple[str, ...] = Field(
        default=(),
        description="The other methods of a script module, or programs of a `.pt2`. `entries` compiles them.",
    )


class Model(Document):
    """An uploaded model."""

    digest: Digest = Field(description="The SHA-256 of its bytes, which identifies it.")
    name: Name | None = Field(
        default=None, description="The name from the first upload that gave one; null if none did."
    )
    size_bytes: int = Field(description="Size of the file.")
    state: ModelState = Field(description="You can submit a compilation before the model is `ready`.")
    inspection: Inspection | None = Field(
        default=None, description="The result of the inspection; null until `ready`."
    )
    problem: Problem | None = Field(default=None, description="Why it was `rejected`; null unless it was.")
    created_at: datetime = Field(description="When it was first uploaded.")

    @property
    def defective(self) -> bool:
        """Whether it was rejected for a defect that another inspection would find again."""
        return self.problem is not None and self.problem.code in MODEL_DEFECTS


class ModelPage(Document):
    """A page of models, newest first."""

    items: tuple[Model, ...] = Field(description="Up to `limit` entries.")
    next: str | None = Field(
        default=None, description="Pass this as `cursor` to get the next page; null on the last page."
    )


def misspelled_method(name: str, methods: Collection[str], default: str) -> str:
    """Why an entry's name is a misspelled method, other than the ``default`` one; else empty."""
    others = [method for method in methods if method != default]
    close = [] if name in methods else nearest(name, others, cutoff=0.8)
    if not close:
        return ""
    return (
        f"'{name}' names no method of the model: did you mean '{close[0]}'? {name}={default} runs '{default}'"
    )
