"""What the caller's tenant uses."""

from fastapi import APIRouter

from app.openapi import document as documentation
from app.openapi.document import problems
from app.quotas import usage_of
from app.service import ServiceDep
from bessemer.contract.problem import ErrorCode
from bessemer.contract.usage import Usage

router = APIRouter(prefix="/v1/usage", tags=["usage"])


@router.get(
    "",
    summary="Get your tenant's usage and limits",
    responses=documentation.answer(200, "The usage.", documentation.USAGE)
    | problems(ErrorCode.REQUEST_INVALID),
)
def get_usage(service: ServiceDep) -> Usage:
    """Return what the caller's tenant uses, with its limits."""
    return usage_of(service)
