"""Health: whether the process lives, and whether the service can take requests."""

from fastapi import APIRouter, Response
from pydantic import Field

from app.http.problems import RETRY_AFTER_SECONDS, UNAVAILABLE_STATUS
from app.openapi import document as documentation
from app.openapi.document import problems
from app.readiness import NO_WORKER, brief, readiness
from app.service import ServiceDep
from bessemer.contract.base import Document
from bessemer.contract.service import Readiness

router = APIRouter(tags=["health"])

READY = Readiness(
    ready=True, database=True, store=True, workers=tuple(map(brief, documentation.WORKERS.items))
)
AWAY = Readiness(ready=False, database=True, store=False, workers=(), warnings=(NO_WORKER,))


class Health(Document):
    """The process answers."""

    status: str = Field(default="ok", description="Nothing else: a process that is not does not answer.")


@router.get(
    "/healthz",
    summary="Whether the process lives",
    responses=documentation.answer(200, "It does.", Health()) | problems(),
)
@router.head("/healthz", include_in_schema=False)
async def healthz() -> Health:
    """Touches neither the database nor the store."""
    return Health()


@router.get(
    "/readyz",
    summary="Whether requests are taken",
    responses=problems()
    | documentation.answer(200, "They are.", READY)
    | documentation.answer(
        UNAVAILABLE_STATUS,
        "The database or the artifact store cannot be reached: the fields say which.",
        AWAY,
    ),
)
@router.head("/readyz", include_in_schema=False)
def readyz(service: ServiceDep, response: Response) -> Readiness:
    """503 only where the database or the artifact store cannot be reached.

    Then, too, the body is this document, the one exception to the rule that errors are problems.
    `warnings` name what is short of the service's promises: a sandbox with layers lost, or no worker.
    """
    state = readiness(service)
    if not state.ready:
        response.status_code = UNAVAILABLE_STATUS
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return state
