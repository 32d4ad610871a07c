"""Where a supervisor's jobs are run: folder, upload and order of each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.store.artifacts import Artifacts
from bessemer.store.errors import BlobMissingError, DamagedError
from bessemer.store.queue import PostponedError, TaskKind
from worker.ending import Ending
from worker.errors import ZygoteLostError
from worker.job import run_job
from worker.job_folder import JobFolder, make_job_folder, remove_job_folder, seal_model
from worker.journal import Journal
from worker.metrics import WorkerMetrics
from worker.observing import UNOBSERVED, Observer, Observers
from worker.order import StartJob, Work
from worker.patience import Patience
from worker.settings import WorkerSettings
from worker.workplace import Workplace
from worker.zygote_handle import Zygote

SLOTS = {TaskKind.COMPILE: 0, TaskKind.PREFLIGHT: 1, TaskKind.INSPECT: 1, TaskKind.INVOKE: 1}
PROBE_SLOT = 2


class Workbench:
    """The slots of one worker."""

    def __init__(
        self,
        settings: WorkerSettings,
        artifacts: Artifacts,
        place: Workplace,
        zygote: Zygote,
        metrics: WorkerMetrics,
    ) -> None:
        self.patience = Patience(settings.store_patience_seconds)
        self._settings = settings
        self._artifacts = artifacts
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
            raise PostponedError(str(error)) from error

    @asynccontextmanager
    async def folder(self, name: str, slot: int) -> AsyncIterator[JobFolder]:
        """A job's folder for as long as the context lasts."""
        path = self._place.jobs / name
        folder = await asyncio.to_thread(make_job_folder, path, self.uid(slot))
        try:
            yield folder
        finally:
            await asyncio.shield(asyncio.to_thread(remove_job_folder, path))

    async def fetch(self, digest: str, folder: JobFolder, slot: int) -> Problem | None:
        """Bring the upload into a job's folder.

        Returns:
            What is wrong with it; None where it is there.

        Raises:
            StoreUnavailableError: the artifact store was away for too long.
            OSError: the folder cannot be written.
        """
        try:
            await self.patience.call(partial(self._artifacts.fetch_to, digest, folder.model))
        except (BlobMissingError, DamagedError) as error:
            return make_problem(ErrorCode.MODEL_DAMAGED, str(error))
        await asyncio.to_thread(seal_model, folder, self.uid(slot))
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
            confinement=self._settings.confinement(self.uid(slot)),
            cores=self._settings.cores,
            work=work,
        )
        limits = self._settings.limits(timeout_seconds)
        with self._metrics.job() as meter:
            observers = Observers((meter, observer))
            return await run_job(self._zygote, order, folder, limits, journal, self.patience, observers)

    def uid(self, slot: int) -> int | None:
        """The user of a slot's jobs; None where the worker is not root."""
        return self._place.slot_uid(self._settings.slot_uid_base, slot)
