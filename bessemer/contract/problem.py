"""Errors as RFC 9457 problems: a stable code, what to do next, and whether a retry can help."""

from pydantic import Field

from bessemer.contract.base import Document, Readable
from bessemer.contract.error_codes import MODEL_DEFECTS, ErrorCode
from bessemer.contract.error_texts import ERRORS, ErrorText

__all__ = [
    "ERRORS",
    "MODEL_DEFECTS",
    "ErrorCode",
    "ErrorText",
    "FieldError",
    "Problem",
    "SourcePlace",
    "make_problem",
]


class FieldError(Document):
    """One field of a request that is not valid."""

    field: str = Field(description="Its path, such as `inputs[0].dtype`; or a parameter or a header.")
    message: str = Field(description="What was expected, with the nearest valid value where there is one.")


class SourcePlace(Document):
    """A place in the user's model."""

    operator: Readable | None = Field(
        default=None, description="Such as `aten.sort.default`; null where the place is no operator's."
    )
    module_path: Readable | None = Field(
        default=None, description="Such as `layers.0.norm`; null for the model itself, or where not known."
    )
    file: Readable | None = Field(
        default=None, description="The source, as the model's file names it; null where it does not."
    )
    line: int | None = Field(default=None, description="Of the source, from 1; null where not known.")

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
    status: int = Field(description="The HTTP status, also where the problem is part of a document.")
    code: ErrorCode = Field(description="What a program goes by; it stays the same.")
    detail: Readable = Field(description="What happened this time, for people.")
    advice: str = Field(description="What to do next.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    stage: str | None = Field(
        default=None, description="In which a compilation failed; null where no stage did."
    )
    errors: tuple[FieldError, ...] = Field(default=(), description="The fields that are not valid.")
    places: tuple[SourcePlace, ...] = Field(default=(), description="Places in the user's model.")


def make_problem(
    code: ErrorCode,
    detail: str,
    *,
    stage: str | None = None,
    errors: tuple[FieldError, ...] = (),
    places: tuple[SourcePlace, ...] = (),
) -> Problem:
    """A problem with its code's own title, status and advice."""
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
