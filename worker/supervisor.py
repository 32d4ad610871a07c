"""The supervisor: takes tasks from the queues, has the zygote run them, and alone writes their results.

It imports neither torch nor TVM and never forks; the zygote is started by exec.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from bessemer.contract.job import Compilation, EventType
from bessemer.contract.model import Inspection
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.sandbox import SandboxStatus
from bessemer.store.errors import FencedError, StoreUnavailableError
from bessemer.store.queue import PostponedError, Task, TaskKind
from bessemer.store.store import Store
from bessemer.telemetry.logs import log_fields
from bessemer.telemetry.traces import NoTracer, Tracer
from worker.collect import collect, collect_left
from worker.ending import Ending, conclude, refuse_early_end
from worker.errors import AttemptLostError, MisbehavedError, ZygoteLostError
from worker.hands import Hands
from worker.invocations import Bench, Invoker
from worker.job_folder import JobFolder
from worker.journal import CompilationJournal, SilentJournal
from worker.messages import Compiled, Confined, Inspected, Message
from worker.metrics import WorkerMetrics
from worker.order import CompileWork, InspectWork, ProbeWork, Work
from worker.presence import default_worker_id
from worker.retry import is_full, is_given_up, lost, retry_helps
from worker.settings import WorkerSettings
from worker.tracing import JobTrace, traced_job
from worker.workbench import PROBE_SLOT, SLOTS, Workbench
from worker.workplace import Workplace
from worker.zygote_handle import Zygote

MAX_EVENTS = 100_000

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
        self.hands = Hands()
        self._metrics = metrics or WorkerMetrics()
        self._tracer = tracer or NoTracer()
        self._bench = Workbench(settings, store.artifacts, place, zygote, self._metrics)
        self._invoker = self._make_invoker()

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
            log_fields(worker=self.worker_id, **_named(task)),
        ):
            await self._bench.prepare()
            if task.kind is TaskKind.INSPECT:
                await self._inspect(task.id)
            elif task.kind is TaskKind.INVOKE:
                await self._invoker.handle(task.id)
            else:
                await self._compile(task)

    async def _compile(self, task: Task) -> None:
        job_id = task.id
        attempt = await self._bench.patience.call(partial(self._store.jobs.start, job_id, self.worker_id))
        if attempt is None:
            return
        try:
            async with self._handing_back(partial(self._store.jobs.hand_back, job_id, attempt)):
                await self._attempt(task, attempt)
        except AttemptLostError as error:
            log.warning("attempt %d of job %s is lost: %s", attempt, job_id, error)
            await self._bench.prepare()
            await self._compile(task)
        except FencedError:
            log.warning("job %s was taken over by another worker", job_id)
        except (StoreUnavailableError, PostponedError):
            raise
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
        if is_given_up(job.lost_attempts):
            problem = lost(job.lost_attempts, await asyncio.to_thread(self._lost_workers, job_id))
            await asyncio.to_thread(jobs.fail, job_id, attempt, problem)
            self._ended(task.kind, problem)
            return
        with log_fields(attempt=attempt):
            async with self._traced(job, attempt) as trace, self._bench.folder(job_id, slot) as folder:
                result = await self._result(job, attempt, folder, slot, trace)
                if isinstance(result, Problem) and retry_helps(result, job.lost_attempts):
                    raise AttemptLostError(result.detail)
                write = partial(self._write, job_id, attempt, folder, result)
                trace.problem = await self._bench.patience.call(write)
            self._ended(task.kind, trace.problem)

    async def _result(
        self, job: Compilation, attempt: int, folder: JobFolder, slot: int, trace: JobTrace
    ) -> Message | Problem:
        damage = await self._bench.fetch(job.request.model, folder, slot)
        if damage is not None:
            return damage
        journal = CompilationJournal(
            self._store.jobs, job.id, attempt, self.hands.begin, self._store.logs.write
        )
        work = CompileWork(request=job.request, measuring=self._settings.measuring())
        timeout = job.request.timeout_seconds
        ending = await self._bench.run(job.id, slot, folder, work, journal, timeout, trace)
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
        models, patience = self._store.models, self._bench.patience
        lost_attempts = await patience.call(partial(models.take, digest, self.worker_id))
        if lost_attempts is None:
            return
        try:
            async with self._handing_back(partial(models.hand_back, digest, self.worker_id)):
                found = await self._inspected(digest, lost_attempts)
        except AttemptLostError as error:
            log.warning("an inspection of %s is lost: %s", digest, error)
            await self._bench.prepare()
            await self._inspect(digest)
            return
        except (StoreUnavailableError, PostponedError):
            raise
        except Exception as error:
            log.exception("the inspection of %s failed by our own fault", digest)
            found = self._own_fault(error, f"during the inspection of {digest}")
        await patience.call(partial(models.finish_inspection, digest, found))
        self._ended(TaskKind.INSPECT, found if isinstance(found, Problem) else None)

    async def _inspected(self, digest: str, lost_attempts: int) -> Inspection | Problem:
        if is_given_up(lost_attempts):
            return lost(lost_attempts)
        slot = SLOTS[TaskKind.INSPECT]
        async with self._bench.folder(f"inspect-{digest[:16]}", slot) as folder:
            damage = await self._bench.fetch(digest, folder, slot)
            if damage is not None:
                return damage
            limit = self._settings.limit_inspect_seconds
            ending = await self._bench.run(digest, slot, folder, InspectWork(), SilentJournal(), limit)
        result = conclude(ending)
        if isinstance(result, Inspected):
            return result.inspection
        problem = _as_problem(result)
        if retry_helps(problem, lost_attempts):
            raise AttemptLostError(problem.detail)
        return problem

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
    async def _handing_back(self, hand_back: Callable[[], None]) -> AsyncIterator[None]:
        """Where what runs inside stops through no fault of the task's, let go of the task."""
        try:
            yield
        except (asyncio.CancelledError, StoreUnavailableError):
            await asyncio.shield(asyncio.to_thread(_let_go, hand_back))
            raise
        except OSError as error:
            if not is_full(error):
                raise
            await asyncio.to_thread(_let_go, hand_back)
            raise PostponedError(f"the disk of worker {self.worker_id} is full: {error}") from error

    def _lost_workers(self, job_id: str) -> tuple[str, ...]:
        """Who had the attempts before this one in hand."""
        events = self._store.jobs.events_after(job_id, 0, MAX_EVENTS)
        *lost, _ = (str(event.data["worker"]) for event in events if event.type is EventType.STARTED)
        return tuple(lost)

    def _make_invoker(self) -> Invoker:
        slot = SLOTS[TaskKind.INVOKE]

        def run(name: str, folder: JobFolder, work: Work, seconds: float) -> Awaitable[Ending]:
            return self._bench.run(name, slot, folder, work, SilentJournal(), seconds)

        bench = Bench(
            folder=lambda name: self._bench.folder(name, slot),
            run=run,
            ended=partial(self._ended, TaskKind.INVOKE),
            uid=self._bench.uid(slot),
        )
        return Invoker(self.worker_id, self._settings, self._store, bench)

    def _own_fault(self, error: Exception, when: str) -> Problem:
        problem = make_problem(ErrorCode.INTERNAL, f"{type(error).__name__} in the supervisor {when}")
        advice = f"This is a defect of Bessemer: please report it with the log of worker {self.worker_id}."
        return problem.model_copy(update={"advice": advice})


class ProbeJournal(SilentJournal):
    """Keeps what the probe reports."""

    sandbox: SandboxStatus | None = None

    def write(self, message: Message) -> None:
        """Keep the layers."""
        if isinstance(message, Confined):
            self.sandbox = message.sandbox


def _named(task: Task) -> dict[str, str]:
    """What a task is about, for the log."""
    names = {TaskKind.INSPECT: "model", TaskKind.INVOKE: "invocation"}
    return {"task": task.kind.value, names.get(task.kind, "job"): task.id}


def _let_go(hand_back: Callable[[], None]) -> None:
    try:
        hand_back()
    except FencedError:
        return
    except StoreUnavailableError as error:
        log.warning("this attempt will count as lost: %s", error)


def _as_problem(result: Message | Problem) -> Problem:
    if isinstance(result, Problem):
        return result
    return make_problem(ErrorCode.CHILD_MISBEHAVED, f"the job ended with the message '{result.kind}'")
