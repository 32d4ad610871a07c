"""API keys."""

from datetime import datetime

from pydantic import Field

from bessemer.contract.access import DEFAULT_TENANT, Scope, Tenant
from bessemer.contract.base import Document
from bessemer.contract.names import Name

MAX_EXPIRY_DAYS = 3650


class KeyRequest(Document):
    """A key to create."""

    tenant: Tenant = Field(
        default=DEFAULT_TENANT,
        description="The tenant whose data the key reads and writes.",
        examples=["vision"],
    )
    scope: Scope = Field(
        default=Scope.COMPILE,
        description="What the key allows: `read`, `compile` (also upload, submit, cancel, delete, and be a "
        "device), `device` (only be a device of the tenant), `shared-device` (only be a device of all "
        "tenants), or `admin` (also keys, the audit log, workers and metrics).",
    )
    name: Name | None = Field(
        default=None, description="A name for people; null if it has none.", examples=["ci of acme/vision"]
    )
    expires_days: int | None = Field(
        default=None, ge=1, le=MAX_EXPIRY_DAYS, description="Days until it expires; null if it does not."
    )


class ApiKey(Document):
    """A key, without its secret."""

    id: str = Field(description="Its id: the part between `bsm_` and the secret.", examples=["4f1d2a90c3b7"])
    tenant: Tenant = Field(description="The tenant whose data the key reads and writes.")
    scope: Scope = Field(description="What the key allows.")
    name: str | None = Field(description="A name for people; null if it has none.")
    created_at: datetime = Field(description="When it was created.")
    expires_at: datetime | None = Field(description="When it expires; null if it does not.")
    revoked_at: datetime | None = Field(description="When it was revoked; null if it was not.")
    last_used_at: datetime | None = Field(description="When it was last used, to the minute; null if never.")


class NewApiKey(ApiKey):
    """A new key. The service stores only a digest of it, and never shows it again."""

    key: str = Field(
        description="The key: send it as `Authorization: Bearer KEY`.",
        examples=["bsm_4f1d2a90c3b7_fhF0Jk3m0jvYb0Y2gWfZs1n1sQz0s4oV5b1lJkq8x2A"],
    )


class KeyList(Document):
    """All keys."""

    items: tuple[ApiKey, ...] = Field(description="Newest first, including expired and revoked keys.")
