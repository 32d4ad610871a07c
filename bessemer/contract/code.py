"""What each function of a library computes, and its code: ``GET /v1/compilations/{id}/code``."""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Self

from pydantic import Field, model_validator

from bessemer.contract.base import Document
from bessemer.contract.ir import NO_TEXT, IrText
from bessemer.contract.names import did_you_mean
from bessemer.contract.problem import SourcePlace

CODE_INDEX = "code.json"
"""The artifact that lists functions, calls and operators: a ``CodeListing``."""

CODE_TEXTS = "code.zst"
"""The artifact with LLVM IR, assembly and PTX, one zstandard frame for each function and kind."""

MAX_CODE_INDEX_BYTES = 1 << 23
MAX_OPERATORS = 20_000
MAX_CALLS = 20_000
MAX_NAME = 200
MAX_INPUTS = 64


def listed_name(function: str) -> str:
    """The name by which a function is listed: its own, or a long one's start and a digest of all of it."""
    if len(function) <= MAX_NAME:
        return function
    return f"{function[: MAX_NAME - 9]}~{sha256(function.encode()).hexdigest()[:8]}"


class CodeKind(StrEnum):
    """A form of a function's code."""

    LLVM_IR = "llvm-ir"
    ASSEMBLY = "assembly"
    PTX = "ptx"


class CodeOperator(Document):
    """An operator of the model's exported program."""

    name: str = Field(max_length=MAX_NAME, description="Its name in the exported program, which is unique.")
    place: SourcePlace = Field(description="What it is, and where the model calls it.")
    value: str = Field(
        default="", max_length=MAX_NAME, description="The type of its result, such as `float32[1, 64]`."
    )
    inputs: tuple[int, ...] = Field(
        default=(),
        max_length=MAX_INPUTS,
        description="The operators that it reads, by places in `operators`.",
    )


class CodeCall(Document):
    """A call of a function in a run of the model."""

    function: str = Field(max_length=MAX_NAME, description="Name of a function in `functions`.")
    inputs: tuple[int, ...] = Field(
        max_length=MAX_INPUTS, description="The calls whose results it reads, by their places in `calls`."
    )
    operators: tuple[int, ...] = Field(
        description="The operators that it computes, by their places in `operators`; empty if unknown."
    )


class CodeFunction(Document):
    """A function of the library."""

    name: str = Field(
        max_length=MAX_NAME,
        description="The function, as in the module; a longer name is cut and ends with a digest of it.",
    )
    operators: tuple[int, ...] = Field(
        description="The operators that its calls compute, by their places in `operators`."
    )
    llvm_ir: IrText = Field(
        description="LLVM IR after LLVM's passes; empty for a GPU, and without `inspect.assembly`."
    )
    assembly: IrText = Field(description="Assembly; empty for a GPU, and without `inspect.assembly`.")
    ptx: IrText = Field(
        default=NO_TEXT,
        description="PTX of the kernels that it starts on a GPU; empty without `inspect.assembly`.",
    )
    truncated: bool = Field(default=False, description="Whether a text is truncated or missing.")

    def text(self, kind: CodeKind) -> IrText:
        """Where a form of its code is."""
        forms = {CodeKind.LLVM_IR: self.llvm_ir, CodeKind.ASSEMBLY: self.assembly, CodeKind.PTX: self.ptx}
        return forms[kind]

    @property
    def code_bytes(self) -> int:
        """Size of its assembly, or of its PTX."""
        return self.assembly.text_bytes or self.ptx.text_bytes


class CodeListing(Document):
    """The functions of a library, what they compute, and where their code is."""

    functions: tuple[CodeFunction, ...] = Field(description="The functions, by the order of first calls.")
    calls: tuple[CodeCall, ...] = Field(
        max_length=MAX_CALLS, description="The calls of one run, in order: at most 20,000."
    )
    operators: tuple[CodeOperator, ...] = Field(
        max_length=MAX_OPERATORS, description="The operators, in the model's order: at most 20,000."
    )

    @model_validator(mode="after")
    def _has_what_it_refers_to(self) -> Self:
        _check("calls", len(self.calls), (call.inputs for call in self.calls))
        _check("operators", len(self.operators), (call.operators for call in self.calls))
        _check("operators", len(self.operators), (function.operators for function in self.functions))
        _check("operators", len(self.operators), (operator.inputs for operator in self.operators))
        return self

    def named(self, name: str) -> CodeFunction | None:
        """The function with a name; None if none has it."""
        return next((function for function in self.functions if function.name == name), None)

    def hint(self, name: str) -> str:
        """The end of a sentence on a name that no function has: names that are close to it, or a dot."""
        return did_you_mean(name, [function.name for function in self.functions], count=3) or "."


def _check(what: str, count: int, references: Iterable[tuple[int, ...]]) -> None:
    if any(not 0 <= place < count for places in references for place in places):
        raise ValueError(f"a reference to `{what}` is out of range")
