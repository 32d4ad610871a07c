"""Compilations and preflights in the supervisor: their order, their record, and their files."""

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
from worker.supervisor.job_record import CompilationRecord
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.outcome import as_problem, conclude, refuse_early_end, with_remedy
from worker.supervisor.retry import unless_lost
from worker.supervisor.tracing import JobTrace, traced_job


class CompilationTask(TaskHandler):
    """One compilation; a claim is the number of its attempt."""

    def __init__(self, task: Task, runner: JobRunner, in_flight: InFlight, tracer: Tracer) -> None:
        self.kind = task.kind
        self._id = task.id
        self._slot = SLOTS[task.kind]
        self._runner = runner
        self._jobs = runner.store.jobs
        self._in_flight = in_flight
        self._tracer = tracer

    def describe(self, claim: int) -> str:
        """By number and job."""
        return f"attempt {claim} of job {self._id}"

    def take(self) -> int | None:
        """Begin an attempt; an earlier one that still runs is fenced out."""
        return self._jobs.start(self._id, self._runner.worker_id)

    def lost_attempts(self, claim: int) -> int:
        """The row's count."""
        return self._read(claim).lost_attempts

    def hand_back(self, claim: int) -> None:
        """Release the job."""
        self._jobs.hand_back(self._id, claim)

    def fail(self, claim: int, problem: Problem) -> None:
        """End the job with a problem."""
        self._jobs.fail(self._id, claim, problem)

    def is_cancelled(self, claim: int) -> bool:
        """Check the row."""
        requested = self._jobs.cancel_requested(self._id, claim)
        if requested:
            self._jobs.cancel_finished(self._id, claim)
        return requested

    def lost_workers(self) -> tuple[str, ...]:
        """The workers in the job's events."""
        return self._jobs.lost_workers(self._id)

    async def attempt(self, claim: int, lost_attempts: int) -> Problem | None:
        """Compile in a child, and store the files that it leaves."""
        job = await self._runner.store_retry.call(partial(self._read, claim))
        parent = await self._runner.store_retry.call(partial(self._jobs.traceparent, self._id))
        described: dict[str, str | int] = {
            "bessemer.job": self._id,
            "bessemer.attempt": claim,
            "bessemer.worker": self._runner.worker_id,
        }
        with (
            log_fields(attempt=claim),
            traced_job(self._tracer, parent, job.created_at, described) as trace,
        ):
            async with self._runner.folder(self._id, self._slot) as folder:
                result = unless_lost(await self._result(job, claim, folder, trace), lost_attempts)
                trace.problem = await self._runner.store_retry.call(
                    partial(self._write, claim, folder, result)
                )
        return trace.problem

    def _read(self, claim: int) -> Compilation:
        job = self._jobs.get(self._id)
        if job is None:
            raise FencedError(self._id, claim)
        return job

    async def _result(
        self, job: Compilation, attempt: int, folder: JobFolder, trace: JobTrace
    ) -> Message | Problem:
        damage = await self._runner.fetch_model(job.request.model, folder, self._slot)
        if damage is not None:
            return damage
        logs = self._runner.store.logs
        record = CompilationRecord(self._jobs, job.id, attempt, self._in_flight.begin, logs.write)
        settings, timeout_seconds = self._runner.settings, job.request.timeout_seconds
        work = CompileWork(
            request=job.request.model_copy(update={"name": job.name}),
            measuring=settings.measuring(),
            seconds=min(timeout_seconds or inf, settings.limit_wall_seconds),
        )
        outcome = await self._runner.run(job.id, self._slot, folder, work, record, timeout_seconds, (trace,))
        result = refuse_early_end(conclude(outcome), job.request)
        return with_remedy(result, job.request) if isinstance(result, Problem) else result

    def _write(self, attempt: int, folder: JobFolder, result: Message | Problem) -> Problem | None:
        """Write how the job ended, and return its problem, if any."""
        artifacts, limit_bytes = self._runner.store.artifacts, self._runner.settings.limit_disk_bytes
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
