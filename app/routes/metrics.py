"""The app's metrics, for Prometheus."""

from functools import partial

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from app.openapi.document import described, problems
from app.service import OperatorDep

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    summary="Get metrics in Prometheus's text format",
    response_class=Response,
    responses=problems()
    | described(200, "Every metric.", {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}),
)
@router.head("/metrics", include_in_schema=False)
async def read_metrics(service: OperatorDep) -> Response:
    """Return metrics on requests, queues, compilations, workers and storage.

    If the database is unavailable, `bessemer_database_up` is 0 and the metrics from the database are missing.
    """
    statistics = partial(service.store.statistics, service.settings.worker_liveness_seconds)
    return Response(await service.metrics.page(statistics), media_type=CONTENT_TYPE_LATEST)
