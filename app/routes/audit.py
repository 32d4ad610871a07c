"""The audit log, for administrators."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from app.openapi import document as documentation
from app.openapi.document import problems
from app.service import OperatorDep
from bessemer.contract.audit import AuditEntry, AuditPage
from bessemer.contract.listing import MAX_PAGE
from bessemer.contract.problem import ErrorCode

router = APIRouter(prefix="/v1/audit", tags=["keys"])

MAX_ID = (1 << 63) - 1
EXAMPLE = AuditPage(
    items=(
        AuditEntry(
            id=1,
            at=datetime(2026, 11, 1, tzinfo=UTC),
            subject="key:4f1d2a90c3b7",
            tenant="vision",
            action="POST /v1/compilations",
            resource="/v1/compilations/2c26b46b68ffc68ff99b453c1d304134",
            status=202,
            request_id="0a4d55a8d778e5022fab701977c5d840",
            address="192.0.2.7",
        ),
    ),
    next=None,
)


@router.get(
    "",
    summary="Read the audit log",
    responses=documentation.answer(200, "A page of the log.", EXAMPLE) | problems(ErrorCode.REQUEST_INVALID),
)
def read_audit(
    service: OperatorDep,
    limit: Annotated[
        int, Query(ge=1, le=MAX_PAGE, description="Maximum number of entries.", examples=[50])
    ] = MAX_PAGE,
    before: Annotated[
        int | None, Query(ge=1, le=MAX_ID, description="Only entries with a lower number.", examples=[42])
    ] = None,
) -> AuditPage:
    """List requests that changed something or were refused because of their caller, newest first."""
    return service.store.audit.page(limit, before)
