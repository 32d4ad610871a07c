"""A store that cannot be reached for a while: who goes on, and who stops at once."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from worker_samples import wait_until

from bessemer.contract.capability import Capability
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.store.database import Database
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.jobs import Jobs
from bessemer.store.workers import Workers
from tests.integration.malicious_models import malicious_model
from worker.ending import Ending
from worker.hands import Hands
from worker.job import run_job
from worker.job_folder import make_job_folder, remove_job_folder, seal_model
from worker.journal import CompilationJournal, Journal, SilentJournal
from worker.messages import Inspected
from worker.order import InspectWork, Ready, StartJob
from worker.patience import Patience
from worker.presence import Presence

Rig = Any
NOWHERE = make_url("postgresql+psycopg://127.0.0.1:1/nothing")
PATIENCE_SECONDS = 60.0


class DeafJournal(SilentJournal):
    """Of a job whose user nobody can hear."""

    polls = 0

    def cancel_requested(self) -> bool:
        self.polls += 1
        raise StoreUnavailableError("away")


@pytest.fixture
def away() -> Iterator[Database]:
    database = Database(NOWHERE)
    yield database
    database.close()


def run(rig: Rig, body: str, journal: Journal) -> Ending:
    """Run an inspection with a journal, for as long as patience lasts."""
    settings = rig.settings(limit_wall_seconds=3600)
    uid = rig.place.slot_uid(settings.slot_uid_base, 0)
    folder = make_job_folder(rig.place.jobs / "noted", uid)
    folder.model.write_bytes(malicious_model(body))
    seal_model(folder, uid)
    order = StartJob(
        job="noted",
        folder=str(folder.path),
        messages=str(folder.messages),
        confinement=settings.confinement(uid),
        cores=1,
        work=InspectWork(),
    )

    async def running() -> Ending:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await run_job(rig.zygote, order, folder, settings.limits(None), journal, Patience(0))

    try:
        return rig.runner.run(running())
    finally:
        remove_job_folder(folder.path)


async def test_a_heartbeat_that_nobody_hears_is_not_the_last(
    away: Database, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox = SandboxStatus(mode=SandboxMode.OFF, layers=())
    able = Capability(architecture="x86_64", foreign=(), processors={}, lacking=())
    ready = Ready(seconds=1, mcpu="generic", versions={}, capability=able)
    presence = Presence("lonely", ready, sandbox, 1, Hands())
    beating = asyncio.create_task(presence.keep(Workers(away), lease_seconds=1))
    await asyncio.to_thread(wait_until, lambda: bool(caplog.messages) or beating.done())
    assert not beating.done()
    assert "cannot say that it is alive" in caplog.text
    beating.cancel()


def test_a_job_whose_words_cannot_be_written_down_is_ended_once_patience_is(rig: Rig, away: Database) -> None:
    with pytest.raises(StoreUnavailableError):
        run(rig, "import time; time.sleep(600)", CompilationJournal(Jobs(away), "unheard", 1))


def test_a_job_outlasts_polls_that_fail(rig: Rig) -> None:
    journal = DeafJournal()
    ending = run(rig, "import time; time.sleep(1)", journal)
    assert isinstance(ending.last, Inspected)
    assert journal.polls > 1
