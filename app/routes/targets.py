"""The targets to compile for."""

from fastapi import APIRouter

from app.openapi import document as documentation
from app.openapi.document import problems
from bessemer.contract.llvm_processors import AARCH64, APPLE, RISCV64, X86_64
from bessemer.contract.problem import ErrorCode
from bessemer.contract.service import TargetList
from bessemer.contract.target import PRESETS

router = APIRouter(prefix="/v1/targets", tags=["targets"])

_OTHERS = {"aarch64": AARCH64, "apple": APPLE, "riscv64": RISCV64}
TARGETS = TargetList(
    items=PRESETS,
    processors=X86_64 | {name: tuple(sorted(processors)) for name, processors in _OTHERS.items()},
)


@router.get(
    "",
    summary="List the targets",
    responses=documentation.answer(200, "The targets.", TARGETS) | problems(ErrorCode.REQUEST_INVALID),
)
async def list_targets() -> TargetList:
    """A request names a preset or one of LLVM's processors, or gives LLVM options.

    NVIDIA GPUs (CUDA) are planned.
    """
    return TARGETS
