"""The targets to compile for."""

from fastapi import APIRouter

from app.openapi import document as documentation
from app.openapi.document import problems
from app.service import ServiceDep
from bessemer.contract.device import platforms_of
from bessemer.contract.fleet import TargetList, offered
from bessemer.contract.llvm_processors import AARCH64, APPLE, RISCV64, X86_64
from bessemer.contract.problem import ErrorCode
from bessemer.contract.target import PRESETS

router = APIRouter(prefix="/v1/targets", tags=["targets"])

_OTHERS = {"aarch64": AARCH64, "apple": APPLE, "riscv64": RISCV64}
PROCESSORS = X86_64 | {name: tuple(sorted(processors)) for name, processors in _OTHERS.items()}
EXAMPLE = TargetList(items=offered(PRESETS, documentation.WORKERS.items), processors=PROCESSORS)


@router.get(
    "",
    summary="List the targets",
    responses=documentation.answer(200, "The targets.", EXAMPLE) | problems(ErrorCode.REQUEST_INVALID),
)
def list_targets(service: ServiceDep) -> TargetList:
    """A request names a preset or one of LLVM's processors, or gives LLVM options.

    For each preset, `fleet` says how the live workers can build, verify and measure libraries for it now:
    natively, on a device, by emulation, or not at all. A worker builds for NVIDIA GPUs if it has the CUDA
    compilers, and verifies and measures if it has a GPU that runs the code.
    """
    on_devices = platforms_of(service.data.devices.live())
    found = offered(PRESETS, service.live_workers(), on_devices)
    return TargetList(items=found, processors=PROCESSORS)
