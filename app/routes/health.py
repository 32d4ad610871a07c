"""Health checks: liveness and readiness."""

from fastapi import APIRouter, Response
from pydantic import Field

from app.http.problems import RETRY_AFTER_SECONDS, UNAVAILABLE_STATUS
from app.openapi import document as documentation
from app.openapi.document import problems
from app.readiness import NO_WORKER, brief, readiness
from app.service import OperatorDep
from bessemer.contract.base import Document
from bessemer.contract.service import Readiness

router = APIRouter(tags=["health"])

READY = Readiness(
    ready=True, database=True, store=True, workers=tuple(map(brief, documentation.WORKERS.items))
)
AWAY = Readiness(ready=False, database=True, store=False, workers=(), warnings=(NO_WORKER,))


class Health(Document):
    """The process is alive."""

    status: str = Field(default="ok", description="Always `ok`.")


@router.get(
    "/healthz",
    summary="Check liveness",
    responses=documentation.answer(200, "The process is alive.", Health()) | problems(),
)
@router.head("/healthz", include_in_schema=False)
async def healthz() -> Health:
    """Does not use the database or the artifact store."""
    return Health()


@router.get(
    "/readyz",
    summary="Check readiness",
    responses=problems()
    | documentation.answer(200, "The service is ready.", READY)
    | documentation.answer(
        UNAVAILABLE_STATUS,
        "The database or the artifact store cannot be reached; the fields say which.",
        AWAY,
    ),
)
@router.head("/readyz", include_in_schema=False)
def readyz(service: OperatorDep, response: Response) -> Readiness:
    """Return 503 only if the database or the artifact store cannot be reached.

    Even then, the body is this document: the only error response that is not a problem. `warnings` lists
    degraded conditions, such as a sandbox with missing layers, or no live worker.
    """
    state = readiness(service)
    if not state.ready:
        response.status_code = UNAVAILABLE_STATUS
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return state
