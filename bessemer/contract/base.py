"""The base class and the common field types of the API's documents."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self, TypeGuard

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

_reading: ContextVar[bool] = ContextVar("reading", default=False)


@contextmanager
def _reading_later_releases() -> Iterator[None]:
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)


class GrowingEnum(StrEnum):
    """An enumeration to which releases add values.

    ``Document.read`` accepts the values of later releases. Such a value is a member that equals its text, and
    that iterating over the enumeration does not return.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not (_reading.get() and isinstance(value, str)):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        return member


class Document(BaseModel):
    """A frozen document that rejects unknown fields, so a misspelled field never passes silently.

    Use ``read`` for documents that another release may have written: releases add fields and values of
    enumerations, but never change them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def read(cls, value: Any) -> Self:
        """Parse a value; ignore the fields that this release does not know, and keep the unknown values.

        Raises:
            pydantic.ValidationError: the value is not such a document.
        """
        with _reading_later_releases():
            return cls.model_validate(value, extra="ignore")

    @classmethod
    def read_json(cls, text: str | bytes) -> Self:
        """Parse JSON as ``read`` parses a value."""
        with _reading_later_releases():
            return cls.model_validate_json(text, extra="ignore")


DIGEST_PATTERN = r"^[0-9a-f]{64}$"
JOB_ID_PATTERN = r"^[0-9a-z-]{8,64}$"

MIN_PREFIX = 4
JOB_PREFIX_PATTERN = rf"^[0-9a-z-]{{{MIN_PREFIX},64}}$"
DIGEST_PREFIX_PATTERN = rf"^[0-9a-f]{{{MIN_PREFIX},64}}$"

Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)]
"""A SHA-256 in lower-case hexadecimal."""

DigestPrefix = Annotated[str, StringConstraints(pattern=DIGEST_PREFIX_PATTERN)]
"""A SHA-256, or its first characters."""

Readable = Annotated[str, AfterValidator(lambda text: text.encode("utf-8", "replace").decode())]
"""Text from an untrusted source, made encodable as UTF-8: lone surrogates become question marks."""

JobId = Annotated[str, StringConstraints(pattern=JOB_ID_PATTERN)]


def is_digest(value: object) -> TypeGuard[str]:
    """Whether the value has the form of a ``Digest``."""
    return isinstance(value, str) and re.fullmatch(DIGEST_PATTERN, value) is not None


def is_digest_prefix(value: object) -> TypeGuard[str]:
    """Whether the value has the form of a ``DigestPrefix``."""
    return isinstance(value, str) and re.fullmatch(DIGEST_PREFIX_PATTERN, value) is not None


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)
