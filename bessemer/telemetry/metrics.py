"""The Prometheus metrics of app and worker. ``docs/observability.md`` lists them from here.

Labels have few values, all known in advance: never an id, a digest, a path from a client, or a tenant.
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
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """One metric. ``buckets`` are the upper bounds of a histogram, in the unit at the end of the name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def counter(self, registry: CollectorRegistry) -> Counter:
        """The metric as a counter."""
        return Counter(self.name, self.help, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """The metric as a gauge."""
        return Gauge(self.name, self.help, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """The metric as a histogram."""
        return Histogram(self.name, self.help, self.labels, registry=registry, buckets=self.buckets)

    def family(self, values: Sequence[tuple[tuple[str, ...], float]] = ()) -> GaugeMetricFamily:
        """The metric with label values and values for one scrape."""
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
    "Whether the database answered this scrape. If not (0), the metrics that come from it are missing.",
)
QUEUE_TASKS = Metric(
    "bessemer_queue_tasks",
    Kind.GAUGE,
    "Tasks that no live worker is running: compilations, inspections and invocations, including those of "
    "lost workers.",
    ("queue",),
)
QUEUE_OLDEST = Metric(
    "bessemer_queue_oldest_seconds",
    Kind.GAUGE,
    "How long the oldest of these tasks has waited, or has been without a heartbeat if it had started; 0 if "
    "there are none.",
    ("queue",),
)
JOBS = Metric(
    "bessemer_jobs",
    Kind.GAUGE,
    "Stored compilations by state. One whose worker was lost stays `running` until another worker ends it.",
    ("state",),
)
MODELS = Metric("bessemer_models", Kind.GAUGE, "Stored models by state.", ("state",))
WORKERS = Metric(
    "bessemer_workers", Kind.GAUGE, "Workers with a heartbeat within `BESSEMER_WORKER_LIVENESS_SECONDS`."
)
STORE_BYTES = Metric(
    "bessemer_store_bytes",
    Kind.GAUGE,
    "Bytes of stored files that the database refers to, each counted once, by kind (`model`, `artifact`, "
    "`invocation` for inputs and outputs).",
    ("kind",),
)
STORE_OBJECTS = Metric("bessemer_store_objects", Kind.GAUGE, "Number of these files.", ("kind",))
WORKERS_LOST = Metric(
    "bessemer_workers_lost_total",
    Kind.COUNTER,
    "Workers whose lease expired (`BESSEMER_WORKER_LOST_SECONDS`), if this program found out first.",
)
ATTEMPTS_LOST = Metric(
    "bessemer_attempts_lost_total",
    Kind.COUNTER,
    "Lost attempts: `worker-lost` (the lease expired, and this program found out first), "
    "`zygote-lost`, `child-killed`, `disk-full`, `fenced` (another worker took over the task, or it "
    "was deleted). Three losses, other than `fenced`, fail a task.",
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
    "Answered requests; `route` is the path in the OpenAPI document, or `unmatched`.",
    ("method", "route", "status"),
)
HTTP_DURATION = Metric(
    "bessemer_http_request_duration_seconds",
    Kind.HISTOGRAM,
    "Time from a request's head to the end of its response, except for event streams.",
    ("method", "route"),
    _LATENCIES,
)
HTTP_IN_PROGRESS = Metric(
    "bessemer_http_requests_in_progress", Kind.GAUGE, "Requests in progress, including event streams."
)
EVENT_FOLLOWERS = Metric("bessemer_event_followers", Kind.GAUGE, "Open event streams.")
UPLOAD_BYTES = Metric(
    "bessemer_upload_bytes_total", Kind.COUNTER, "Bytes of received models, including refused ones."
)

STAGE_DURATION = Metric(
    "bessemer_stage_duration_seconds",
    Kind.HISTOGRAM,
    "Duration of successful stages.",
    ("stage",),
    _DURATIONS,
)
TASKS = Metric(
    "bessemer_tasks_total",
    Kind.COUNTER,
    "Tasks that ended on this worker, by kind (`compile`, `preflight`, `inspect`, …), outcome (`succeeded`, "
    "`failed`, `cancelled`) and [error code](errors.md) (empty if it succeeded).",
    ("kind", "outcome", "code"),
)
TASK_DURATION = Metric(
    "bessemer_task_duration_seconds",
    Kind.HISTOGRAM,
    "Time from the start to the end of a task, with any outcome.",
    ("kind",),
    _DURATIONS,
)
TASKS_IN_PROGRESS = Metric(
    "bessemer_tasks_in_progress", Kind.GAUGE, "Tasks running on this worker.", ("kind",)
)
CANDIDATES = Metric("bessemer_candidates_measured_total", Kind.COUNTER, "Trials measured by searches.")
OBJECTS = Metric(
    "bessemer_function_objects_total",
    Kind.COUNTER,
    "Objects of functions that compilations took from the worker's cache (`cached`), or lacked (`missing`).",
    ("outcome",),
)
PEAK_MEMORY = Metric(
    "bessemer_job_peak_memory_bytes",
    Kind.HISTOGRAM,
    "Peak memory of all processes of a job, or of the probe at startup.",
    (),
    _MEMORY,
)
ZYGOTE_RESTARTS = Metric(
    "bessemer_zygote_restarts_total", Kind.COUNTER, "Zygotes started to replace one that ended."
)
SANDBOX_KILLS = Metric(
    "bessemer_sandbox_kills_total",
    Kind.COUNTER,
    "Tasks ended by a limit, by the limit's [error code](errors.md).",
    ("limit",),
)

DATABASE_METRICS = (QUEUE_TASKS, QUEUE_OLDEST, JOBS, MODELS, WORKERS, STORE_BYTES, STORE_OBJECTS)
"""The metrics that a scrape reads from the database."""

APP = (
    BUILD,
    DATABASE_UP,
    *DATABASE_METRICS,
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
    OBJECTS,
    PEAK_MEMORY,
    WORKERS_LOST,
    ATTEMPTS_LOST,
    ATTEMPTS_POSTPONED,
    ZYGOTE_RESTARTS,
    SANDBOX_KILLS,
)


def new_registry() -> CollectorRegistry:
    """A registry with the metrics of the process."""
    # each counter and histogram would otherwise have one more, useless series
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    BUILD.gauge(registry).labels(version("bessemer")).set(1)
    return registry


class LossMetrics:
    """The lost workers and attempts that one program found."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._workers = WORKERS_LOST.counter(registry)
        self._attempts = ATTEMPTS_LOST.counter(registry)
        for kind in TaskKind:
            for why in Loss:
                self._attempts.labels(kind, why)

    def worker(self, running: Iterable[TaskKind]) -> None:
        """Count a worker that was lost while running these tasks."""
        self._workers.inc()
        for kind in running:
            self.attempt(kind, Loss.WORKER_LOST)

    def attempt(self, kind: TaskKind, why: Loss) -> None:
        """Count a lost attempt."""
        self._attempts.labels(kind, why).inc()
