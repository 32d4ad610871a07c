"""Runs a supervisor's jobs: the folder, the upload and the order of each."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from bessemer.bundle.signing import KeyFileError, SigningKey, read_signing_key
from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.errors import BlobMissingError, DamagedError
from bessemer.store.queue_port import QUEUES, Loss, PostponedError, Postponement, QueueName, TaskKind
from bessemer.store.quotas import DEFAULT_QUOTAS, Quotas
from bessemer.store.store import Store
from worker.compiler.tuning.cost_model.version import FEATURES
from worker.errors import SigningKeyError, ZygoteLostError
from worker.job.folder import JobFolder, make_job_folder, remove_job_folder, seal
from worker.protocol.observer import JobObserver
from worker.protocol.order import CompileObjectWork, ExtensionFile, Ready, StartJob, Work
from worker.settings import WorkerSettings
from worker.supervisor.cgroups import job_cgroup
from worker.supervisor.collect import copy_file, lent_file
from worker.supervisor.device_runs import DeviceRunner
from worker.supervisor.heartbeat import default_worker_id
from worker.supervisor.job import Services, Supervision, run_job
from worker.supervisor.job_record import JobRecord
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.outcome import JobOutcome
from worker.supervisor.retry import StoreRetry
from worker.supervisor.watch import Termination
from worker.supervisor.work_dir import WorkDirectory
from worker.supervisor.zygote_handle import ZygoteHandle

SLOTS = {kind: list(QueueName).index(QUEUES[kind]) for kind in TaskKind}
"""One slot per queue: a worker runs one task of each at a time."""

PROBE_SLOT = len(QueueName)
EARLY_SLOT = PROBE_SLOT + 1
"""For the check of a bundle whose compilation still runs: when a job ends, all of its slot's processes do."""
OBJECT_SLOT = EARLY_SLOT + 1
"""For the compilation of functions for the cache, beside jobs."""

NO_SERVICES: Services = MappingProxyType({})

OUT_OF_MEMORY = "the kernel ended a process of the job at its memory limit"

log = logging.getLogger(__name__)


class JobRunner:
    """The job slots of one worker, and what every task in them needs."""

    def __init__(
        self,
        settings: WorkerSettings,
        store: Store,
        work_dir: WorkDirectory,
        zygote: ZygoteHandle,
        metrics: WorkerMetrics,
        quotas: Quotas = DEFAULT_QUOTAS,
    ) -> None:
        self.worker_id = settings.worker_id or default_worker_id(work_dir.folder)
        self.settings = settings
        self.store = store
        self.quotas = quotas
        self.signing_key = _signing_key(settings)
        self.store_retry = StoreRetry(settings.store_patience_seconds)
        self.devices = DeviceRunner(
            store.device_tasks, store.jobs, self.store_retry, settings.device_wait_seconds
        )
        self._work_dir = work_dir
        self._zygote = zygote
        self._metrics = metrics

    async def prepare(self) -> None:
        """Wait until a zygote is ready, so that no attempt starts, or is lost, before that.

        Raises:
            PostponedError: the zygote could not be started.
        """
        try:
            await self._zygote.ensure_running()
        except ZygoteLostError as error:
            raise PostponedError(Postponement.ZYGOTE_LOST, str(error)) from error

    async def ready(self) -> Ready:
        """What the zygote that runs the jobs has reported.

        Raises:
            ZygoteLostError: the zygote ended, and another could not be started.
        """
        return await self._zygote.ensure_running()

    @asynccontextmanager
    async def folder(self, name: str, slot: int | None) -> AsyncIterator[JobFolder]:
        """A job's folder, which exists while the context lasts; without a slot, no job may enter it."""
        path = self._work_dir.jobs / name
        uid = None if slot is None else self.uid(slot)
        folder = await asyncio.to_thread(make_job_folder, path, uid)
        try:
            yield folder
        finally:
            await asyncio.shield(asyncio.to_thread(remove_job_folder, path))

    async def fetch(self, blob: BlobKey, path: Path, slot: int) -> None:
        """Copy a stored file into a job's folder; the job's user may only read it.

        Raises:
            BlobMissingError: the store does not have it.
            DamagedError: its content has changed in the store.
            StoreUnavailableError: the artifact store was away for too long.
            OSError: the folder cannot be written.
        """
        artifacts = self.store.artifacts.for_tenant(blob.tenant)
        await self.store_retry.call(partial(artifacts.fetch_to, blob.digest, path))
        await asyncio.to_thread(seal, path, self.uid(slot))

    @asynccontextmanager
    async def lent_output(self, folder: JobFolder, name: str, path: Path, slot: int) -> AsyncIterator[None]:
        """While the context lasts, another job's folder has a result of an ended job, which it can only read.

        A job that runs as the supervisor's user could change the result, so it gets a copy.

        Raises:
            MisbehavedError: see ``copy_file``.
            OSError: the folder cannot be written.
        """
        uid, limit_bytes = self.uid(slot), self.settings.limit_disk_bytes
        if uid is not None:
            with lent_file(folder.path, name, path, uid, limit_bytes):
                yield
            return
        await asyncio.to_thread(copy_file, folder.path, name, path, limit_bytes)
        await asyncio.to_thread(seal, path, uid)
        yield

    async def fetch_model(self, blob: BlobKey, path: Path, slot: int) -> Problem | None:
        """Copy a model into a job's folder.

        Returns:
            The problem if the model is missing or damaged.
        """
        try:
            await self.fetch(blob, path, slot)
        except (BlobMissingError, DamagedError) as error:
            return make_problem(ErrorCode.MODEL_DAMAGED, str(error))
        return None

    async def fetch_extensions(
        self, tenant: Tenant, request: CompilationRequest, folder: JobFolder, slot: int
    ) -> tuple[ExtensionFile, ...] | Problem:
        """Copy a request's extensions into a job's folder.

        Returns:
            Their names, or the problem of the first that is missing or damaged.
        """
        files = []
        for digest in request.extensions:
            file = await self.fetch_extension(tenant, digest, request.extension_names, folder, slot)
            if isinstance(file, Problem):
                return file
            files.append(file)
        return tuple(files)

    async def fetch_extension(
        self, tenant: Tenant, digest: Digest, names: Mapping[Digest, str], folder: JobFolder, slot: int
    ) -> ExtensionFile | Problem:
        """Copy an extension, or a file of records, into a job's folder.

        Returns:
            Its name in the request or else in its upload, or the problem if it is missing or damaged.
        """
        try:
            await self.fetch(BlobKey(tenant, digest), folder.extension(digest), slot)
        except (BlobMissingError, DamagedError) as error:
            return make_problem(ErrorCode.EXTENSION_MISSING, str(error))
        if digest in names:
            return ExtensionFile(digest=digest, name=names[digest])
        row = await self.store_retry.call(partial(self.store.for_tenant(tenant).extensions.get, digest))
        return ExtensionFile(digest=digest, name=row and row.name)

    async def give_cost_model(self, tenant: Tenant, folder: JobFolder, slot: int) -> None:
        """Copy the cost model that learned from the tenant's searches, if there is one, into a job's folder.

        Raises:
            StoreUnavailableError: the store was unavailable for too long.
        """
        model = await self.store_retry.call(partial(self.store.cost_models.get, tenant, FEATURES))
        if model is not None:
            folder.cost_model.write_bytes(model)
            seal(folder.cost_model, self.uid(slot))

    async def run(
        self,
        name: str,
        slot: int,
        folder: JobFolder,
        work: Work,
        record: JobRecord,
        timeout_seconds: float | None = None,
        observers: tuple[JobObserver, ...] = (),
        services: Services = NO_SERVICES,
        *,
        on_gpu: bool = False,
    ) -> JobOutcome:
        """Run a job in its folder; ``on_gpu`` opens this machine's GPUs to it, if it has any.

        Raises:
            WorkDirError: its cgroup cannot be made. Otherwise the same errors as ``run_job``.
        """
        limits = self.settings.limits(timeout_seconds)
        gpus = on_gpu and bool((await self.ready()).capability.gpus)
        with (
            job_cgroup(self.settings.cgroup, name, limits.memory_bytes) as cgroup,
            self._metrics.job(records_memory=not isinstance(work, CompileObjectWork)) as meter,
        ):
            order = StartJob(
                job=name,
                folder=str(folder.path),
                confinement=self.settings.confinement(self.uid(slot), gpus),
                cgroup=None if cgroup is None else str(cgroup.processes),
                cores=self.settings.cores,
                work=work,
            )
            supervision = Supervision(
                folder=folder,
                limits=limits,
                turn_limits=self.settings.turn_limits(),
                record=record,
                store_retry=self.store_retry,
                observers=(meter, *observers),
                on_usage=meter.used,
                services=services,
            )
            outcome = await run_job(self._zygote, order, supervision)
            if cgroup is not None and outcome.termination is None and cgroup.ran_out_of_memory():
                return replace(outcome, termination=Termination(ErrorCode.LIMIT_MEMORY, OUT_OF_MEMORY))
            return outcome

    def uid(self, slot: int) -> int | None:
        """The user of a slot's jobs; None if the worker is not root."""
        return self._work_dir.slot_uid(self.settings.slot_uid_base, slot)

    def count_lost(self, kind: TaskKind, why: Loss) -> None:
        """Count an attempt that was lost."""
        self._metrics.losses.attempt(kind, why)

    def count_ended(self, kind: TaskKind, problem: Problem | None) -> None:
        """Count and log a task whose result was written."""
        self._metrics.ended(kind, problem)
        log.info("the task ended: %s", problem.code if problem else "succeeded")


def _signing_key(settings: WorkerSettings) -> SigningKey | None:
    if settings.signing_key is None:
        return None
    try:
        return read_signing_key(settings.signing_key)
    except KeyFileError as error:
        raise SigningKeyError(f"BESSEMER_SIGNING_KEY: {error}") from error
