"""The targets that a request may name."""

from fastapi import APIRouter

from app import documentation
from app.documentation import problems
from bessemer.contract.problem import ErrorCode
from bessemer.contract.service import TargetList
from bessemer.contract.target import PRESETS

router = APIRouter(prefix="/v1/targets", tags=["targets"])

TARGETS = TargetList(items=PRESETS)


@router.get(
    "",
    summary="List the presets",
    responses=documentation.answer(200, "The presets.", TARGETS) | problems(ErrorCode.REQUEST_INVALID),
)
async def list_targets() -> TargetList:
    """Each may be named in a request; other processors are described in the compiler's own terms."""
    return TARGETS
