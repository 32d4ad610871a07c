"""A worker's HTTP port: its metrics, and ``/readyz``, which says whether its lease holds."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server

from worker.errors import MetricsPortError
from worker.supervisor.heartbeat import LeaseHealth

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

READY_PATH = "/readyz"

log = logging.getLogger(__name__)


@contextmanager
def serve_health(
    registry: CollectorRegistry, lease: LeaseHealth, host: str, port: int | None
) -> Iterator[None]:
    """Serve from a thread while the context lasts; do nothing without a port.

    Raises:
        MetricsPortError: the port cannot be opened.
    """
    if port is None:
        yield
        return
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise MetricsPortError(f"metrics cannot be served at {host}:{port}: {error.strerror}") from error
    metrics = server.get_app()
    assert metrics is not None
    server.set_app(_with_readiness(metrics, lease))
    log.info("serving metrics at http://%s:%d/metrics", host, server.server_port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _with_readiness(metrics: "WSGIApplication", lease: LeaseHealth) -> "WSGIApplication":
    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["PATH_INFO"] != READY_PATH:
            return metrics(environ, start_response)
        fault = lease.fault()
        status = HTTPStatus.OK if fault is None else HTTPStatus.SERVICE_UNAVAILABLE
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{fault or 'ready'}\n".encode()]

    return answer
