"""The app's settings, read from ``BESSEMER_*``."""

from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from bessemer.store.blobs.uploads import MinimumRate
from bessemer.store.settings import StoreSettings

MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30
MAX_RETENTION_DAYS = 100_000.0
"""The cutoff date must not precede the year 1."""
DEFAULT_RETENTION_DAYS = 180.0
NEVER = "never"


def _none_if_never(value: object) -> object:
    return None if value == NEVER else value


RetentionDays = Annotated[
    Annotated[float, Field(ge=0, le=MAX_RETENTION_DAYS)] | None, BeforeValidator(_none_if_never)
]


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(word.strip().lower() for word in value.split(",") if word.strip())


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


def _networks(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        ip_network(word)
    return words


Networks = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(_networks)]


class AuthMode(StrEnum):
    """When callers must prove who they are."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


class AppSettings(StoreSettings):
    """The settings of the store and the HTTP server."""

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="The port to listen on; 0 picks a free port.")
    auth: AuthMode = Field(
        default=AuthMode.AUTO,
        description="Whether callers need a key: `required`, `off`, or `auto`, which requires one if the app "
        "listens beyond this machine, if a key was ever created, or if there is an `oidc_policy`.",
    )
    admin_key: SecretStr | None = Field(
        default=None,
        description="An administrator's key, `bsm_ID_SECRET`, which the app creates at its start. Another "
        "value replaces it.",
    )
    oidc_policy: Path | None = Field(
        default=None,
        description="A TOML file that says which OpenID Connect tokens to accept: see docs/security.md.",
    )
    allowed_hosts: Words = Field(
        default=(),
        description="Host names that the app accepts besides addresses and this machine's name, separated by "
        "commas; `*` accepts any. By default, an app that asks for keys accepts any name.",
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="Addresses or networks of proxies whose `X-Forwarded-For` names the client, such as "
        "`127.0.0.1` or `10.0.0.0/8`, separated by commas. They must set that header themselves, and "
        "`X-Forwarded-Proto`. Without any, the audit log and the limit on failed keys see the proxy.",
    )
    allowed_origins: Words = Field(
        default=(),
        description="Other origins whose pages may send requests that change something, such as "
        "`https://console.example`, separated by commas.",
    )
    console: bool = Field(
        default=True, description="Whether the app serves the console, its pages for browsers, at `/`."
    )
    audit_retention_days: RetentionDays = Field(
        default=365.0, description="Delete entries of the audit log after this many days, or `never`."
    )
    max_upload_bytes: int = Field(
        default=16 * GIBIBYTE, ge=1, description="The maximum size of a model in bytes."
    )
    max_extension_bytes: int = Field(
        default=16 * MEBIBYTE,
        ge=1,
        description="The maximum size of an extension, or of a file of tuning records, in bytes.",
    )
    max_inputs_bytes: int = Field(
        default=GIBIBYTE, ge=1, description="The maximum size of an invocation's inputs in bytes."
    )
    upload_idle_seconds: float = Field(
        default=60.0, gt=0, description="An upload fails if no data arrives for this long."
    )
    upload_min_bytes_per_second: float = Field(
        default=131_072.0,
        ge=0,
        description="An upload fails if its average rate after the first `upload_idle_seconds` is "
        "lower: only 32 uploads run at a time, others wait.",
    )
    request_head_seconds: float = Field(
        default=15.0, gt=0, description="How long a client may take to send the head of a request."
    )
    upload_abandoned_seconds: float = Field(
        default=24 * 3600.0,
        gt=0,
        description="The remains of an upload are deleted if it has not grown for this long.",
    )
    events_poll_seconds: float = Field(
        default=0.05,
        gt=0,
        description="How often an app polls an active job that event streams follow.",
    )
    events_quiet_poll_seconds: float = Field(
        default=1.0, gt=0, description="How often an app polls such a job that has been quiet for long."
    )
    worker_liveness_seconds: float = Field(
        default=15.0, gt=0, description="A worker without a heartbeat for this long is not live."
    )
    sweep_seconds: float = Field(
        default=5.0, gt=0, description="How often to look for tasks that are missing from the queue."
    )
    sweep_age_seconds: float = Field(
        default=5.0,
        ge=0,
        description="A task that is missing from the queue for this long is enqueued again.",
    )
    retention_days: RetentionDays = Field(
        default=DEFAULT_RETENTION_DAYS,
        description="Delete compilations and invocations this many days after they ended, or `never`.",
    )
    model_retention_days: RetentionDays = Field(
        default=DEFAULT_RETENTION_DAYS,
        description="Delete models and extensions that were not uploaded or compiled for this many days, or "
        "`never`. Uploads that an unfinished compilation needs are kept.",
    )
    record_retention_days: RetentionDays = Field(
        default=DEFAULT_RETENTION_DAYS,
        description="Delete tuning records this many days after they were last measured or imported, or "
        "`never`.",
    )
    blob_grace_seconds: float = Field(
        default=86_400.0,
        ge=0,
        description="Unreferenced files in the artifact store move to its trash at this age, and are "
        "deleted after the same time again. Must exceed the duration of any upload.",
    )
    stop_seconds: int = Field(
        default=5, ge=0, description="How long running requests may take when the server stops."
    )

    @property
    def upload_rate(self) -> MinimumRate:
        """The minimum rate of uploads."""
        return MinimumRate(self.upload_idle_seconds, self.upload_min_bytes_per_second)
