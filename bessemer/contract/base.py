"""The base class and the common field types of the API's documents."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeGuard

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints


class Document(BaseModel):
    """A frozen document that rejects unknown fields, so a misspelled field never passes silently.

    Use ``read`` for documents that another release may have written: releases add fields, but never change
    them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def read(cls, value: Any) -> Self:
        """Parse a value and ignore the fields that this release does not know.

        Raises:
            pydantic.ValidationError: the value is not such a document.
        """
        return cls.model_validate(value, extra="ignore")

    @classmethod
    def read_json(cls, text: str | bytes) -> Self:
        """Parse JSON as ``read`` parses a value."""
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
