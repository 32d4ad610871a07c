"""The supervisor: takes tasks from the queues, has the zygote run them, and is the only writer of results.

It imports neither torch nor TVM and never forks; the zygote is started by exec.
"""

import asyncio

from bessemer.contract.sandbox import SandboxStatus
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.quotas import DEFAULT_QUOTAS, Quotas
from bessemer.store.store import Store
from bessemer.telemetry.logs import log_fields
from bessemer.telemetry.traces import Tracer
from worker.errors import ZygoteLostError
from worker.protocol.order import ProbeWork
from worker.settings import WorkerSettings
from worker.supervisor.attempts import TaskHandler, run_to_end
from worker.supervisor.compilations import CompilationTask
from worker.supervisor.in_flight import InFlight
from worker.supervisor.inspections import InspectionTask
from worker.supervisor.invocations import InvocationTask
from worker.supervisor.job_record import ProbeRecord
from worker.supervisor.job_runner import PROBE_SLOT, JobRunner
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.object_cache import ObjectCache, ObjectFiles
from worker.supervisor.work_dir import WorkDirectory
from worker.supervisor.zygote_handle import ZygoteHandle


class Supervisor:
    """One worker: two slots, one zygote."""

    def __init__(
        self,
        settings: WorkerSettings,
        store: Store,
        work_dir: WorkDirectory,
        zygote: ZygoteHandle,
        metrics: WorkerMetrics | None = None,
        tracer: Tracer | None = None,
        quotas: Quotas = DEFAULT_QUOTAS,
    ) -> None:
        self.in_flight = InFlight()
        self._metrics = metrics or WorkerMetrics()
        self._tracer = tracer or Tracer()
        self._runner = JobRunner(settings, store, work_dir, zygote, self._metrics, quotas)
        files = ObjectFiles(work_dir.folder / "objects", settings.object_cache_bytes)
        self._cache = ObjectCache(files, self._metrics) if settings.keeps_objects else None
        if self._cache is None:
            files.clear()

    @property
    def worker_id(self) -> str:
        """The name under which it takes tasks."""
        return self._runner.worker_id

    async def probe(self) -> SandboxStatus:
        """Start a child that only reports which layers of the confinement hold.

        Raises:
            ZygoteLostError: the zygote could not be started.
        """
        record = ProbeRecord()
        async with self._runner.folder("probe", PROBE_SLOT) as folder:
            await asyncio.to_thread(folder.model.touch)
            await self._runner.run("probe", PROBE_SLOT, folder, ProbeWork(), record)
        if record.sandbox is None:
            raise ZygoteLostError("the probe of the confinement ended without a report")
        return record.sandbox

    async def fill_cache(self) -> None:
        """Compile the functions of ended jobs for the cache of objects until cancelled."""
        if self._cache is not None:
            await self._cache.fill(self._runner)

    async def handle(self, task: Task) -> None:
        """Do one task and write its result.

        Raises:
            StoreUnavailableError: the store was unavailable for too long; the queue starts the task again.
            PostponedError: this worker's disk is full, or its zygote does not start; the queue does the same.
        """
        with (
            self._metrics.task(task.kind),
            self.in_flight.tracking(task),
            log_fields(worker=self.worker_id),
            log_fields(**task.log_fields),
        ):
            await self._runner.prepare()
            await run_to_end(self._handler(task), self._runner)

    def _handler(self, task: Task) -> TaskHandler:
        if task.kind is TaskKind.INSPECT:
            return InspectionTask(task.id, self._runner)
        if task.kind is TaskKind.INVOKE:
            return InvocationTask(task.id, self._runner, self._tracer)
        return CompilationTask(task, self._runner, self.in_flight, self._tracer, self._cache)
