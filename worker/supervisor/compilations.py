"""Compilations and preflights in the supervisor: their order, their record, and their files."""

from functools import partial
from math import inf

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.job import Compilation
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.queue_port import Task
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import TenantStore
from bessemer.telemetry.traces import Tracer
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder
from worker.protocol.messages import Checked, Compiled, Message
from worker.protocol.order import CheckWork, CompileWork
from worker.supervisor.attempts import RowTask
from worker.supervisor.collect import collect, collect_file, collect_left
from worker.supervisor.device_step import may_use_device, run_on_device
from worker.supervisor.in_flight import InFlight
from worker.supervisor.job_record import CheckRecord, CompilationRecord
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.outcome import as_problem, conclude, refuse_early_end, with_check, with_remedy
from worker.supervisor.tracing import JobTrace


class CompilationTask(RowTask[Compilation]):
    """One compilation or preflight."""

    noun = "job"

    def __init__(self, task: Task, runner: JobRunner, in_flight: InFlight, tracer: Tracer) -> None:
        super().__init__(task.id, runner.store.jobs, runner, tracer)
        self.kind = task.kind
        self._jobs = runner.store.jobs
        self._in_flight = in_flight

    def lost_workers(self) -> tuple[str, ...]:
        """The workers in the job's events."""
        return self._jobs.lost_workers(self._id)

    def _row(self, store: TenantStore) -> Compilation | None:
        return store.jobs.get(self._id)

    def _attributes(self, row: Compilation) -> dict[str, str]:
        return {"bessemer.job": row.id}

    async def _result(
        self, row: Compilation, attempt: Attempt, folder: JobFolder, trace: JobTrace
    ) -> Message | Problem:
        slot = SLOTS[self.kind]
        for digest in row.request.models:
            path = folder.model if digest == row.request.model else folder.model_of_entries(digest)
            damage = await self._runner.fetch_model(BlobKey(attempt.tenant, digest), path, slot)
            if damage is not None:
                return damage
        uploads = await self._runner.fetch_extensions(attempt.tenant, row.request.uploads, folder, slot)
        if isinstance(uploads, Problem):
            return uploads
        logs = self._runner.store.logs
        record = CompilationRecord(self._jobs, row.id, attempt, self._in_flight.begin, logs.write)
        settings, timeout_seconds = self._runner.settings, row.request.timeout_seconds
        use_device = partial(may_use_device, row, attempt.tenant, self._runner.store)
        work = CompileWork(
            request=row.request.model_copy(update={"name": row.name}),
            extensions=tuple(file for file in uploads if file.digest in row.request.extensions),
            seconds=min(timeout_seconds or inf, settings.limit_wall_seconds),
            by_device=await self._runner.store_retry.call(use_device),
        )
        outcome = await self._runner.run(row.id, slot, folder, work, record, timeout_seconds, (trace,))
        result: Message | Problem = refuse_early_end(conclude(outcome), row.request)
        if isinstance(result, Compiled) and ARCHIVE in result.files:
            result = await self._checked(row, attempt, folder, result)
        return with_remedy(result, row.request) if isinstance(result, Problem) else result

    async def _checked(
        self, row: Compilation, attempt: Attempt, folder: JobFolder, compiled: Compiled
    ) -> Message | Problem:
        """The compilation with the findings of a fresh process, or the problem that it found."""
        runner, slot = self._runner, SLOTS[self.kind]
        artifacts = runner.store.artifacts.for_tenant(attempt.tenant)
        store = partial(collect_file, folder.path, ARCHIVE, artifacts, runner.settings.limit_disk_bytes)
        try:
            bundle = await runner.store_retry.call(store)
        except MisbehavedError as error:
            return error.problem(None)
        record = CheckRecord(self._jobs, row.id, attempt)
        async with runner.folder(f"check-{row.id}", slot) as fresh:
            await runner.fetch(BlobKey(attempt.tenant, bundle.digest), fresh.model, slot)
            extensions = await runner.fetch_extensions(attempt.tenant, row.request.extensions, fresh, slot)
            if isinstance(extensions, Problem):
                return extensions
            work = CheckWork(
                model=row.request.model,
                verify=row.request.verify,
                extensions=extensions,
                by_device=compiled.left_to_device,
            )
            limit_seconds = runner.settings.limit_invoke_seconds
            outcome = await runner.run(f"check-{row.id}", slot, fresh, work, record, limit_seconds)
        result = conclude(outcome)
        if not isinstance(result, Checked):
            return as_problem(result)
        compiled = with_check(compiled, result.check)
        return await run_on_device(runner, slot, row, attempt, folder, compiled, result)

    def _write(self, attempt: Attempt, folder: JobFolder, result: Message | Problem) -> Problem | None:
        artifacts = self._runner.store.artifacts.for_tenant(attempt.tenant)
        limit_bytes = self._runner.settings.limit_disk_bytes
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
