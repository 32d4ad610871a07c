"""The supervisor's part in compilations and preflights: their order, their journal, and what they leave."""

from functools import partial
from math import inf

from bessemer.contract.job import Compilation
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.store.errors import FencedError
from bessemer.store.queue_port import Task
from bessemer.telemetry.logs import log_fields
from bessemer.telemetry.traces import Tracer
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder
from worker.protocol.messages import Compiled, Message
from worker.protocol.order import CompileWork
from worker.supervisor.attempts import TaskHandler
from worker.supervisor.collect import collect, collect_left
from worker.supervisor.in_flight import InFlight
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.journal import CompilationJournal
from worker.supervisor.outcome import as_problem, conclude, refuse_early_end
from worker.supervisor.remedies import with_remedy
from worker.supervisor.retry import unless_lost
from worker.supervisor.tracing import JobTrace, traced_job


class CompilationTask(TaskHandler):
    """One compilation; a claim is the number of its attempt."""

    def __init__(self, task: Task, bench: JobRunner, hands: InFlight, tracer: Tracer) -> None:
        self.kind = task.kind
        self._id = task.id
        self._slot = SLOTS[task.kind]
        self._bench = bench
        self._jobs = bench.store.jobs
        self._hands = hands
        self._tracer = tracer

    def describe(self, claim: int) -> str:
        """By number and job."""
        return f"attempt {claim} of job {self._id}"

    def take(self) -> int | None:
        """Begin an attempt; whoever had the job in hand is fenced out."""
        return self._jobs.start(self._id, self._bench.worker_id)

    def lost_attempts(self, claim: int) -> int:
        """As the row counts them."""
        return self._read(claim).lost_attempts

    def hand_back(self, claim: int) -> None:
        """Leave the job without a worker."""
        self._jobs.hand_back(self._id, claim)

    def fail(self, claim: int, problem: Problem) -> None:
        """End the job with a problem."""
        self._jobs.fail(self._id, claim, problem)

    def is_cancelled(self, claim: int) -> bool:
        """As its row says."""
        requested = self._jobs.cancel_requested(self._id, claim)
        if requested:
            self._jobs.cancel_finished(self._id, claim)
        return requested

    def lost_workers(self) -> tuple[str, ...]:
        """As the events tell."""
        return self._jobs.lost_workers(self._id)

    async def attempt(self, claim: int, lost_attempts: int) -> Problem | None:
        """Compile under the user's eyes, and take in what the child leaves."""
        job = await self._bench.patience.call(partial(self._read, claim))
        parent = await self._bench.patience.call(partial(self._jobs.traceparent, self._id))
        described: dict[str, str | int] = {
            "bessemer.job": self._id,
            "bessemer.attempt": claim,
            "bessemer.worker": self._bench.worker_id,
        }
        with (
            log_fields(attempt=claim),
            traced_job(self._tracer, parent, job.created_at, described) as trace,
        ):
            async with self._bench.folder(self._id, self._slot) as folder:
                result = unless_lost(await self._result(job, claim, folder, trace), lost_attempts)
                trace.problem = await self._bench.patience.call(partial(self._write, claim, folder, result))
        return trace.problem

    def _read(self, claim: int) -> Compilation:
        job = self._jobs.get(self._id)
        if job is None:
            raise FencedError(self._id, claim)
        return job

    async def _result(
        self, job: Compilation, attempt: int, folder: JobFolder, trace: JobTrace
    ) -> Message | Problem:
        damage = await self._bench.fetch_model(job.request.model, folder, self._slot)
        if damage is not None:
            return damage
        logs = self._bench.store.logs
        journal = CompilationJournal(self._jobs, job.id, attempt, self._hands.begin, logs.write)
        settings, timeout_seconds = self._bench.settings, job.request.timeout_seconds
        work = CompileWork(
            request=job.request.model_copy(update={"name": job.name}),
            measuring=settings.measuring(),
            seconds=min(timeout_seconds or inf, settings.limit_wall_seconds),
        )
        ending = await self._bench.run(job.id, self._slot, folder, work, journal, timeout_seconds, trace)
        result = refuse_early_end(conclude(ending), job.request)
        return with_remedy(result, job.request) if isinstance(result, Problem) else result

    def _write(self, attempt: int, folder: JobFolder, result: Message | Problem) -> Problem | None:
        """Write how the job ended, and return the problem, if there is one."""
        artifacts, limit_bytes = self._bench.store.artifacts, self._bench.settings.limit_disk_bytes
        if isinstance(result, Compiled):
            try:
                files = collect(folder.path, result, artifacts, limit_bytes)
            except MisbehavedError as error:
                result = error.problem(None)
            else:
                self._jobs.succeed(self._id, attempt, result.target, result.verified, result.figures, files)
                return None
        problem = as_problem(result)
        if problem.code is ErrorCode.CANCELLED:
            self._jobs.cancel_finished(self._id, attempt)
        else:
            self._jobs.fail(self._id, attempt, problem, collect_left(folder.path, artifacts, limit_bytes))
        return problem
