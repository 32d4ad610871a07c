"""The module between the passes: what ``GET /v1/compilations/{id}/ir`` lists."""

from typing import Annotated

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.stage import Stage

IR_INDEX = "ir.json"
"""The artifact that lists the snapshots: an ``IrListing``."""

IR_TEXTS = "ir.zst"
"""The artifact of all texts and diffs, one zstandard frame each: ``zstd -dc`` prints them all."""

MAX_TEXT_BYTES = 1 << 22
"""Of one snapshot, or of one diff. What is longer is cut."""

MAX_INDEX_BYTES = 1 << 20

Count = Annotated[int, Field(ge=0, lt=1 << 53)]


class IrCounts(Document):
    """What a module consists of."""

    functions: Count = Field(description="Functions in Relax.")
    kernels: Count = Field(description="Functions in TensorIR.")
    operators: Count = Field(description="Calls of Relax operators.")
    calls: Count = Field(description="Calls of TensorIR functions and of packed functions.")
    blocks: Count = Field(description="Blocks of TensorIR.")
    loops: Count = Field(description="Loops of TensorIR.")
    constants: Count = Field(description="Tensors that are bound; the texts leave their elements out.")
    constant_bytes: Count = Field(description="Of their elements.")


class IrText(Document):
    """A text within ``ir.zst``: a frame of ``packed_bytes`` from ``offset`` on, ``text_bytes`` of UTF-8."""

    offset: Count = Field(description="Where the frame begins, in bytes.")
    packed_bytes: int = Field(ge=0, le=2 * MAX_TEXT_BYTES, description="Of the frame; 0: there is none.")
    text_bytes: int = Field(ge=0, le=MAX_TEXT_BYTES, description="Of what it unpacks to.")


class IrStep(Document):
    """The module after one pass, or after a stage."""

    step: Count = Field(description="From 0, in the order in which they were taken.")
    stage: Stage = Field(description="In which the module became so.")
    phase: str = Field(max_length=100, description="Of the optimization; else the stage.")
    name: str = Field(max_length=200, description="The pass; else the stage.")
    seconds: float = Field(
        ge=0, allow_inf_nan=False, description="What the pass took, or the stage, of wall clock."
    )
    changed: bool = Field(description="Whether the text differs from that of the step before.")
    counts: IrCounts = Field(description="Of the module as it became.")
    text: IrText = Field(description="The module as TVMScript.")
    diff: IrText = Field(description="A unified diff from the step before; empty for the first.")
    truncated: bool = Field(default=False, description="Whether text or diff is cut, or left out.")


class IrListing(Document):
    """The snapshots of one compilation; one that failed has those that were taken before."""

    items: tuple[IrStep, ...] = Field(description="In the order in which they were taken.")
