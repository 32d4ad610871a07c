"""What one run of ``make bench-service`` found."""

from __future__ import annotations

from datetime import datetime
from statistics import median

from pydantic import BaseModel

from benchmarks.machine import Machine
from worker.statistics import percentile


class Spread(BaseModel):
    """Milliseconds of many requests."""

    samples: int
    p50_ms: float
    p99_ms: float


class Load(BaseModel):
    """One backend with so many queued jobs.

    Attributes:
        queued: jobs in the queue.
        submit_per_second: of the jobs that were submitted last, by ``SUBMITTERS`` clients at once.
        get_one: reading a queued job, with all followers connected.
        list_page: reading a page of 50 jobs, with all followers connected.
        memory_mib: resident memory of the app, with all followers connected.
        idle_cores: processor time that the app uses while 100 clients follow and nothing happens.
        dispatch: from before the request to the handling by a worker that is idle; of a job of the highest
            priority, all others waiting behind it.
    """

    queued: int
    submit_per_second: float
    submit: Spread
    get_one: Spread
    list_page: Spread
    memory_mib: float
    idle_cores: float
    dispatch: Spread


class Backend(BaseModel):
    """One database. ``dispatch_empty`` is into an empty queue."""

    name: str
    dispatch_empty: Spread
    loads: list[Load]


class ServiceResults(BaseModel):
    """Everything that one run measured; ``load_before`` is the machine's load average."""

    machine: Machine
    measured_at: datetime
    load_before: float
    minutes: float
    followers: int
    backends: list[Backend]


def spread(seconds: list[float]) -> Spread:
    """The median and the 99th percentile of at least one sample."""
    return Spread(
        samples=len(seconds),
        p50_ms=round(1000 * median(seconds), 2),
        p99_ms=round(1000 * percentile(seconds, 99), 2),
    )
