"""The targets to compile for."""

from fastapi import APIRouter

from app.openapi import document as documentation
from app.openapi.document import problems
from bessemer.contract.problem import ErrorCode
from bessemer.contract.processors import X86_64
from bessemer.contract.service import TargetList
from bessemer.contract.target import PRESETS

router = APIRouter(prefix="/v1/targets", tags=["targets"])

TARGETS = TargetList(items=PRESETS, processors=X86_64)


@router.get(
    "",
    summary="List the targets",
    responses=documentation.answer(200, "The targets.", TARGETS) | problems(ErrorCode.REQUEST_INVALID),
)
async def list_targets() -> TargetList:
    """A request names a preset or one of LLVM's x86-64 processors, or gives LLVM options.

    Arm and RISC-V processors are planned, then NVIDIA GPUs (CUDA).
    """
    return TARGETS
