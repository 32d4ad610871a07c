"""What every document of the contract has in common."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeGuard

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints


class Document(BaseModel):
    """A frozen document; unknown fields are refused, so that a typing error never passes silently.

    What another release may have written is ``read``: fields are added to documents, never changed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def read(cls, value: Any) -> Self:
        """The document that a value holds, without fields that this release does not know.

        Raises:
            pydantic.ValidationError: it is none.
        """
        return cls.model_validate(value, extra="ignore")

    @classmethod
    def read_json(cls, text: str | bytes) -> Self:
        """The same of a JSON text."""
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
"""Words of strangers, that can be written as UTF-8: halves of surrogate pairs become question marks."""

JobId = Annotated[str, StringConstraints(pattern=JOB_ID_PATTERN)]

DEFAULT_TENANT = "default"


def is_digest(value: object) -> TypeGuard[str]:
    """Whether it is a text that could be a ``Digest``."""
    return isinstance(value, str) and re.fullmatch(DIGEST_PATTERN, value) is not None


def is_digest_prefix(value: object) -> TypeGuard[str]:
    """Whether it is a text that could be the start of a ``Digest``."""
    return isinstance(value, str) and re.fullmatch(DIGEST_PREFIX_PATTERN, value) is not None


def now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)
