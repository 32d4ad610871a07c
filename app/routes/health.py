"""Health: whether the process lives, and whether the service can take requests."""

from fastapi import APIRouter

from app.documentation import problems
from app.problems import ProblemError
from app.readiness import readiness
from app.service import ServiceDep
from bessemer.contract.base import Document
from bessemer.contract.problem import ErrorCode, FieldError, make_problem
from bessemer.contract.service import Readiness

router = APIRouter(tags=["health"])


class Health(Document):
    """The process answers."""

    status: str = "ok"


@router.get("/healthz", summary="Whether the process lives", responses=problems())
@router.head("/healthz", include_in_schema=False)
async def healthz() -> Health:
    """Touches neither the database nor the store."""
    return Health()


@router.get("/readyz", summary="Whether requests are taken", responses=problems())
@router.head("/readyz", include_in_schema=False)
def readyz(service: ServiceDep) -> Readiness:
    """503 only where the database or the artifact store cannot be reached.

    `warnings` name what is short of the service's promises: a sandbox with layers lost, or no worker.
    """
    state = readiness(service)
    if state.ready:
        return state
    down = [name for name, up in (("database", state.database), ("store", state.store)) if not up]
    errors = tuple(FieldError(field=name, message="cannot be reached") for name in down)
    detail = f"Cannot be reached: {', '.join(down)}."
    raise ProblemError(make_problem(ErrorCode.UNAVAILABLE, detail, errors=errors))
