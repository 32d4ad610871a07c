"""A store that cannot be reached for a while: who goes on, and who stops at once."""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from worker_samples import wait_until

from benchmarks.soak.audit import event_faults
from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.capability import Capability
from bessemer.contract.job import JobState
from bessemer.contract.offers import Offers
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.store.blobs.artifacts import open_artifacts
from bessemer.store.database import Database
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue_port import PostponedError, Postponement
from bessemer.store.rows.jobs import Jobs
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.rows.workers import Workers
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store
from examples.local_postgresql import postgresql_server
from tests.integration.malicious_models import malicious_model
from tests.tenant_data import own
from worker.job.folder import make_job_folder, remove_job_folder, seal
from worker.protocol.messages import Inspected
from worker.protocol.order import InspectWork, Ready, StartJob
from worker.supervisor import job
from worker.supervisor.heartbeat import Heartbeat, LeaseHealth
from worker.supervisor.in_flight import InFlight
from worker.supervisor.job import Supervision, run_job
from worker.supervisor.job_record import CompilationRecord, JobRecord
from worker.supervisor.outcome import JobOutcome
from worker.supervisor.retry import StoreRetry

Rig = Any
NOWHERE = make_url("postgresql+psycopg://127.0.0.1:1/nothing")
PATIENCE_SECONDS = 60.0
UNHEARD = Attempt(1, DEFAULT_TENANT, "0" * 32)
IMPATIENT = StoreRetry(0)
WAIT_FOR_A_FILE = """
    import time
    while not os.path.exists("go"):
        time.sleep(0.02)
"""


class UnreachableRecord(JobRecord):
    """A record whose store is unavailable to every poll; the second one lets the job go on."""

    polls = 0

    def __init__(self, go: Path) -> None:
        self._go = go

    def cancel_requested(self) -> bool:
        self.polls += 1
        if self.polls == 2:
            self._go.touch()
        raise StoreUnavailableError("away")


@pytest.fixture
def away() -> Iterator[Database]:
    database = Database(NOWHERE)
    yield database
    database.close()


class LateRecord(JobRecord):
    """A record whose store is unavailable until the job has long ended."""

    refusals = 3
    heard = 0

    def confined(self, sandbox: SandboxStatus) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailableError("away")
        self.heard += 1


def run(rig: Rig, body: str, record: JobRecord, retry: StoreRetry = IMPATIENT) -> JobOutcome:
    """Run an inspection with a record, for as long as the test waits."""
    settings = rig.settings(limit_wall_seconds=3600)
    uid = rig.place.slot_uid(settings.slot_uid_base, 0)
    folder = make_job_folder(rig.place.jobs / "noted", uid)
    folder.model.write_bytes(malicious_model(body))
    seal(folder.model, uid)
    order = StartJob(
        job="noted",
        folder=str(folder.path),
        confinement=settings.confinement(uid),
        cores=1,
        work=InspectWork(),
    )

    async def running() -> JobOutcome:
        async with asyncio.timeout(PATIENCE_SECONDS):
            limits, turns = settings.limits(None), settings.turn_limits()
            return await run_job(rig.zygote, order, Supervision(folder, limits, turns, record, retry))

    try:
        return rig.runner.run(running())
    finally:
        remove_job_folder(folder.path)


@pytest.fixture(params=["away", "broken"])
def failing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database that cannot be reached, or one that has no table of workers."""
    database = Database(NOWHERE if request.param == "away" else make_url(f"sqlite:///{tmp_path / 'empty'}"))
    yield database
    database.close()


async def test_a_heartbeat_that_nobody_hears_is_not_the_last(
    failing: Database, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox = SandboxStatus(mode=SandboxMode.OFF, layers=())
    able = Capability(architecture="x86_64", foreign=(), processors={}, lacking=())
    ready = Ready(seconds=1, mcpu="generic", versions={}, compiler="0" * 64, capability=able, offers=Offers())
    lease = LeaseHealth(lease_seconds=1)
    heartbeat = Heartbeat("lonely", ready, sandbox, 1, 60.0, InFlight(), lease)
    beating = asyncio.create_task(heartbeat.keep(Workers(failing), lease_seconds=1))
    await asyncio.to_thread(wait_until, lambda: len(caplog.messages) > 1 or beating.done())
    assert not beating.done()
    assert "cannot send its heartbeat" in caplog.text
    assert lease.fault() is not None
    beating.cancel()


def test_a_job_whose_words_cannot_be_written_down_is_ended_once_patience_is(rig: Rig, away: Database) -> None:
    with pytest.raises(StoreUnavailableError):
        run(rig, "import time; time.sleep(600)", CompilationRecord(Jobs(away), "unheard", UNHEARD))


def test_a_job_outlasts_polls_that_fail(rig: Rig) -> None:
    record = UnreachableRecord(rig.place.jobs / "noted" / "scratch" / "go")
    ending = run(rig, WAIT_FOR_A_FILE, record)
    assert isinstance(ending.last, Inspected)
    assert record.polls > 1


def test_what_a_job_said_before_it_ended_waits_for_the_store(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "LAST_MESSAGES_SECONDS", 0.1)
    record = LateRecord()
    ending = run(rig, "return 0", record, StoreRetry(PATIENCE_SECONDS))
    assert isinstance(ending.last, Inspected)
    assert (record.refusals, record.heard > 0) == (0, True)


def test_a_job_whose_artifact_store_is_away_waits_and_loses_no_attempt(rig: Rig) -> None:
    task = rig.job("return 0")
    with rig.artifacts_away():
        for _ in range(4):
            with pytest.raises(StoreUnavailableError):
                rig.handle(task, store_patience_seconds=0)
    assert (rig.row(task).state, rig.row(task).worker) == (JobState.RUNNING, None)
    row = rig.handle(task)
    assert (row.state, row.attempt, row.lost_attempts) == (JobState.SUCCEEDED, 5, 0)


def test_a_job_survives_a_database_that_is_restarted(rig: Rig, tmp_path: Path) -> None:
    with postgresql_server() as server:
        store = open_store(StoreSettings(data=tmp_path, database_url=server.url))
        on_server = replace(rig, store=store, folder=tmp_path)
        task = on_server.job("import time; time.sleep(1)")

        def restart() -> None:
            server.stop()
            server.start()

        row = on_server.handle_while(task, restart)
        events = own(store).jobs.events_after(task.id, 0)
        store.close()
    assert (row.state, row.attempt) == (JobState.SUCCEEDED, 1)
    assert event_faults(events, row.state) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is full."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    with (folder / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_job_is_postponed_while_its_workers_disk_is_full(rig: Rig, small_disk: Path) -> None:
    task = rig.job("return 0")
    full = replace(rig, place=replace(rig.place, folder=small_disk))
    (small_disk / "jobs").mkdir()
    for _ in range(4):
        with pytest.raises(PostponedError) as postponed:
            full.handle(task)
        assert postponed.value.why is Postponement.DISK_FULL
    row = rig.handle(task)
    assert (row.state, row.attempt, row.lost_attempts) == (JobState.SUCCEEDED, 5, 0)


def test_an_artifact_store_that_is_full_is_away_and_keeps_nothing_half_written(
    small_disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "artifact").write_bytes(bytes(1 << 20))
    artifacts = open_artifacts((small_disk / "artifacts").as_uri())
    with pytest.raises(StoreUnavailableError, match="No space left"):
        artifacts.for_tenant(DEFAULT_TENANT).put_file(tmp_path / "artifact")
    artifacts.close()
    assert not [path for path in small_disk.rglob("*") if path.is_file() and path.name != "ballast"]
