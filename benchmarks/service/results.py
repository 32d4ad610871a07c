"""The results of ``make bench-service``."""

from __future__ import annotations

from datetime import datetime
from statistics import median

from pydantic import BaseModel

from benchmarks.machine import Machine
from worker.measure.statistics import percentile


class Spread(BaseModel):
    """Milliseconds of requests or events."""

    samples: int
    p50_ms: float
    p99_ms: float


class Load(BaseModel):
    """One backend with a queue of one length.

    Attributes:
        queued: jobs in the queue, without the followed ones.
        followers: open event streams at the end, as the app counts them.
        submit_per_second: rate of the last submissions, by ``SUBMITTERS`` concurrent clients.
        get_one: reading a queued job.
        list_page: reading a page of 50 jobs.
        scrape: reading ``/metrics``.
        metrics_bytes: the size of ``/metrics``.
        memory_mib: resident memory of the app, at the end.
        idle_cores: processor time of the idle app.
        dispatch: from the request until an idle worker starts the job, for a job of the highest priority.
        event_at_work: delay of events of jobs with the maximum progress rate.
        event_after_silence: delay of the first event of a long silent job.
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
    """One database. ``dispatch_empty`` is measured with an empty queue, without followers."""

    name: str
    dispatch_empty: Spread
    loads: list[Load]


class ServiceResults(BaseModel):
    """The results of one run.

    Attributes:
        load_before: the machine's load average.
        submissions: how many submissions per size were timed, at most.
    """

    machine: Machine
    measured_at: datetime
    load_before: float
    minutes: float
    submissions: int
    backends: list[Backend]


def spread(seconds: list[float]) -> Spread:
    """Summarize at least one sample."""
    return Spread(
        samples=len(seconds),
        p50_ms=round(1000 * median(seconds), 2),
        p99_ms=round(1000 * percentile(seconds, 99), 2),
    )
