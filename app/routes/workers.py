"""Live workers."""

from fastapi import APIRouter

from app.openapi import document as documentation
from app.openapi.document import problems
from app.service import OperatorDep
from bessemer.contract.problem import ErrorCode
from bessemer.contract.service import WorkerList

router = APIRouter(prefix="/v1/workers", tags=["workers"])


@router.get(
    "",
    summary="List the workers",
    responses=documentation.answer(200, "The workers.", documentation.WORKERS)
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_workers(service: OperatorDep) -> WorkerList:
    """List live workers, each with its tasks as of `seen_at`.

    Only a worker whose processor can run the target's code takes a compilation. `capability` says what its
    processor cannot run.
    """
    return WorkerList(items=service.store.workers.live(service.settings.worker_liveness_seconds))
