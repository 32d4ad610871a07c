"""Every metric is declared in one place, and follows Prometheus's conventions."""

from collections.abc import Iterable

import pytest
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from app.observability.metrics import AppMetrics, StatisticsCollector
from bessemer.contract.job import JobState
from bessemer.contract.model import ModelState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.stage import Stage
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue_port import Loss, PostponedError, Postponement, QueueName, TaskKind
from bessemer.store.rows.totals import Backlog, Statistics, StoredFiles, StoredKind
from bessemer.telemetry import metrics
from bessemer.telemetry.metrics import Kind, Metric
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.usage import Usage

EVERY = tuple({metric.name: metric for metric in (*metrics.APP, *metrics.WORKER)}.values())
BASE_UNITS = ("_seconds", "_bytes")
NOTHING = Statistics(
    backlogs=dict.fromkeys(QueueName, Backlog()),
    jobs=dict.fromkeys(JobState, 0),
    models=dict.fromkeys(ModelState, 0),
    workers=0,
    stored=dict.fromkeys(StoredKind, StoredFiles(0, 0)),
)


def own_names(families: Iterable[Family]) -> set[str]:
    """Names as declared: the library drops a counter's suffix."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families
        if family.name.startswith("bessemer_")
    }


def test_the_app_has_its_declared_metrics() -> None:
    page = [*AppMetrics().registry.collect(), *StatisticsCollector(NOTHING).collect()]
    assert own_names(page) == {metric.name for metric in metrics.APP}


def test_a_worker_has_its_declared_metrics() -> None:
    assert own_names(WorkerMetrics().registry.collect()) == {metric.name for metric in metrics.WORKER}


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_metric_names_follow_prometheus(metric: Metric) -> None:
    assert metric.name.startswith("bessemer_")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    if metric.kind is Kind.HISTOGRAM:
        assert metric.name.endswith(BASE_UNITS)


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_no_label_identifies_anything(metric: Metric) -> None:
    known = {
        "version",
        "queue",
        "state",
        "kind",
        "method",
        "route",
        "status",
        "stage",
        "outcome",
        "code",
        "limit",
        "reason",
    }
    assert set(metric.labels) <= known


def value(counted: WorkerMetrics, name: str, **labels: str) -> float:
    return counted.registry.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(
    ("code", "outcome", "kills"),
    [
        (None, "succeeded", 0),
        (ErrorCode.CAPTURE_FAILED, "failed", 0),
        (ErrorCode.INTERNAL, "failed", 0),
        (ErrorCode.CANCELLED, "cancelled", 0),
        (ErrorCode.LIMIT_MEMORY, "failed", 1),
        (ErrorCode.TIMEOUT, "failed", 1),
    ],
)
def test_a_task_is_counted_by_outcome_and_code(code: ErrorCode | None, outcome: str, kills: int) -> None:
    counted = WorkerMetrics()
    counted.ended(TaskKind.COMPILE, make_problem(code, "") if code else None)
    name = code.value if code else ""
    assert value(counted, "bessemer_tasks_total", kind="compile", outcome=outcome, code=name) == 1
    assert value(counted, "bessemer_sandbox_kills_total", limit=name) == kills


def test_a_task_is_in_progress_until_it_ends_in_any_way() -> None:
    counted = WorkerMetrics()
    with pytest.raises(KeyError), counted.task(TaskKind.INSPECT):
        assert value(counted, "bessemer_tasks_in_progress", kind="inspect") == 1
        raise KeyError
    assert value(counted, "bessemer_tasks_in_progress", kind="inspect") == 0
    assert value(counted, "bessemer_task_duration_seconds_count", kind="inspect") == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PostponedError(Postponement.DISK_FULL, "full"), "disk-full"),
        (PostponedError(Postponement.ZYGOTE_LOST, "no zygote"), "zygote-lost"),
        (StoreUnavailableError("away"), "store-away"),
    ],
    ids=str,
)
def test_a_postponed_task_is_counted_by_its_reason(error: Exception, reason: str) -> None:
    counted = WorkerMetrics()
    with pytest.raises(type(error)), counted.task(TaskKind.COMPILE):
        raise error
    assert value(counted, "bessemer_attempts_postponed_total", kind="compile", reason=reason) == 1
    assert value(counted, "bessemer_attempts_lost_total", kind="compile", reason=reason) == 0


def test_a_lost_worker_is_counted_with_its_attempts_in_flight() -> None:
    counted = WorkerMetrics()
    counted.losses.worker(())
    counted.losses.worker((TaskKind.COMPILE, TaskKind.INVOKE))
    assert value(counted, "bessemer_workers_lost_total") == 2
    for kind, count in (("compile", 1), ("invoke", 1), ("inspect", 0)):
        assert value(counted, "bessemer_attempts_lost_total", kind=kind, reason="worker-lost") == count


@pytest.mark.parametrize("kind", TaskKind)
def test_counters_of_lost_and_postponed_tasks_start_at_zero(kind: TaskKind) -> None:
    sample = WorkerMetrics().registry.get_sample_value
    for reason in Loss:
        assert sample("bessemer_attempts_lost_total", {"kind": kind, "reason": reason}) == 0
    for reason in Postponement:
        assert sample("bessemer_attempts_postponed_total", {"kind": kind, "reason": reason}) == 0


def test_a_jobs_stages_and_trials_are_counted_but_its_times_and_huge_counts_are_not() -> None:
    counted = WorkerMetrics()
    with counted.job() as meter:
        meter.stage_started(Stage.TUNE)
        for done in (4, 2, 16, 1 << 53):
            meter.progress(Stage.TUNE, done, 16, "")
        meter.progress(Stage.BENCHMARK, 400, 400, "")
        meter.stage_finished(Stage.TUNE, 1e300)
    assert value(counted, "bessemer_candidates_measured_total") == 100_000
    assert value(counted, "bessemer_stage_duration_seconds_count", stage="tune") == 1
    assert value(counted, "bessemer_stage_duration_seconds_sum", stage="tune") < 60


def test_a_jobs_peak_memory_is_kept() -> None:
    counted = WorkerMetrics()
    with counted.job() as meter:
        for memory in (10, 300, 20):
            meter.used(Usage(memory, 0, 0, 0, 0.0, 0.0))
    assert value(counted, "bessemer_job_peak_memory_bytes_sum") == 300


def test_the_memory_of_the_workers_own_jobs_is_left_out() -> None:
    counted = WorkerMetrics()
    with counted.job(records_memory=False) as meter:
        meter.used(Usage(300, 0, 0, 0, 0.0, 0.0))
    assert value(counted, "bessemer_job_peak_memory_bytes_count") == 0


async def test_the_metrics_page_is_prometheus_text() -> None:
    page = await AppMetrics().page(lambda: NOTHING)
    families = {family.name: family for family in text_string_to_metric_families(page.decode())}
    assert families["bessemer_database_up"].samples[0].value == 1
    assert {sample.labels["state"] for sample in families["bessemer_jobs"].samples} == set(JobState)
