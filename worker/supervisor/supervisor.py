"""The supervisor: takes tasks from the queues, has the zygote run them, and alone writes their results.

It imports neither torch nor TVM and never forks; the zygote is started by exec.
"""

import asyncio

from bessemer.contract.sandbox import SandboxStatus
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.store import Store
from bessemer.telemetry.logs import log_fields
from bessemer.telemetry.traces import Tracer
from worker.errors import ZygoteLostError
from worker.protocol.messages import Confined, Message
from worker.protocol.order import ProbeWork
from worker.settings import WorkerSettings
from worker.supervisor.attempts import TaskHandler, see_through
from worker.supervisor.compilations import CompilationTask
from worker.supervisor.in_flight import InFlight
from worker.supervisor.inspections import InspectionTask
from worker.supervisor.invocations import InvocationTask
from worker.supervisor.job_runner import PROBE_SLOT, JobRunner
from worker.supervisor.journal import SilentJournal
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.work_dir import WorkDirectory
from worker.supervisor.zygote_handle import ZygoteHandle


class Supervisor:
    """One worker: two slots, one zygote."""

    def __init__(
        self,
        settings: WorkerSettings,
        store: Store,
        place: WorkDirectory,
        zygote: ZygoteHandle,
        metrics: WorkerMetrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.hands = InFlight()
        self._metrics = metrics or WorkerMetrics()
        self._tracer = tracer or Tracer()
        self._bench = JobRunner(settings, store, place, zygote, self._metrics)

    @property
    def worker_id(self) -> str:
        """Under which it takes tasks."""
        return self._bench.worker_id

    async def probe(self) -> SandboxStatus:
        """Which layers hold for this worker's jobs, told by a child that does nothing else.

        Raises:
            ZygoteLostError: the zygote could not be started.
        """
        journal = ProbeJournal()
        async with self._bench.folder("probe", PROBE_SLOT) as folder:
            await asyncio.to_thread(folder.model.touch)
            await self._bench.run("probe", PROBE_SLOT, folder, ProbeWork(), journal)
        if journal.sandbox is None:
            raise ZygoteLostError("the probe of the confinement ended without a word")
        return journal.sandbox

    async def handle(self, task: Task) -> None:
        """Do one task and write its result.

        Raises:
            StoreUnavailableError: the store was away for too long; the queue begins the task again.
            PostponedError: the same, since this worker's disk is full, or its zygote does not start.
        """
        with (
            self._metrics.task(task.kind),
            self.hands.holding(task),
            log_fields(worker=self.worker_id),
            log_fields(**task.log_fields),
        ):
            await self._bench.prepare()
            await see_through(self._undertaking(task), self._bench)

    def _undertaking(self, task: Task) -> TaskHandler:
        if task.kind is TaskKind.INSPECT:
            return InspectionTask(task.id, self._bench)
        if task.kind is TaskKind.INVOKE:
            return InvocationTask(task.id, self._bench, self._tracer)
        return CompilationTask(task, self._bench, self.hands, self._tracer)


class ProbeJournal(SilentJournal):
    """Keeps what the probe reports."""

    sandbox: SandboxStatus | None = None

    def write(self, message: Message) -> None:
        """Keep the layers."""
        if isinstance(message, Confined):
            self.sandbox = message.sandbox
