"""Errors as RFC 9457 problems: a stable code, what to do next, and whether a retry can help."""

from pydantic import Field

from bessemer.contract.base import Document, Readable
from bessemer.contract.error_codes import MODEL_DEFECTS, REQUEST_DEFECTS, ErrorCode
from bessemer.contract.error_texts import ERRORS, ErrorText

__all__ = [
    "ERRORS",
    "MODEL_DEFECTS",
    "REQUEST_DEFECTS",
    "ErrorCode",
    "ErrorText",
    "FieldError",
    "Problem",
    "SourcePlace",
    "make_problem",
]


class FieldError(Document):
    """An invalid field of a request."""

    field: str = Field(
        description="The path of the field, such as `inputs[0].dtype`, or the name of a parameter or header."
    )
    message: str = Field(description="What was expected, with the nearest valid value if there is one.")


class SourcePlace(Document):
    """A place in the user's model."""

    operator: Readable | None = Field(
        default=None,
        description="The operator, such as `aten.sort.default`; null if the place is not an operator.",
    )
    module_path: Readable | None = Field(
        default=None,
        description="The submodule, such as `layers.0.norm`; null for the model itself, or if unknown.",
    )
    file: Readable | None = Field(
        default=None, description="The source file that the model file records; null if it records none."
    )
    line: int | None = Field(
        default=None, description="The line in the source file, from 1; null if unknown."
    )

    def __str__(self) -> str:
        """In one line, such as ``aten.sort.default in module layers.0 (model.py:12)``."""
        source = f"{self.file}:{self.line}" if self.file and self.line else self.file
        where = f"in module {self.module_path}" if self.module_path else None
        what = " ".join(part for part in (self.operator, where) if part)
        return f"{what} ({source})" if what and source else what or source or "the model"


class Problem(Document):
    """An RFC 9457 problem. The media type is ``application/problem+json``."""

    type: str = Field(description="`urn:bessemer:error:CODE`")
    title: str = Field(description="The same for every occurrence of the code.")
    status: int = Field(description="The HTTP status, even if the problem is part of a document.")
    code: ErrorCode = Field(description="A stable code for programs.")
    detail: Readable = Field(description="What happened this time, in words.")
    advice: str = Field(description="What to do next.")
    retryable: bool = Field(description="Whether a retry of the same request may succeed.")
    stage: str | None = Field(
        default=None, description="The stage in which a compilation failed; null if no stage failed."
    )
    errors: tuple[FieldError, ...] = Field(default=(), description="The invalid fields of the request.")
    places: tuple[SourcePlace, ...] = Field(default=(), description="Places in the user's model.")


def make_problem(
    code: ErrorCode,
    detail: str,
    *,
    stage: str | None = None,
    errors: tuple[FieldError, ...] = (),
    places: tuple[SourcePlace, ...] = (),
) -> Problem:
    """A problem with the title, status and advice of its code."""
    text = ERRORS[code]
    return Problem(
        type=f"urn:bessemer:error:{code.value}",
        title=text.title,
        status=text.status,
        code=code,
        detail=detail,
        advice=text.advice,
        retryable=text.retryable,
        stage=stage,
        errors=errors,
        places=places,
    )
