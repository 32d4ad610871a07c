"""A zygote, jobs with malicious models, and their outcomes."""

import asyncio
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deliveries import EXTENSION, FX, Upload

from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from tests.integration.malicious_models import malicious_model
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder, make_job_folder, remove_job_folder, seal
from worker.protocol.messages import Confined, Message
from worker.protocol.order import InvokeWork, StartJob
from worker.settings import GIBIBYTE, Limits, WorkerSettings
from worker.supervisor.processes import processes
from worker.supervisor.running_job import Exit, RunningJob
from worker.supervisor.watch import Termination, watch
from worker.supervisor.work_dir import WorkDirectory, claim_work_dir
from worker.supervisor.zygote_handle import ZygoteHandle

SLOT_UID_BASE = 64_000
UNREACHABLE = {"limit_processes": 100_000, "limit_memory_bytes": 1024 * GIBIBYTE}


@dataclass(frozen=True)
class Outcome:
    """A job's outcome: its messages and the evidence left by its model."""

    messages: tuple[Message, ...]
    termination: Termination | None
    exit: Exit
    evidence: dict[str, Any]
    log: str
    left_running: tuple[int, ...]
    misbehaved: str = ""

    @property
    def sandbox(self) -> SandboxStatus:
        return next(message.sandbox for message in self.messages if isinstance(message, Confined))

    @property
    def error(self) -> str | None:
        return self.evidence.get("error")

    @property
    def did(self) -> Any:
        return self.evidence.get("did")

    @property
    def code(self) -> str:
        """The code that the job ended with."""
        if self.termination is not None:
            return self.termination.code.value
        last = self.messages[-1]
        return last.code.value if last.kind == "failed" else last.kind


@dataclass
class Rig:
    """Runs jobs on one zygote, each with the settings of its test."""

    place: WorkDirectory
    zygote: ZygoteHandle
    runner: asyncio.Runner
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def confined(
        self, body: str, timeout_seconds: float | None = None, upload: Upload = FX, **settings: Any
    ) -> Outcome:
        """Run a payload in a confined job."""
        return self._run(body, upload, SandboxMode.REQUIRED, timeout_seconds, settings)

    def on_gpu(self, body: str) -> Outcome:
        """Run a payload in a confined job that may use the machine's GPUs."""
        settings = self._settings(SandboxMode.REQUIRED, {})
        order = self._order(body, FX, settings)
        confinement = settings.confinement(order.confinement.uid, gpus=True)
        return self.runner.run(
            self._finish(order.model_copy(update={"confinement": confinement}), settings, None)
        )

    def unconfined(self, body: str, upload: Upload = FX) -> Outcome:
        """The control: the same job without a sandbox and with limits out of reach."""
        return self._run(body, upload, SandboxMode.OFF, None, UNREACHABLE)

    def model(self, body: str) -> bytes:
        """The file of a malicious model."""
        return malicious_model(body)

    def start(self, body: str, mode: SandboxMode = SandboxMode.REQUIRED, **settings: Any) -> RunningJob:
        """Start a job and leave it running."""
        return self.runner.run(self._start(body, FX, self._settings(mode, settings)))

    def settings_limits(self, **settings: Any) -> Limits:
        return self._settings(SandboxMode.REQUIRED, settings).limits(None)

    def watched(self, job: RunningJob, limits: Limits, cancelled: Callable[[], bool]) -> Termination | None:
        """Watch a job that was started, until it has ended."""
        return self.runner.run(watch(job, limits, cancelled))

    def end(self, job: RunningJob) -> Exit:
        """End a job that was started."""
        return self.runner.run(_end(job))

    def _run(
        self,
        body: str,
        upload: Upload,
        mode: SandboxMode,
        timeout_seconds: float | None,
        settings: dict[str, Any],
    ) -> Outcome:
        return self.runner.run(self._outcome(body, upload, self._settings(mode, settings), timeout_seconds))

    def _settings(self, mode: SandboxMode, settings: dict[str, Any]) -> WorkerSettings:
        defaults = {"sandbox": mode, "limit_memory_bytes": 2 * GIBIBYTE, "limit_wall_seconds": 120}
        return WorkerSettings(**(defaults | settings))

    def order(self, body: str, mode: SandboxMode = SandboxMode.REQUIRED, **settings: Any) -> StartJob:
        """An order for a job, whose folder is made."""
        return self._order(body, FX, self._settings(mode, settings))

    def _order(self, body: str, upload: Upload, settings: WorkerSettings) -> StartJob:
        uid = self.place.slot_uid(SLOT_UID_BASE, 0)
        name = f"attack-{next(self.numbers)}"
        folder = make_job_folder(self.place.jobs / name, uid)
        folder.model.write_bytes(upload.make(body))
        seal(folder.model, uid)
        if upload.extension is not None:
            folder.extension(EXTENSION).write_bytes(upload.extension(body))
            seal(folder.extension(EXTENSION), uid)
        if isinstance(upload.work, InvokeWork):
            np.savez(folder.inputs, x=np.ones(2, np.float32))
            folder.inputs.with_suffix(".npz").rename(folder.inputs)
            seal(folder.inputs, uid)
        return StartJob(
            job=name,
            folder=str(folder.path),
            confinement=settings.confinement(uid),
            cores=2,
            work=upload.work,
        )

    async def _start(self, body: str, upload: Upload, settings: WorkerSettings) -> RunningJob:
        return await self.zygote.start_job(self._order(body, upload, settings))

    async def _outcome(
        self, body: str, upload: Upload, settings: WorkerSettings, allowed_seconds: float | None
    ) -> Outcome:
        return await self._finish(self._order(body, upload, settings), settings, allowed_seconds)

    async def _finish(
        self, order: StartJob, settings: WorkerSettings, allowed_seconds: float | None
    ) -> Outcome:
        job = await self.zygote.start_job(order)
        reading = asyncio.create_task(_read(job))
        async with job:
            termination = await watch(job, settings.limits(allowed_seconds), lambda: False)
        messages, misbehaved = await reading
        left = tuple(process.pid for process in processes() if process.group == job.pid)
        folder = JobFolder(job.folder)
        evidence = _evidence(folder)
        log = folder.log.read_text(errors="replace")[-4000:]
        remove_job_folder(folder.path)
        return Outcome(messages, termination, await job.exited, evidence, log, left, misbehaved)


async def _read(job: RunningJob) -> tuple[tuple[Message, ...], str]:
    messages: list[Message] = []
    try:
        async for message in job.messages():
            messages.append(message)
    except MisbehavedError as error:
        await job.kill()
        return tuple(messages), error.detail
    return tuple(messages), ""


async def _end(job: RunningJob) -> Exit:
    async with job:
        pass
    exit = await job.exited
    remove_job_folder(job.folder)
    return exit


def _evidence(folder: JobFolder) -> dict[str, Any]:
    try:
        return dict(json.loads((folder.scratch / "evidence.json").read_text()))
    except FileNotFoundError:
        return {}


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    work = Path("/tmp") / f"bessemer-containment-{os.getpid()}"
    with asyncio.Runner() as runner, claim_work_dir(work) as place:
        zygote = ZygoteHandle(place.groups)
        runner.run(zygote.ensure_running())
        try:
            yield Rig(place, zygote, runner)
        finally:
            runner.run(zygote.stop())
    shutil.rmtree(work)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A world-writable folder outside the job's folder."""
    folder = Path("/tmp") / f"bessemer-open-{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    remove_job_folder(folder)
