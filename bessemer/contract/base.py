"""What every document of the contract has in common."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints


class Document(BaseModel):
    """A frozen document; unknown fields are refused, so that a typing error never passes silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal."""

Readable = Annotated[str, AfterValidator(lambda text: text.encode("utf-8", "replace").decode())]
"""Words of strangers, that can be written as UTF-8: halves of surrogate pairs become question marks."""

JobId = Annotated[str, StringConstraints(pattern=r"^[0-9a-z-]{8,64}$")]

DEFAULT_TENANT = "default"


def now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)
