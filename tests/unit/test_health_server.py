"""A worker's HTTP responses."""

import logging
import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry

from worker.errors import MetricsPortError
from worker.supervisor.health_server import serve_health
from worker.supervisor.heartbeat import LeaseHealth
from worker.supervisor.metrics import WorkerMetrics


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_serves_its_metrics_until_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serve_health(WorkerMetrics().registry, LeaseHealth(10), "127.0.0.1", 0):
        address = caplog.messages[-1].rpartition(" ")[2]
        assert "bessemer_build_info" in httpx.get(address).text
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_a_worker_is_ready_while_its_lease_holds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    lease = LeaseHealth(10, clock)
    with serve_health(CollectorRegistry(), lease, "127.0.0.1", 0):
        address = httpx.URL(caplog.messages[-1].rpartition(" ")[2]).join("/readyz")
        before = httpx.get(address)
        lease.renew()
        held = httpx.get(address)
        clock.now += 11
        after = httpx.get(address)
    assert [answer.status_code for answer in (before, held, after)] == [503, 200, 503]
    assert before.text.startswith("starting") and after.text.startswith("lost")


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(MetricsPortError, match=f"127.0.0.1:{port}"),
            serve_health(CollectorRegistry(), LeaseHealth(10), "127.0.0.1", port),
        ):
            pass
