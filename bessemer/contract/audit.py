"""The audit log: who did what, when, from where."""

from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Document


class AuditEntry(Document):
    """One request that changed something, or that was refused because of its caller."""

    id: int = Field(description="Its number; later entries have higher numbers.")
    at: datetime = Field(description="When the service answered.")
    subject: str = Field(
        description="The caller: `key:ID`, `oidc:SUBJECT`, `cli:USER`, `anonymous`, or `unknown` if it had "
        "no valid key."
    )
    tenant: str | None = Field(description="The caller's tenant; null if the caller is unknown.")
    action: str = Field(
        description="The method and the route.", examples=["POST /v1/compilations/{id}/cancel"]
    )
    resource: str = Field(description="The path of what was created, changed or asked for.")
    status: int = Field(description="The HTTP status of the response; 0 for the command line.")
    request_id: str | None = Field(
        description="The request's `X-Request-Id`, as in the log; null for the command line."
    )
    address: str | None = Field(
        description="The client's address, or its proxy's; null for the command line."
    )


class AuditPage(Document):
    """A page of the audit log."""

    items: tuple[AuditEntry, ...] = Field(description="Newest first.")
    next: int | None = Field(description="Pass it as `before` for the next page; null on the last page.")
