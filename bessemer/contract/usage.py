"""What a tenant may use, and what it uses."""

from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field

from bessemer.contract.access import Tenant
from bessemer.contract.base import Document
from bessemer.contract.request import MAX_PRIORITY

UNLIMITED = "unlimited"


def _none_if_unlimited(value: object) -> object:
    return None if value == UNLIMITED else value


Limit = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_none_if_unlimited)]
"""A number, or ``unlimited``, which is None."""
PositiveLimit = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_none_if_unlimited)]
HighestPriority = Annotated[int, Field(ge=0, le=MAX_PRIORITY)]
"""Not negative, so that a request without a priority is always allowed."""


MAX_RECORD_BYTES = 256 << 20


class Quota(Document):
    """What a tenant may use; None means unlimited.

    Attributes:
        running_jobs: compilations in flight, and as many tasks of the other queue; more wait.
        queued_jobs: compilations and invocations that wait.
        uploads: uploads of more than 1 MiB in progress in one app.
        stored_bytes: size of all stored files.
        record_bytes: size of the tuning records.
        worker_seconds: time of workers in a day (UTC).
        highest_priority: the highest priority that a request may have.
    """

    running_jobs: PositiveLimit = None
    queued_jobs: Limit = None
    uploads: PositiveLimit = None
    stored_bytes: Limit = None
    record_bytes: Limit = MAX_RECORD_BYTES
    worker_seconds: Limit = None
    highest_priority: HighestPriority = MAX_PRIORITY


class Use(Document):
    """How much of something a tenant uses, and its limit."""

    used: int = Field(description="What the tenant uses now.")
    limit: int | None = Field(description="What the tenant may use; null means unlimited.")


class Usage(Document):
    """What a tenant uses, and its quota."""

    tenant: Tenant = Field(description="The caller's tenant.")
    running_jobs: Use = Field(
        description="Compilations that workers run. More wait in the queue until one of them ends."
    )
    queued_jobs: Use = Field(description="Compilations and invocations that wait for a worker.")
    uploads: Use = Field(description="Uploads of more than 1 MiB in progress in the app that answers.")
    stored_bytes: Use = Field(
        description="Bytes of models, inputs, artifacts and outputs; equal files count once."
    )
    record_bytes: Use = Field(
        description="Bytes of tuning records; searches replace the oldest, and imports are refused."
    )
    worker_seconds: Use = Field(description="Seconds that workers have spent on its tasks since 00:00 UTC.")
    highest_priority: int = Field(description="The highest `priority` that a request may have.")
    day_ends_at: datetime = Field(description="When `worker_seconds` starts again from zero.")
