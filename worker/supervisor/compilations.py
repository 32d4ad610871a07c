"""Compilations and preflights in the supervisor: their order, their record, and their files."""

from functools import partial
from math import inf
from platform import machine

from bessemer.bundle.manifest import ARCHIVE, LIBRARY
from bessemer.contract.base import Digest
from bessemer.contract.capability import needs_of
from bessemer.contract.device import MAX_TIMES, DeviceTask
from bessemer.contract.job import Artifact, Compilation
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.report import DeviceRun
from bessemer.contract.target import platform_of
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.queue_port import Task
from bessemer.store.rows.device_tasks import Wanted, new_task_id
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import TenantStore
from bessemer.telemetry.traces import Tracer
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder
from worker.protocol.messages import Amended, Checked, Compiled, Message
from worker.protocol.order import AmendWork, CheckWork, CompileWork
from worker.supervisor.attempts import RowTask
from worker.supervisor.collect import collect, collect_file, collect_files, collect_left
from worker.supervisor.device_runs import Offer, device_figures
from worker.supervisor.in_flight import InFlight
from worker.supervisor.job_record import CheckRecord, CompilationRecord
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.outcome import (
    Delivered,
    as_problem,
    conclude,
    refuse_early_end,
    with_check,
    with_remedy,
)
from worker.supervisor.tracing import JobTrace

OWN_PLATFORM = platform_of(f"{machine()}-unknown-linux-gnu")


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
    ) -> Message | Delivered | Problem:
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
        on_devices = await self._runner.store_retry.call(partial(self._on_devices, row, attempt))
        work = CompileWork(
            request=row.request.model_copy(update={"name": row.name}),
            extensions=tuple(file for file in uploads if file.digest in row.request.extensions),
            seconds=min(timeout_seconds or inf, settings.limit_wall_seconds),
            by_device=on_devices,
        )
        outcome = await self._runner.run(row.id, slot, folder, work, record, timeout_seconds, (trace,))
        result: Message | Delivered | Problem = refuse_early_end(conclude(outcome), row.request)
        if isinstance(result, Compiled) and ARCHIVE in result.files:
            result = await self._checked(row, attempt, folder, result)
        return with_remedy(result, row.request) if isinstance(result, Problem) else result

    def _on_devices(self, row: Compilation, attempt: Attempt) -> bool:
        """Whether a device verifies the bundle if this worker cannot run it."""
        needs = needs_of(row.request.target)
        if needs is None or not row.request.makes_bundle:
            return False
        platforms = self._runner.store.device_tasks.live_platforms().of(attempt.tenant)
        return row.request.device is not None or needs.platform in platforms

    async def _checked(
        self, row: Compilation, attempt: Attempt, folder: JobFolder, compiled: Compiled
    ) -> Message | Delivered | Problem:
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
        is_checked = result.check is not None
        if is_checked and compiled.left_to_device:
            detail = "the job left the verification to a device although this worker can run the library"
            return make_problem(ErrorCode.CHILD_MISBEHAVED, detail)
        compiled = with_check(compiled, result.check)
        return await self._delivered(row, attempt, bundle.digest, compiled, is_checked=is_checked)

    async def _delivered(
        self, row: Compilation, attempt: Attempt, bundle: Digest, compiled: Compiled, *, is_checked: bool
    ) -> Message | Delivered | Problem:
        """The compilation with the findings of a device, if one is there or needed, or a problem."""
        platform, request = platform_of(compiled.target.triple), row.request
        is_needed = not is_checked or request.device is not None
        if not is_needed and platform == OWN_PLATFORM:
            return compiled
        runner, slot, settings = self._runner, SLOTS[self.kind], self._runner.settings
        task = DeviceTask(
            id=new_task_id(),
            digest=bundle,
            threads=request.target.cores,
            repeat=MAX_TIMES,
            repeat_seconds=request.benchmark.seconds,
            timeout_seconds=settings.limit_invoke_seconds,
            memory_bytes=settings.limit_memory_bytes,
            disk_bytes=settings.limit_disk_bytes,
        )
        features = frozenset(compiled.device_features)
        wanted = Wanted(attempt.tenant, platform, request.device, features)
        offer = Offer(row.id, attempt, task, wanted, required=is_needed)
        run = await runner.devices.run(offer)
        if not isinstance(run, DeviceRun):
            return compiled if run is None else run
        record = CheckRecord(self._jobs, row.id, attempt)
        async with runner.folder(f"amend-{row.id}", slot) as fresh:
            await runner.fetch(BlobKey(attempt.tenant, bundle), fresh.model, slot)
            work = AmendWork(model=request.model, run=run)
            limit_seconds = settings.limit_invoke_seconds
            outcome = await runner.run(f"amend-{row.id}", slot, fresh, work, record, limit_seconds)
            result = conclude(outcome)
            if not isinstance(result, Amended):
                return as_problem(result)
            artifacts = runner.store.artifacts.for_tenant(attempt.tenant)
            store = partial(collect_files, fresh.path, result.files, artifacts, settings.limit_disk_bytes)
            try:
                return Delivered(compiled, run, await runner.store_retry.call(store))
            except MisbehavedError as error:
                return error.problem(None)

    def _write(
        self, attempt: Attempt, folder: JobFolder, result: Message | Delivered | Problem
    ) -> Problem | None:
        artifacts = self._runner.store.artifacts.for_tenant(attempt.tenant)
        limit_bytes = self._runner.settings.limit_disk_bytes
        if isinstance(result, Compiled | Delivered):
            compiled = result if isinstance(result, Compiled) else result.compiled
            try:
                files = collect(folder.path, compiled, artifacts, limit_bytes)
            except MisbehavedError as error:
                result = error.problem(None)
            else:
                self._succeed(attempt, result, files)
                return None
        problem = as_problem(result)
        if problem.code is ErrorCode.CANCELLED:
            self._jobs.cancel_finished(self._id, attempt)
        else:
            self._jobs.fail(self._id, attempt, problem, collect_left(folder.path, artifacts, limit_bytes))
        return problem

    def _succeed(self, attempt: Attempt, result: Compiled | Delivered, files: tuple[Artifact, ...]) -> None:
        if isinstance(result, Compiled):
            self._jobs.succeed(self._id, attempt, result.target, result.verified, result.figures, files)
            return
        compiled, replaced = result.compiled, {file.name: file for file in result.files}
        files = tuple(replaced.get(file.name, file) for file in files)
        library_bytes = next((file.size_bytes for file in files if file.name == LIBRARY), 0)
        figures = compiled.figures or device_figures(result.run, library_bytes)
        self._jobs.succeed(self._id, attempt, compiled.target, True, figures, files)
