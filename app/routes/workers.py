"""The workers that are alive."""

from fastapi import APIRouter

from app.openapi import document as documentation
from app.openapi.document import problems
from app.service import ServiceDep
from bessemer.contract.problem import ErrorCode
from bessemer.contract.service import WorkerList

router = APIRouter(prefix="/v1/workers", tags=["workers"])


@router.get(
    "",
    summary="List the workers",
    responses=documentation.answer(200, "The workers.", documentation.WORKERS)
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_workers(service: ServiceDep) -> WorkerList:
    """Those heard of lately, each with what it has in hand as of `seen_at`.

    A compilation is taken only by a worker whose processor runs the target's code: `capability` says what
    it does not run.
    """
    return WorkerList(items=service.store.workers.live(service.settings.worker_liveness_seconds))
