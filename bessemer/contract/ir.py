"""Snapshots of the module between passes: the documents of ``GET /v1/compilations/{id}/ir``."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.stage import Stage

IR_INDEX = "ir.json"
"""The artifact that lists the snapshots: an ``IrListing``."""

IR_TEXTS = "ir.zst"
"""The artifact with all texts and diffs, one zstandard frame each; ``zstd -dc`` prints them all."""

MAX_TEXT_BYTES = 1 << 22
"""The limit for one snapshot or diff; longer ones are truncated."""

MAX_INDEX_BYTES = 1 << 20

Count = Annotated[int, Field(ge=0, lt=1 << 53)]


class IrCounts(Document):
    """The size of a module."""

    functions: Count = Field(description="Relax functions.")
    kernels: Count = Field(description="TensorIR functions.")
    operators: Count = Field(description="Calls of Relax operators.")
    calls: Count = Field(description="Calls of TensorIR functions and of packed functions.")
    blocks: Count = Field(description="Blocks of TensorIR.")
    loops: Count = Field(description="Loops of TensorIR.")
    constants: Count = Field(description="Constant tensors; the texts omit their elements.")
    constant_bytes: Count = Field(description="Size of the constants.")


class IrText(Document):
    """A frame of ``packed_bytes`` at ``offset`` in ``ir.zst``, with ``text_bytes`` of UTF-8."""

    offset: Count = Field(description="Byte offset of the frame.")
    packed_bytes: int = Field(ge=0, le=2 * MAX_TEXT_BYTES, description="Size of the frame; 0 without a text.")
    text_bytes: int = Field(ge=0, le=MAX_TEXT_BYTES, description="Size of the unpacked text.")
    whole_bytes: Count | None = Field(
        default=None, description="Size before the text was truncated; null if it was not."
    )

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut off."""
        return self.whole_bytes is None


NO_TEXT = IrText(offset=0, packed_bytes=0, text_bytes=0)


class IrStep(Document):
    """The module after one pass, or after a stage."""

    step: Count = Field(description="Number of the snapshot, from 0.")
    stage: Stage = Field(description="The stage that produced this module.")
    phase: str = Field(max_length=100, description="The phase of the optimization, or the stage.")
    name: str = Field(max_length=200, description="The pass, or the stage.")
    seconds: float = Field(ge=0, allow_inf_nan=False, description="Wall-clock time of the pass or stage.")
    changed: bool = Field(description="Whether the text differs from the previous step's.")
    counts: IrCounts = Field(description="The size of the module after the step.")
    text: IrText = Field(description="The module as TVMScript.")
    diff: IrText = Field(description="A unified diff from the previous step; empty for the first.")
    truncated: bool = Field(
        default=False, description="Whether the text or the diff is truncated or missing."
    )


class IrListing(Document):
    """The snapshots of one compilation; a failed one has those from before the failure."""

    items: tuple[IrStep, ...] = Field(description="The snapshots, oldest first.")

    def named(self, step: str) -> tuple[IrStep, ...]:
        """The steps with a number; if none has it, with the name of a pass, or of a phase or stage.

        Names match in any case if none matches exactly.
        """
        name = step.casefold()
        matches: tuple[Callable[[IrStep], bool], ...] = (
            lambda entry: str(entry.step) == step,
            lambda entry: entry.name == step,
            lambda entry: entry.name.casefold() == name,
            lambda entry: entry.phase.casefold() == name,
            lambda entry: entry.stage.value.casefold() == name,
        )
        found = (tuple(filter(match, self.items)) for match in matches)
        return next(filter(None, found), ())

    @property
    def names(self) -> tuple[str, ...]:
        """The names that ``named`` takes."""
        return tuple(name for entry in self.items for name in (entry.name, entry.phase, entry.stage.value))
