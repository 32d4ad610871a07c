"""The worker as a process: what it refuses to start with, and what outlives its death."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from worker_process import LEASE_SECONDS, PLAINLY, WITHOUT_LANDLOCK, WorkerSetup, setup
from worker_samples import WAIT_SECONDS, groups_noted, members, submit, upload, wait_until

from benchmarks.soak.audit import event_faults
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.stage import Stage
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue.reaper import Leases, Reaper
from bessemer.store.queue_port import Task
from examples.local_postgresql import LocalPostgresql, postgresql_server
from tests.integration.otlp_collector import Collector, collecting
from tests.tenant_data import own, started
from worker.supervisor.zygote_handle import CHECKOUT

OUTAGE_SECONDS = 3 * LEASE_SECONDS


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def database() -> Iterator[LocalPostgresql]:
    with postgresql_server() as server:
        yield server


@pytest.fixture(scope="module")
def prepared(
    collector: Collector, database: LocalPostgresql, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerSetup]:
    folder = tmp_path_factory.mktemp("prepared")
    with setup(folder, collector.environment, database.url) as prepared:
        yield prepared


@pytest.fixture(scope="module")
def succession(prepared: WorkerSetup, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Succession"]:
    """A worker that was killed while it ran a job, and another one, which has done the job; no app runs."""
    digest = upload(prepared.store, tmp_path_factory.mktemp("model"), "import time; time.sleep(1)")
    task = submit(prepared.store, "survivor", digest)
    prepared.queue.enqueue(task)

    def row() -> Compilation:
        row = own(prepared.store).jobs.get(task.id)
        assert row is not None
        return row

    with prepared.worker(worker_id="killed") as killed:
        wait_until(lambda: row().stage is not None)
        groups = groups_noted(prepared.place)
        killed.kill()
    with prepared.worker(worker_id="successor") as successor:
        wait_until(lambda: row().state.final)
        yield Succession(row(), groups, successor)


class Succession:
    """The job, the groups that the killed worker ran, and its successor's process."""

    def __init__(
        self, job: Compilation, groups: tuple[int, ...], successor: "subprocess.Popen[bytes]"
    ) -> None:
        self.job = job
        self.groups = groups
        self.successor = successor
        self.process = Path(f"/proc/{successor.pid}")


def children(process: Path) -> list[str]:
    found: list[str] = []
    for thread in (process / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # threads come and go
            found += (thread / "children").read_text().split()
    return found


def test_a_killed_workers_job_is_done_by_another_one(prepared: WorkerSetup, succession: Succession) -> None:
    job = succession.job
    assert (job.state, job.attempt, job.lost_attempts) == (JobState.SUCCEEDED, 2, 1)
    assert (job.worker, job.verified) == ("successor", True)
    assert event_faults(own(prepared.store).jobs.events_after(job.id, 0), job.state) == []
    assert [worker.id for worker in prepared.store.workers.live(3600)] == ["successor"]


def test_nothing_of_a_killed_worker_is_left(prepared: WorkerSetup, succession: Succession) -> None:
    assert len(succession.groups) == 1
    assert members(succession.groups[0]) == 0
    wait_until(lambda: not tuple((prepared.place / "jobs").iterdir()))
    assert not groups_noted(prepared.place)


def test_the_supervisors_only_child_is_the_zygote_which_has_one_thread(succession: Succession) -> None:
    (zygote,) = children(succession.process)
    assert "worker.job.zygote" in Path(f"/proc/{zygote}/cmdline").read_text().split("\0")
    assert len(tuple(Path(f"/proc/{zygote}/task").iterdir())) == 1


def test_the_supervisor_maps_neither_torch_nor_tvm(succession: Succession) -> None:
    (zygote,) = children(succession.process)
    compilers = ("libtorch", "libtvm")
    assert all(name in Path(f"/proc/{zygote}/maps").read_text() for name in compilers)
    assert not any(name in (succession.process / "maps").read_text() for name in compilers)


def scraped(address: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, these in the order of the labels' names."""
    page = httpx.get(address, timeout=WAIT_SECONDS).raise_for_status().text
    return {
        (sample.name, *(text for _, text in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_a_workers_metrics_tell_of_its_jobs(prepared: WorkerSetup, succession: Succession) -> None:
    announced = re.search(r"serving metrics at (\S+)", prepared.log.read_text())
    assert announced is not None
    address = announced[1]
    wait_until(lambda: ("bessemer_tasks_total", "", "compile", "succeeded") in scraped(address))
    samples = scraped(address)
    assert all(samples["bessemer_stage_duration_seconds_count", stage] == 1 for stage in Stage)
    assert samples["bessemer_zygote_restarts_total",] == 0
    assert samples["bessemer_workers_lost_total",] == 1
    assert samples["bessemer_attempts_lost_total", "compile", "worker-lost"] == 1


def test_the_log_names_the_job_that_went_to_another_worker(
    prepared: WorkerSetup, succession: Succession
) -> None:
    handed_over = rf"compile:{succession.job.id} goes to another worker \[(.+)\]"
    said = re.search(handed_over, prepared.log.read_text())
    assert said is not None
    assert said[1] == f"worker=killed task=compile job={succession.job.id}"


def test_a_workers_spans_have_every_stage_of_the_job(collector: Collector, succession: Succession) -> None:
    wait_until(lambda: any(span.name == "job" for span in collector.spans))
    (job,) = (span for span in collector.spans if span.name == "job")
    stages = [span.name for span in collector.spans if span.parent == job.id]
    assert sorted(stages) == sorted(Stage)
    assert (job.attributes["bessemer.job"], job.attributes["bessemer.attempt"]) == (succession.job.id, 2)


@contextmanager
def stopped(database: LocalPostgresql) -> Iterator[None]:
    database.stop()
    try:
        yield
    finally:
        database.start()


@contextmanager
def readonly(database: LocalPostgresql) -> Iterator[None]:
    database.allow_writes(False)
    try:
        yield
    finally:
        database.allow_writes(True)


@pytest.mark.parametrize("outage", [stopped, readonly])
def test_a_worker_outlasts_a_database_that_fails_for_longer_than_its_lease(
    prepared: WorkerSetup,
    succession: Succession,
    database: LocalPostgresql,
    tmp_path: Path,
    outage: Callable[[LocalPostgresql], AbstractContextManager[None]],
) -> None:
    digest = upload(prepared.store, tmp_path, f"import time; time.sleep({LEASE_SECONDS})")
    task = begun(prepared, submit(prepared.store, f"patient-job-{outage.__name__}", digest))
    with outage(database):
        time.sleep(OUTAGE_SECONDS)

    def row() -> Compilation | None:
        with contextlib.suppress(StoreUnavailableError):  # a connection of before the outage
            return own(prepared.store).jobs.get(task.id)
        return None

    wait_until(lambda: (found := row()) is not None and found.state.final)
    job = row()
    assert job is not None
    assert (job.state, job.attempt, job.lost_attempts) == (JobState.SUCCEEDED, 1, 0)
    assert event_faults(own(prepared.store).jobs.events_after(job.id, 0), job.state) == []
    assert succession.successor.poll() is None


def test_a_frozen_worker_is_fenced_out_when_it_thaws(
    prepared: WorkerSetup, succession: Succession, tmp_path: Path
) -> None:
    task = running(prepared, tmp_path, "frozen-job")
    (group,) = groups_noted(prepared.place)
    reaper = Reaper(prepared.store.workers, prepared.queue, Leases(LEASE_SECONDS))
    succession.successor.send_signal(signal.SIGSTOP)

    def is_reaped() -> bool:
        with contextlib.suppress(StoreUnavailableError):  # the worker may have been stopped with a lock
            return reaper.reap() == 1
        return False

    try:
        wait_until(is_reaped)
        taken = started(prepared.store.jobs, task.id, "another")
        assert taken.number == 2
    finally:
        succession.successor.send_signal(signal.SIGCONT)
    wait_until(lambda: members(group) == 0 and not groups_noted(prepared.place))
    prepared.store.jobs.cancel_finished(task.id, taken)
    row = own(prepared.store).jobs.get(task.id)
    assert (row.state, row.worker, row.lost_attempts) == (JobState.CANCELLED, "another", 1)
    assert event_faults(own(prepared.store).jobs.events_after(task.id, 0), row.state) == []


def test_a_worker_that_is_told_to_stop_hands_its_job_over(
    prepared: WorkerSetup, succession: Succession, tmp_path: Path
) -> None:
    task = running(prepared, tmp_path, "handed-over-job")
    (group,) = groups_noted(prepared.place)
    succession.successor.terminate()
    assert succession.successor.wait() == 0
    assert members(group) == 0
    assert not tuple((prepared.place / "jobs").iterdir())
    assert prepared.store.workers.live(3600) == ()
    assert prepared.queue.requeue([task]) == ()
    assert (
        f"{task.key} goes to another worker: this worker stops [task=compile job={task.id}]"
        in prepared.log.read_text()
    )
    started(prepared.store.jobs, task.id, "another")
    row = own(prepared.store).jobs.get(task.id)
    assert (row.attempt, row.lost_attempts) == (2, 0)


def running(prepared: WorkerSetup, folder: Path, job_id: str) -> Task:
    """A job that runs until it is ended."""
    digest = upload(prepared.store, folder, "import time; time.sleep(600)")
    return begun(prepared, submit(prepared.store, job_id, digest))


def begun(prepared: WorkerSetup, task: Task) -> Task:
    """The same task, once a worker runs it."""
    prepared.queue.enqueue(task)

    def is_running() -> bool:
        row = own(prepared.store).jobs.get(task.id)
        return row is not None and row.stage is not None

    wait_until(is_running)
    return task


def test_a_required_layer_that_is_missing_keeps_the_worker_from_starting(tmp_path: Path) -> None:
    with setup(tmp_path) as prepared, prepared.worker((sys.executable, *WITHOUT_LANDLOCK)) as worker:
        assert worker.wait() == 1
        last = prepared.log.read_text().splitlines()[-1]
        assert last.startswith("the worker stopped: required layers do not hold: ")
        assert "landlock" in last
        assert not prepared.store.workers.live(60)


def test_a_wrong_setting_is_named_in_one_line() -> None:
    environment = {**os.environ, "BESSEMER_SANDBOX": "foo", "BESSEMER_CORES": "0"}
    shown = subprocess.run(PLAINLY, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert shown.returncode == 2
    assert [line.partition(":")[0] for line in shown.stderr.splitlines()] == [
        "BESSEMER_SANDBOX",
        "BESSEMER_CORES",
    ]


def test_a_database_that_is_away_is_named_in_one_line(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "BESSEMER_DATA": str(tmp_path),
        "BESSEMER_DATABASE_URL": "postgresql://127.0.0.1:1/x",
    }
    shown = subprocess.run(PLAINLY, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert shown.returncode == 1
    assert shown.stderr.splitlines()[-1].startswith("the worker stopped: ")
    assert "Traceback" not in shown.stderr
