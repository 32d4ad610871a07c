"""The supervisor: takes tasks from the queues, has the zygote run them, and alone writes their results.

It imports neither torch nor TVM and never forks; the zygote is started by exec.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial

from bessemer.contract.capability import Capability, Needs, lacks
from bessemer.contract.job import Compilation
from bessemer.contract.model import Inspection, ModelState
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.store.dbos_consumer import open_consumer
from bessemer.store.errors import (
    BlobMissingError,
    DamagedError,
    FencedError,
    StoreUnavailableError,
)
from bessemer.store.queue import Task, TaskKind
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from bessemer.telemetry.logs import log_fields
from bessemer.telemetry.traces import NoTracer, Tracer, open_tracer
from worker.collect import collect, collect_left
from worker.ending import Ending, conclude, refuse_early_end
from worker.errors import MisbehavedError, SandboxIncompleteError, ZygoteLostError
from worker.hands import Hands
from worker.invocations import Bench, Invoker
from worker.job import run_job
from worker.job_folder import JobFolder, make_job_folder, remove_job_folder, seal_model
from worker.journal import CompilationJournal, Journal, SilentJournal
from worker.messages import Compiled, Confined, Inspected, Message
from worker.metrics import WorkerMetrics, served
from worker.observing import UNOBSERVED, Observer, Observers
from worker.order import CompileWork, InspectWork, ProbeWork, StartJob, Work
from worker.presence import Presence, default_worker_id
from worker.settings import WorkerSettings
from worker.tracing import JobTrace, traced_job
from worker.workplace import Workplace, claim_workplace
from worker.zygote_handle import Zygote

MAX_ATTEMPTS = 3
SLOTS = {TaskKind.COMPILE: 0, TaskKind.PREFLIGHT: 1, TaskKind.INSPECT: 1, TaskKind.INVOKE: 1}
PROBE_SLOT = 2

log = logging.getLogger(__name__)


class Supervisor:
    """One worker: two slots, one zygote."""

    def __init__(
        self,
        settings: WorkerSettings,
        store: Store,
        place: Workplace,
        zygote: Zygote,
        metrics: WorkerMetrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.worker_id = settings.worker_id or default_worker_id(place.folder)
        self._settings = settings
        self._store = store
        self._place = place
        self._zygote = zygote
        self._metrics = metrics or WorkerMetrics()
        self.hands = Hands()
        self._tracer = tracer or NoTracer()
        self._invoker = self._make_invoker()

    async def probe(self) -> SandboxStatus:
        """Which layers hold for this worker's jobs, told by a child that does nothing else.

        Raises:
            ZygoteLostError: the zygote could not be started.
        """
        journal = ProbeJournal()
        async with self._folder("probe", PROBE_SLOT) as folder:
            await asyncio.to_thread(folder.model.touch)
            await self._run("probe", PROBE_SLOT, folder, ProbeWork(), journal)
        if journal.sandbox is None:
            raise ZygoteLostError("the probe of the confinement ended without a word")
        return journal.sandbox

    async def handle(self, task: Task) -> None:
        """Do one task and write its result."""
        with (
            self._metrics.task(task.kind),
            self.hands.holding(task),
            log_fields(worker=self.worker_id, **_named(task)),
        ):
            if task.kind is TaskKind.INSPECT:
                await self._inspect(task.id)
            elif task.kind is TaskKind.INVOKE:
                await self._invoker.handle(task.id)
            else:
                await self._compile(task)

    async def _compile(self, task: Task) -> None:
        job_id = task.id
        attempt = await asyncio.to_thread(self._store.jobs.start, job_id, self.worker_id)
        if attempt is None:
            return
        try:
            await self._attempt(task, attempt)
        except ZygoteLostError as error:
            log.warning("job %s attempt %d lost its zygote: %s", job_id, attempt, error)
            await self._compile(task)
        except FencedError:
            log.warning("job %s was taken over by another worker", job_id)
        except StoreUnavailableError:
            raise  # the queue begins the task again
        except Exception as error:
            log.exception("job %s attempt %d failed by our own fault", job_id, attempt)
            problem = self._own_fault(error, f"on attempt {attempt} of job {job_id}")
            with contextlib.suppress(FencedError):  # the fault came after the job's end
                await asyncio.to_thread(self._store.jobs.fail, job_id, attempt, problem)
                self._ended(task.kind, problem)

    async def _attempt(self, task: Task, attempt: int) -> None:
        jobs, job_id, slot = self._store.jobs, task.id, SLOTS[task.kind]
        job = await asyncio.to_thread(jobs.get, job_id)
        if job is None:
            raise FencedError(job_id, attempt)
        if attempt > MAX_ATTEMPTS:
            await asyncio.to_thread(jobs.fail, job_id, attempt, _lost())
            self._ended(task.kind, _lost())
            return
        with log_fields(attempt=attempt):
            async with self._traced(job, attempt) as trace, self._folder(job_id, slot) as folder:
                result = await self._result(job, attempt, folder, slot, trace)
                trace.problem = await asyncio.to_thread(self._write, job_id, attempt, folder, result)
            self._ended(task.kind, trace.problem)

    async def _result(
        self, job: Compilation, attempt: int, folder: JobFolder, slot: int, trace: JobTrace
    ) -> Message | Problem:
        damage = await self._fetch(job.request.model, folder, slot)
        if damage is not None:
            return damage
        journal = CompilationJournal(self._store.jobs, job.id, attempt, self.hands.begin)
        work = CompileWork(request=job.request)
        timeout = job.request.timeout_seconds
        ending = await self._run(job.id, slot, folder, work, journal, timeout, trace)
        return refuse_early_end(conclude(ending), job.request)

    def _write(
        self, job_id: str, attempt: int, folder: JobFolder, result: Message | Problem
    ) -> Problem | None:
        """Write how a job ended, and return the problem, if there is one."""
        jobs, artifacts = self._store.jobs, self._store.artifacts
        if isinstance(result, Compiled):
            try:
                files = collect(folder.path, result, artifacts, self._settings.limit_disk_bytes)
            except MisbehavedError as error:
                result = error.problem(None)
            else:
                jobs.succeed(job_id, attempt, result.target, result.verified, result.figures, files)
                return None
        problem = _as_problem(result)
        if problem.code is ErrorCode.CANCELLED:
            jobs.cancel_finished(job_id, attempt)
        else:
            left = collect_left(folder.path, artifacts, self._settings.limit_disk_bytes)
            jobs.fail(job_id, attempt, problem, left)
        return problem

    async def _inspect(self, digest: str) -> None:
        model = await asyncio.to_thread(self._store.models.get, digest)
        if model is None or model.state is not ModelState.INSPECTING:
            return
        try:
            found = await self._inspection(digest)
        except StoreUnavailableError:
            raise  # the queue begins the task again
        except Exception as error:
            log.exception("the inspection of %s failed by our own fault", digest)
            found = self._own_fault(error, f"during the inspection of {digest}")
        await asyncio.to_thread(self._store.models.finish_inspection, digest, found)
        self._ended(TaskKind.INSPECT, found if isinstance(found, Problem) else None)

    async def _inspection(self, digest: str) -> Inspection | Problem:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return await self._inspected(digest)
            except ZygoteLostError as error:
                log.warning("inspection of %s, attempt %d, lost its zygote: %s", digest, attempt, error)
        return _lost()

    async def _inspected(self, digest: str) -> Inspection | Problem:
        slot = SLOTS[TaskKind.INSPECT]
        async with self._folder(f"inspect-{digest[:16]}", slot) as folder:
            damage = await self._fetch(digest, folder, slot)
            if damage is not None:
                return damage
            limit = self._settings.limit_inspect_seconds
            result = conclude(await self._run(digest, slot, folder, InspectWork(), SilentJournal(), limit))
        return result.inspection if isinstance(result, Inspected) else _as_problem(result)

    def _make_invoker(self) -> Invoker:
        slot = SLOTS[TaskKind.INVOKE]

        def run(name: str, folder: JobFolder, work: Work, seconds: float) -> Awaitable[Ending]:
            return self._run(name, slot, folder, work, SilentJournal(), seconds)

        bench = Bench(
            folder=lambda name: self._folder(name, slot),
            run=run,
            ended=partial(self._metrics.ended, TaskKind.INVOKE),
            uid=self._uid(slot),
        )
        return Invoker(self.worker_id, self._settings, self._store, bench)

    def _own_fault(self, error: Exception, when: str) -> Problem:
        problem = make_problem(ErrorCode.INTERNAL, f"{type(error).__name__} in the supervisor {when}")
        advice = f"This is a defect of Bessemer: please report it with the log of worker {self.worker_id}."
        return problem.model_copy(update={"advice": advice})

    async def _fetch(self, digest: str, folder: JobFolder, slot: int) -> Problem | None:
        try:
            await asyncio.to_thread(self._store.artifacts.fetch_to, digest, folder.model)
        except (BlobMissingError, DamagedError) as error:
            return make_problem(ErrorCode.MODEL_DAMAGED, str(error))
        await asyncio.to_thread(seal_model, folder, self._uid(slot))
        return None

    async def _run(
        self,
        name: str,
        slot: int,
        folder: JobFolder,
        work: Work,
        journal: Journal,
        timeout_seconds: float | None = None,
        observer: Observer = UNOBSERVED,
    ) -> Ending:
        order = StartJob(
            job=name,
            folder=str(folder.path),
            messages=str(folder.messages),
            confinement=self._settings.confinement(self._uid(slot)),
            cores=self._settings.cores,
            work=work,
        )
        limits = self._settings.limits(timeout_seconds)
        with self._metrics.job() as meter:
            observers = Observers((meter, observer))
            return await run_job(self._zygote, order, folder, limits, journal, observers)

    @asynccontextmanager
    async def _traced(self, job: Compilation, attempt: int) -> AsyncIterator[JobTrace]:
        parent = await asyncio.to_thread(self._store.jobs.traceparent, job.id)
        described: dict[str, str | int] = {
            "bessemer.job": job.id,
            "bessemer.attempt": attempt,
            "bessemer.worker": self.worker_id,
        }
        with traced_job(self._tracer, parent, job.created_at, described) as trace:
            yield trace

    def _ended(self, kind: TaskKind, problem: Problem | None) -> None:
        """Tell whoever watches the service of a result that was written."""
        self._metrics.ended(kind, problem)
        log.info("the task ended: %s", problem.code if problem else "succeeded")

    @asynccontextmanager
    async def _folder(self, name: str, slot: int) -> AsyncIterator[JobFolder]:
        path = self._place.jobs / name
        folder = await asyncio.to_thread(make_job_folder, path, self._uid(slot))
        try:
            yield folder
        finally:
            await asyncio.shield(asyncio.to_thread(remove_job_folder, path))

    def _uid(self, slot: int) -> int | None:
        return self._place.slot_uid(self._settings.slot_uid_base, slot)


class ProbeJournal(SilentJournal):
    """Keeps what the probe reports."""

    sandbox: SandboxStatus | None = None

    def write(self, message: Message) -> None:
        """Keep the layers."""
        if isinstance(message, Confined):
            self.sandbox = message.sandbox


async def run_supervisor(settings: WorkerSettings, store_settings: StoreSettings) -> None:
    """Work until cancelled; then end what runs, hand over its tasks and leave.

    Raises:
        StoreUnavailableError: the database or the artifact store cannot be used.
        ZygoteLostError: the zygote could not be started.
        WorkplaceError: the work folder cannot be used.
        SandboxIncompleteError: a required layer of the confinement does not hold.
    """
    store = await asyncio.to_thread(open_store, store_settings)
    try:
        with claim_workplace(settings.work_dir) as place:
            metrics, tracer = WorkerMetrics(), open_tracer("worker")
            zygote = Zygote(place.groups, metrics.zygote_restarts.inc)
            supervisor = Supervisor(settings, store, place, zygote, metrics, tracer)
            try:
                with served(metrics, settings.metrics_host, settings.metrics_port):
                    await _work(supervisor, settings, store, store_settings, zygote)
            finally:
                await asyncio.shield(zygote.stop())
                await asyncio.shield(asyncio.to_thread(tracer.close))
    finally:
        store.close()


async def _work(
    supervisor: Supervisor,
    settings: WorkerSettings,
    store: Store,
    store_settings: StoreSettings,
    zygote: Zygote,
) -> None:
    ready = await zygote.ensure_running()
    sandbox = await supervisor.probe()
    _announce(sandbox)
    if sandbox.mode is SandboxMode.REQUIRED and not sandbox.complete:
        raise SandboxIncompleteError(f"required layers do not hold: {', '.join(sandbox.lost)}")
    presence = Presence(supervisor.worker_id, ready, sandbox, settings.cores, supervisor.hands)
    consumer = open_consumer(store_settings, supervisor.worker_id, partial(_can_take, ready.capability))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(presence.beat(store.workers))
            group.create_task(consumer.run(supervisor.handle))
    finally:
        await asyncio.shield(asyncio.to_thread(_leave, store, supervisor.worker_id))


def _can_take(capability: Capability, needs: str) -> bool:
    return not lacks(capability, Needs.parse(needs))


def _named(task: Task) -> dict[str, str]:
    """What a task is about, for the log."""
    return {"task": task.kind.value, "model" if task.kind is TaskKind.INSPECT else "job": task.id}


def _leave(store: Store, worker_id: str) -> None:
    try:
        store.workers.leave(worker_id)
    except StoreUnavailableError as error:
        log.warning("worker %s will be missed only after a while: %s", worker_id, error)


def _announce(sandbox: SandboxStatus) -> None:
    holding = ", ".join(status.layer for status in sandbox.layers if status.holds) or "none"
    log.info("confinement (%s): %s", sandbox.mode, holding)
    for status in sandbox.layers:
        if not status.holds:
            log.warning("the layer %s does not hold: %s", status.layer, status.note)


def _lost() -> Problem:
    return make_problem(ErrorCode.WORKER_LOST, f"{MAX_ATTEMPTS} workers were lost while they ran it")


def _as_problem(result: Message | Problem) -> Problem:
    if isinstance(result, Problem):
        return result
    return make_problem(ErrorCode.CHILD_MISBEHAVED, f"the job ended with the message '{result.kind}'")
