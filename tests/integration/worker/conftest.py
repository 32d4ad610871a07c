"""A supervisor on a real store and a real zygote, given models that misbehave."""

import asyncio
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from worker_samples import WAIT_SECONDS, submit, upload, wait_until

from bessemer.contract.job import Compilation
from bessemer.contract.options import TuneOptions
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.store.blobs.object_stores import INCOMING
from bessemer.store.queue_port import Task
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from tests.tenant_data import own
from worker.settings import GIBIBYTE, WorkerSettings
from worker.supervisor.heartbeat import Heartbeat, LeaseHealth
from worker.supervisor.in_flight import InFlight
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.supervisor import Supervisor
from worker.supervisor.work_dir import WorkDirectory, claim_work_dir
from worker.supervisor.zygote_handle import ZygoteHandle

SLOT_UID_BASE = 66_000


@dataclass
class Rig:
    """Runs jobs on one zygote, each on a supervisor with the settings of its test."""

    store: Store
    place: WorkDirectory
    zygote: ZygoteHandle
    runner: asyncio.Runner
    folder: Path
    metrics: WorkerMetrics = field(default_factory=WorkerMetrics)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def job(
        self,
        body: str,
        timeout_seconds: float | None = None,
        stop_after: Stage | None = None,
        tune: TuneOptions | None = None,
    ) -> Task:
        """A queued compilation of a malicious model."""
        digest = upload(self.store, self.folder, body)
        name = f"malicious-{next(self.numbers)}"
        return submit(self.store, name, digest, timeout_seconds, stop_after=stop_after, tune=tune)

    def settings(self, **settings: Any) -> WorkerSettings:
        defaults = {
            "sandbox": SandboxMode.REQUIRED,
            "slot_uid_base": SLOT_UID_BASE,
            "limit_memory_bytes": 4 * GIBIBYTE,
            "limit_wall_seconds": WAIT_SECONDS,
            "cores": 2,
        }
        return WorkerSettings(**(defaults | settings))

    def supervisor(self, **settings: Any) -> Supervisor:
        return Supervisor(self.settings(**settings), self.store, self.place, self.zygote, self.metrics)

    def handle(self, task: Task, **settings: Any) -> Compilation:
        """Have a supervisor do a task, and return the job's row."""
        self.runner.run(self.supervisor(**settings).handle(task))
        return self.row(task)

    def handle_while(self, task: Task, meanwhile: Callable[[], object], **settings: Any) -> Compilation:
        """The same, and once the model is being opened, do something to it."""

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.supervisor(**settings).handle(task))
                await asyncio.to_thread(wait_until, lambda: self.row(task).stage is not None)
                await asyncio.to_thread(meanwhile)

        self.runner.run(both())
        return self.row(task)

    @contextmanager
    def artifacts_away(self) -> Iterator[None]:
        """Nothing can be stored while the context lasts."""
        incoming = self.folder / "data" / "artifacts" / INCOMING
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.write_text("in the way")
        try:
            yield
        finally:
            incoming.unlink()

    def row(self, task: Task) -> Compilation:
        row = own(self.store).jobs.get(task.id)
        assert row is not None
        return row


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    work = Path("/tmp") / f"bessemer-supervised-{os.getpid()}"
    folder = tmp_path_factory.mktemp("supervised")
    store = open_store(StoreSettings(data=folder / "data"))
    with asyncio.Runner() as runner, claim_work_dir(work) as place:
        zygote = ZygoteHandle(place.groups)
        ready = runner.run(zygote.ensure_running())
        rig = Rig(store, place, zygote, runner, folder)
        sandbox = SandboxStatus(mode=SandboxMode.REQUIRED, layers=())
        present = Heartbeat(
            rig.supervisor().worker_id, ready, sandbox, 2, WAIT_SECONDS, InFlight(), LeaseHealth(WAIT_SECONDS)
        )
        present.beat(store.workers)
        try:
            yield rig
        finally:
            runner.run(zygote.stop())
            store.close()
    shutil.rmtree(work)
