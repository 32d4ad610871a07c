"""What one run of ``make bench-service`` found."""

from __future__ import annotations

from datetime import datetime
from statistics import median

from pydantic import BaseModel

from benchmarks.machine import Machine
from worker.measure.statistics import percentile


class Spread(BaseModel):
    """Milliseconds of many requests or events."""

    samples: int
    p50_ms: float
    p99_ms: float


class Load(BaseModel):
    """One backend with so many queued jobs, all followers connected throughout.

    Attributes:
        queued: jobs in the queue; those that are followed come on top.
        followers: open event streams, as the app counts them at the end.
        submit_per_second: of the jobs that were submitted last, by ``SUBMITTERS`` clients at once.
        get_one: reading a queued job.
        list_page: reading a page of 50 jobs.
        scrape: reading ``/metrics``.
        metrics_bytes: what such a reading gives.
        memory_mib: resident memory of the app, at the end.
        idle_cores: processor time that the app uses while nothing happens.
        dispatch: from before the request to the handling by a worker that is idle; of a job of the highest
            priority, all others waiting behind it.
        event_at_work: from when an event was recorded until its follower had it; of jobs that tell of their
            progress as often as they may.
        event_after_silence: the same, of the first event of a job that was silent for long.
    """

    queued: int
    followers: int
    submit_per_second: float
    submit: Spread
    get_one: Spread
    list_page: Spread
    scrape: Spread
    metrics_bytes: int
    memory_mib: float
    idle_cores: float
    dispatch: Spread
    event_at_work: Spread
    event_after_silence: Spread


class Backend(BaseModel):
    """One database. ``dispatch_empty`` is into an empty queue, before anybody follows."""

    name: str
    dispatch_empty: Spread
    loads: list[Load]


class ServiceResults(BaseModel):
    """Everything that one run measured.

    Attributes:
        load_before: the machine's load average.
        submissions: of how many jobs at most, the last for each size, the submission was timed.
    """

    machine: Machine
    measured_at: datetime
    load_before: float
    minutes: float
    submissions: int
    backends: list[Backend]


def spread(seconds: list[float]) -> Spread:
    """The median and the 99th percentile of at least one sample."""
    return Spread(
        samples=len(seconds),
        p50_ms=round(1000 * median(seconds), 2),
        p99_ms=round(1000 * percentile(seconds, 99), 2),
    )
