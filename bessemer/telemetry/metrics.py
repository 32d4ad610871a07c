"""Every metric of app and worker, in Prometheus's terms. ``docs/observability.md`` has them from here.

Labels have few values, all known beforehand: never an id, a digest, a path that a client chose, or a tenant.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector

from bessemer.contract.queue import Loss, TaskKind


class Kind(StrEnum):
    """What Prometheus makes of a metric's values."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """One metric. ``buckets`` are the upper bounds of a histogram, in the unit that the name ends with."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def counter(self, registry: CollectorRegistry) -> Counter:
        """The metric, to be counted up."""
        return Counter(self.name, self.help, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """The metric, to be set."""
        return Gauge(self.name, self.help, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """The metric, to be given observations."""
        return Histogram(self.name, self.help, self.labels, registry=registry, buckets=self.buckets)

    def family(self, values: Sequence[tuple[tuple[str, ...], float]] = ()) -> GaugeMetricFamily:
        """The metric with values that were found out for one scrape, each with its labels'."""
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in values:
            family.add_metric(labels, value)
        return family


_LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DURATIONS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 21600.0)
_MEMORY = tuple(float(1 << exponent) for exponent in range(27, 38))

BUILD = Metric("bessemer_build_info", Kind.GAUGE, "Always 1; the label is Bessemer's version.", ("version",))

DATABASE_UP = Metric(
    "bessemer_database_up",
    Kind.GAUGE,
    "Whether the database answered this scrape; where it did not (0), the metrics that are read from it are "
    "missing.",
)
QUEUE_TASKS = Metric(
    "bessemer_queue_tasks",
    Kind.GAUGE,
    "Tasks that no live worker has in hand: compilations, inspections and invocations, those of lost workers "
    "too.",
    ("queue",),
)
QUEUE_OLDEST = Metric(
    "bessemer_queue_oldest_seconds",
    Kind.GAUGE,
    "For how long the oldest of them has waited, one that was begun since it was last heard of; 0 without "
    "any.",
    ("queue",),
)
JOBS = Metric(
    "bessemer_jobs",
    Kind.GAUGE,
    "Compilations that are kept, by state; one whose worker was lost is `running` until another ends it.",
    ("state",),
)
MODELS = Metric("bessemer_models", Kind.GAUGE, "Models that are kept, by state.", ("state",))
WORKERS = Metric(
    "bessemer_workers",
    Kind.GAUGE,
    "Workers that were heard of within `BESSEMER_WORKER_LIVENESS_SECONDS`.",
)
STORE_BYTES = Metric(
    "bessemer_store_bytes",
    Kind.GAUGE,
    "Bytes of the stored files that the tables name, each counted once, by kind (`model`, `artifact`, "
    "`invocation`: inputs and outputs).",
    ("kind",),
)
STORE_OBJECTS = Metric("bessemer_store_objects", Kind.GAUGE, "How many files those are.", ("kind",))
WORKERS_LOST = Metric(
    "bessemer_workers_lost_total",
    Kind.COUNTER,
    "Workers whose lease ran out (`BESSEMER_WORKER_LOST_SECONDS`), as this program was the first to find.",
)
ATTEMPTS_LOST = Metric(
    "bessemer_attempts_lost_total",
    Kind.COUNTER,
    "Attempts that came to nothing: `worker-lost` (its lease ran out, as this program was first to find), "
    "`zygote-lost`, `child-killed`, `disk-full`, `fenced` (another worker took the task meanwhile, or it was "
    "deleted). But for the last, three of them end a task.",
    ("kind", "reason"),
)
ATTEMPTS_POSTPONED = Metric(
    "bessemer_attempts_postponed_total",
    Kind.COUNTER,
    "Attempts that this worker put off, which costs the task nothing: `store-away`, `disk-full`, "
    "`zygote-lost` (it does not start).",
    ("kind", "reason"),
)
HTTP_REQUESTS = Metric(
    "bessemer_http_requests_total",
    Kind.COUNTER,
    "Requests that were answered; `route` is the path as in the OpenAPI document, or `unmatched`.",
    ("method", "route", "status"),
)
HTTP_DURATION = Metric(
    "bessemer_http_request_duration_seconds",
    Kind.HISTOGRAM,
    "From a request's head to its answer's end; event streams, which last as long as a job, are left out.",
    ("method", "route"),
    _LATENCIES,
)
HTTP_IN_PROGRESS = Metric(
    "bessemer_http_requests_in_progress",
    Kind.GAUGE,
    "Requests that are being answered, event streams included.",
)
EVENT_FOLLOWERS = Metric("bessemer_event_followers", Kind.GAUGE, "Open event streams.")
UPLOAD_BYTES = Metric(
    "bessemer_upload_bytes_total", Kind.COUNTER, "Bytes of models that were received, refused ones included."
)

STAGE_DURATION = Metric(
    "bessemer_stage_duration_seconds",
    Kind.HISTOGRAM,
    "Stages of the pipeline that ended well.",
    ("stage",),
    _DURATIONS,
)
TASKS = Metric(
    "bessemer_tasks_total",
    Kind.COUNTER,
    "Tasks that ended here, by kind (`compile`, `preflight`, `inspect`, …), outcome (`succeeded`, `failed`, "
    "`cancelled`) and the [problem's code](errors.md) (empty where it succeeded).",
    ("kind", "outcome", "code"),
)
TASK_DURATION = Metric(
    "bessemer_task_duration_seconds",
    Kind.HISTOGRAM,
    "From taking a task to letting go of it, however it ended.",
    ("kind",),
    _DURATIONS,
)
TASKS_IN_PROGRESS = Metric("bessemer_tasks_in_progress", Kind.GAUGE, "Tasks that run here.", ("kind",))
CANDIDATES = Metric("bessemer_candidates_measured_total", Kind.COUNTER, "Trials of the search.")
PEAK_MEMORY = Metric(
    "bessemer_job_peak_memory_bytes",
    Kind.HISTOGRAM,
    "The most memory that all processes of a job, or of the probe at the start, were seen to use together.",
    (),
    _MEMORY,
)
ZYGOTE_RESTARTS = Metric(
    "bessemer_zygote_restarts_total", Kind.COUNTER, "Zygotes that were started in place of one that ended."
)
SANDBOX_KILLS = Metric(
    "bessemer_sandbox_kills_total",
    Kind.COUNTER,
    "Tasks that a limit ended, by the [code](errors.md) of the limit.",
    ("limit",),
)

CENSUS = (QUEUE_TASKS, QUEUE_OLDEST, JOBS, MODELS, WORKERS, STORE_BYTES, STORE_OBJECTS)
"""What is read from the tables at a scrape."""

APP = (
    BUILD,
    DATABASE_UP,
    *CENSUS,
    WORKERS_LOST,
    ATTEMPTS_LOST,
    HTTP_REQUESTS,
    HTTP_DURATION,
    HTTP_IN_PROGRESS,
    EVENT_FOLLOWERS,
    UPLOAD_BYTES,
)
WORKER = (
    BUILD,
    STAGE_DURATION,
    TASKS,
    TASK_DURATION,
    TASKS_IN_PROGRESS,
    CANDIDATES,
    PEAK_MEMORY,
    WORKERS_LOST,
    ATTEMPTS_LOST,
    ATTEMPTS_POSTPONED,
    ZYGOTE_RESTARTS,
    SANDBOX_KILLS,
)


def new_registry() -> CollectorRegistry:
    """A program's registry, with what is known of every process."""
    # with them every counter and histogram would have one more series, of use to nobody who reads this form
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    BUILD.gauge(registry).labels(version("bessemer")).set(1)
    return registry


class LossMetrics:
    """The losses that one program found."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._workers = WORKERS_LOST.counter(registry)
        self._attempts = ATTEMPTS_LOST.counter(registry)
        for kind in TaskKind:
            for why in Loss:
                self._attempts.labels(kind, why)

    def worker(self, in_hand: Iterable[TaskKind]) -> None:
        """Count a worker that was lost with these tasks in hand."""
        self._workers.inc()
        for kind in in_hand:
            self.attempt(kind, Loss.WORKER_LOST)

    def attempt(self, kind: TaskKind, why: Loss) -> None:
        """Count an attempt that came to nothing."""
        self._attempts.labels(kind, why).inc()
