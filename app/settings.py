"""The settings of the front end, read from ``BESSEMER_*``."""

from pydantic import Field

from bessemer.store.blobs.uploads import MinimumRate
from bessemer.store.settings import StoreSettings

GIBIBYTE = 1 << 30
MAX_RETENTION_DAYS = 100_000.0
"""No moment lies before the year 1: so many days ago there still is one."""


class AppSettings(StoreSettings):
    """The store's settings and those of the HTTP server."""

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(
        default=8000, ge=0, le=65535, description="The port to listen on; 0 takes any that is free."
    )
    max_upload_bytes: int = Field(
        default=16 * GIBIBYTE, ge=1, description="The largest model that is accepted, in bytes."
    )
    max_inputs_bytes: int = Field(
        default=GIBIBYTE, ge=1, description="The largest inputs of an invocation that are accepted, in bytes."
    )
    upload_idle_seconds: float = Field(
        default=60.0, gt=0, description="An upload of which nothing arrives for this long is given up."
    )
    upload_min_bytes_per_second: float = Field(
        default=16_384.0,
        ge=0,
        description="A model or inputs that come more slowly, on average after the first "
        "`upload_idle_seconds`, are given up: 32 uploads are taken at a time, and others wait.",
    )
    upload_abandoned_seconds: float = Field(
        default=24 * 3600.0,
        gt=0,
        description="What an upload has left is deleted once nothing was added to it for this long.",
    )
    events_poll_seconds: float = Field(
        default=0.05,
        gt=0,
        description="How often an event stream looks for news while a job is lively.",
    )
    events_quiet_poll_seconds: float = Field(
        default=1.0, gt=0, description="How often an event stream looks for news of a job that is long quiet."
    )
    worker_liveness_seconds: float = Field(
        default=15.0, gt=0, description="A worker that was not heard of for this long counts as gone."
    )
    sweep_seconds: float = Field(
        default=5.0, gt=0, description="How often tasks that are not in the queue are looked for."
    )
    sweep_age_seconds: float = Field(
        default=5.0, ge=0, description="A task that is not in the queue after this long is enqueued again."
    )
    retention_days: float | None = Field(
        default=None,
        ge=0,
        le=MAX_RETENTION_DAYS,
        description="Compilations and invocations that ended so many days ago are deleted; default: never.",
    )
    model_retention_days: float | None = Field(
        default=None,
        ge=0,
        le=MAX_RETENTION_DAYS,
        description="Models that were neither uploaded nor compiled for so many days are deleted, unless a "
        "compilation that has not ended needs them; default: never.",
    )
    blob_grace_seconds: float = Field(
        default=86_400.0,
        ge=0,
        description="Files in the artifact store that nothing refers to go to its trash when they are so "
        "old, and are deleted after as long again. More than any upload takes.",
    )
    stop_seconds: int = Field(
        default=5, ge=0, description="How long running requests may take to end when the server stops."
    )

    @property
    def upload_rate(self) -> MinimumRate:
        """How slowly an upload may come."""
        return MinimumRate(self.upload_idle_seconds, self.upload_min_bytes_per_second)
