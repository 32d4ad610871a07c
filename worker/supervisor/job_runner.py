"""Where a supervisor's jobs are run: folder, upload and order of each."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.store.errors import BlobMissingError, DamagedError
from bessemer.store.queue_port import QUEUES, Loss, PostponedError, Postponement, QueueName, TaskKind
from bessemer.store.store import Store
from worker.errors import ZygoteLostError
from worker.job.folder import JobFolder, make_job_folder, remove_job_folder, seal
from worker.protocol.order import StartJob, Work
from worker.settings import WorkerSettings
from worker.supervisor.heartbeat import default_worker_id
from worker.supervisor.job import run_job
from worker.supervisor.journal import Journal
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.observers import UNOBSERVED, Observer, Observers
from worker.supervisor.outcome import Ending
from worker.supervisor.store_retry import StoreRetry
from worker.supervisor.work_dir import WorkDirectory
from worker.supervisor.zygote_handle import ZygoteHandle

SLOTS = {kind: list(QueueName).index(QUEUES[kind]) for kind in TaskKind}
"""One slot per queue, as a worker has one task of each in hand at a time."""

PROBE_SLOT = len(QueueName)

log = logging.getLogger(__name__)


class JobRunner:
    """The slots of one worker, and what every task in them needs."""

    def __init__(
        self,
        settings: WorkerSettings,
        store: Store,
        place: WorkDirectory,
        zygote: ZygoteHandle,
        metrics: WorkerMetrics,
    ) -> None:
        self.worker_id = settings.worker_id or default_worker_id(place.folder)
        self.settings = settings
        self.store = store
        self.patience = StoreRetry(settings.store_patience_seconds)
        self._place = place
        self._zygote = zygote
        self._metrics = metrics

    async def prepare(self) -> None:
        """Return once a zygote is ready: no attempt begins, and none is lost, while it starts.

        Raises:
            PostponedError: it could not be started.
        """
        try:
            await self._zygote.ensure_running()
        except ZygoteLostError as error:
            raise PostponedError(Postponement.ZYGOTE_LOST, str(error)) from error

    @asynccontextmanager
    async def folder(self, name: str, slot: int) -> AsyncIterator[JobFolder]:
        """A job's folder for as long as the context lasts."""
        path = self._place.jobs / name
        folder = await asyncio.to_thread(make_job_folder, path, self.uid(slot))
        try:
            yield folder
        finally:
            await asyncio.shield(asyncio.to_thread(remove_job_folder, path))

    async def fetch(self, digest: str, path: Path, slot: int) -> None:
        """Bring a stored file into a job's folder, whose user may only read it.

        Raises:
            BlobMissingError: it is not there.
            DamagedError: it is not what was stored.
            StoreUnavailableError: the artifact store was away for too long.
            OSError: the folder cannot be written.
        """
        await self.patience.call(partial(self.store.artifacts.fetch_to, digest, path))
        await asyncio.to_thread(seal, path, self.uid(slot))

    async def fetch_model(self, digest: str, folder: JobFolder, slot: int) -> Problem | None:
        """Bring the upload into a job's folder. Otherwise raises as ``fetch`` does.

        Returns:
            What is wrong with it; None where it is there.
        """
        try:
            await self.fetch(digest, folder.model, slot)
        except (BlobMissingError, DamagedError) as error:
            return make_problem(ErrorCode.MODEL_DAMAGED, str(error))
        return None

    async def run(
        self,
        name: str,
        slot: int,
        folder: JobFolder,
        work: Work,
        journal: Journal,
        timeout_seconds: float | None = None,
        observer: Observer = UNOBSERVED,
    ) -> Ending:
        """Run a job in its folder. Raises as ``run_job`` does."""
        order = StartJob(
            job=name,
            folder=str(folder.path),
            messages=str(folder.messages),
            confinement=self.settings.confinement(self.uid(slot)),
            cores=self.settings.cores,
            work=work,
        )
        limits = self.settings.limits(timeout_seconds)
        with self._metrics.job() as meter:
            observers = Observers((meter, observer))
            return await run_job(self._zygote, order, folder, limits, journal, self.patience, observers)

    def uid(self, slot: int) -> int | None:
        """The user of a slot's jobs; None where the worker is not root."""
        return self._place.slot_uid(self.settings.slot_uid_base, slot)

    def lost(self, kind: TaskKind, why: Loss) -> None:
        """Tell whoever watches the service of an attempt that came to nothing."""
        self._metrics.losses.attempt(kind, why)

    def ended(self, kind: TaskKind, problem: Problem | None) -> None:
        """Tell whoever watches the service of a result that was written."""
        self._metrics.ended(kind, problem)
        log.info("the task ended: %s", problem.code if problem else "succeeded")
