"""The locations of the store's data."""

import os
import sys
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from bessemer.contract.error_words import in_words
from bessemer.contract.request import MAX_PRIORITY
from bessemer.contract.usage import MAX_RECORD_BYTES, HighestPriority, Limit, PositiveLimit

POSTGRESQL = "postgresql"
DATABASES = ("sqlite", POSTGRESQL, "postgres")
ARTIFACT_SCHEMES = ("file", "s3", "gs", "az")
USAGE_ERROR = 2
PREFIX = "BESSEMER_"

Settings = TypeVar("Settings", bound=BaseSettings)


class StoreSettings(BaseSettings):
    """Read from ``BESSEMER_*``; the defaults need only a folder."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, allow_inf_nan=False)

    data: Path = Field(default=Path("bessemer-data"), description="The folder of all stored data.")
    database_url: str | None = Field(
        default=None,
        description="`postgresql://user:password@host/name`, or `sqlite:///file`; default: a file in `data`.",
    )
    engine_url: str | None = Field(
        default=None,
        description="The job engine's database; default: `database_url` if that is PostgreSQL, else a file.",
    )
    artifacts_url: str | None = Field(
        default=None,
        description="`s3://bucket/prefix`, `gs://…`, `az://…`, `file:///folder`; default: within `data`. "
        "For S3, `AWS_REGION`, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` are read too, "
        "`AWS_ENDPOINT_URL` if it is not Amazon's, and `AWS_ALLOW_HTTP=true` if that is not `https://`. "
        "The bucket must exist.",
    )

    worker_lost_seconds: float = Field(
        default=10.0,
        ge=1.0,
        description="A worker's lease on its tasks, the same in every process: a worker without a "
        "heartbeat for this long is lost, and other workers take its tasks.",
    )

    device_lost_seconds: float = Field(
        default=30.0,
        ge=1.0,
        description="A device's lease on its task, the same in every process: a device that is silent for "
        "this long is lost, and another device gets its task.",
    )

    quotas: Path | None = Field(
        default=None,
        description="A TOML file with the quotas of some tenants, the same in every process: see "
        "docs/sharing.md. The other tenants have the quotas below. `unlimited` removes a limit.",
    )
    quota_running_jobs: PositiveLimit = Field(
        default=None,
        description="How many compilations of a tenant run at once; more wait. As many of its inspections, "
        "preflights and invocations may run beside them. The same in every process.",
    )
    quota_queued_jobs: Limit = Field(
        default=None, description="How many compilations and invocations of a tenant may wait; more get 429."
    )
    quota_uploads: PositiveLimit = Field(
        default=16,
        description="How many uploads of more than 1 MiB a tenant may have in progress in each app; more get "
        "429. An app receives 32 at a time.",
    )
    quota_stored_bytes: Limit = Field(
        default=None,
        description="How many bytes of files a tenant may store; while it has as many, its uploads and "
        "submissions get 429.",
    )
    quota_record_bytes: Limit = Field(
        default=MAX_RECORD_BYTES,
        description="How many bytes of tuning records a tenant may have; then its imports get 429, and new "
        "records of its searches replace the oldest.",
    )
    quota_worker_seconds: Limit = Field(
        default=None,
        description="How many seconds a day (UTC) workers may spend on a tenant's tasks; after that, its "
        "uploads and submissions get 429.",
    )
    quota_highest_priority: HighestPriority = Field(
        default=MAX_PRIORITY,
        description="The highest priority that a tenant may request; a higher one gets 422. Priorities order "
        "the tasks of one tenant only.",
    )

    @model_validator(mode="before")
    @classmethod
    def _quotas_are_known(cls, given: Any) -> Any:
        """Refuse a misspelled quota, which would limit nothing."""
        names = {
            name.removeprefix(PREFIX).lower() for name in os.environ if name.startswith(f"{PREFIX}QUOTA_")
        }
        unknown = sorted(names - set(cls.model_fields))
        if unknown:
            known = ", ".join(
                f"{PREFIX}{name.upper()}" for name in cls.model_fields if name.startswith("quota_")
            )
            raise ValueError(f"{PREFIX}{unknown[0].upper()} is not a setting; the quotas are {known}")
        return given

    @field_validator("database_url", "engine_url")
    @classmethod
    def _database_is_known(cls, text: str | None) -> str | None:
        try:
            known = not text or make_url(text).get_backend_name() in DATABASES
        except (ArgumentError, ValueError):
            known = False
        if not known:
            raise ValueError("not a URL such as postgresql://user:password@host/name or sqlite:////file")
        return text

    @field_validator("artifacts_url")
    @classmethod
    def _artifact_store_is_known(cls, text: str | None) -> str | None:
        if text and urlsplit(text).scheme not in ARTIFACT_SCHEMES:
            raise ValueError("not a URL such as s3://bucket/prefix or file:///folder")
        return text

    @property
    def folder(self) -> Path:
        """``data`` as an absolute path."""
        return self.data.expanduser().resolve()

    @property
    def database(self) -> URL:
        """The URL of the database, with the installed driver."""
        return _with_driver(make_url(self.database_url or f"sqlite:///{self.folder / 'bessemer.sqlite'}"))

    @property
    def engine(self) -> URL:
        """The URL of the job engine's database. A separate file on SQLite: its writers would block ours."""
        if self.engine_url:
            return _with_driver(make_url(self.engine_url))
        if self.database.get_backend_name() == POSTGRESQL:
            return self.database
        return make_url(f"sqlite:///{self.folder / 'engine.sqlite'}")

    @property
    def artifacts(self) -> str:
        """The URL of the artifact store."""
        return self.artifacts_url or (self.folder / "artifacts").as_uri()


def read_settings(kind: type[Settings]) -> Settings:
    """Read a program's settings, or exit with a line for each invalid variable.

    Raises:
        SystemExit: with status 2.
    """
    try:
        return kind()
    except ValidationError as error:
        prefix = kind.model_config["env_prefix"]
        for wrong in error.errors():
            variable = f"{prefix}{'_'.join(map(str, wrong['loc'])).upper()}: " if wrong["loc"] else ""
            sys.stderr.write(f"{variable}{in_words(wrong)}\n")
        sys.exit(USAGE_ERROR)


def _with_driver(url: URL) -> URL:
    if url.get_backend_name() in (POSTGRESQL, "postgres"):
        return url.set(drivername="postgresql+psycopg")
    return url
