"""Compilations and preflights in the supervisor: their order, their record, and their files."""

import asyncio
from collections.abc import Mapping
from functools import partial
from math import inf

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.base import Digest, now
from bessemer.contract.identity import WorkerKind, identity_of
from bessemer.contract.job import Artifact, Compilation
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.contract.target import ResolvedTarget, gpus_of
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.blobs.tenant_artifacts import TenantArtifacts
from bessemer.store.queue_port import Task
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import TenantStore
from bessemer.telemetry.traces import Tracer
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder
from worker.measure.machine import processor
from worker.protocol.messages import (
    CandidatesBuilt,
    Compiled,
    EarlyBundleMade,
    Message,
    NearRecordsRequested,
    ObjectsRequested,
    PlansMeasured,
    RecordsRequested,
    TrialsJudged,
    TrialsMeasured,
)
from worker.protocol.order import CheckWork, CompileWork
from worker.supervisor.attempts import CancellableTask
from worker.supervisor.check_step import run_check
from worker.supervisor.collect import collect, collect_content, collect_left
from worker.supervisor.device_step import may_use_device, run_on_device, searches_on_device
from worker.supervisor.early_bundles import EarlyBundles
from worker.supervisor.in_flight import InFlight
from worker.supervisor.job import Services
from worker.supervisor.job_record import CompilationRecord
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.kept_records import JobRecords
from worker.supervisor.object_cache import ObjectCache
from worker.supervisor.outcome import as_problem, conclude, refuse_early_end, with_check, with_remedy
from worker.supervisor.provenance import Making, add_to_archive, make_statement, provenance_files
from worker.supervisor.search_step import SearchOnDevices
from worker.supervisor.tracing import JobTrace


class CompilationTask(CancellableTask[Compilation]):
    """One compilation or preflight."""

    noun = "job"

    def __init__(
        self, task: Task, runner: JobRunner, in_flight: InFlight, tracer: Tracer, cache: ObjectCache | None
    ) -> None:
        super().__init__(task.id, runner.store.jobs, runner, tracer)
        self.kind = task.kind
        self._jobs = runner.store.jobs
        self._identity: Digest | None = None
        self._target: ResolvedTarget | None = None
        self._bundle: Mapping[str, Digest] = {}
        self._provenance: Mapping[str, bytes] = {}
        self._stored: dict[str, Artifact] = {}
        self._in_flight = in_flight
        self._cache = cache
        self._records: JobRecords | None = None

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
        self._stored = {}
        for digest in row.request.models:
            path = folder.model if digest == row.request.model else folder.model_of_entries(digest)
            damage = await self._runner.fetch_model(BlobKey(attempt.tenant, digest), path, slot)
            if damage is not None:
                return damage
        extensions = await self._runner.fetch_extensions(attempt.tenant, row.request, folder, slot)
        if isinstance(extensions, Problem):
            return extensions
        uploads = list(extensions)
        for digest in row.request.uploads[len(extensions) :]:
            found = await self._runner.fetch_extension(attempt.tenant, digest, {}, folder, slot)
            if isinstance(found, Problem):
                return found
            uploads.append(found)
        if row.request.searches:
            await self._runner.give_cost_model(attempt.tenant, folder, slot)
        logs = self._runner.store.logs
        record = CompilationRecord(self._jobs, row.id, attempt, self._in_flight.begin, logs.write)
        settings, timeout_seconds = self._runner.settings, row.request.timeout_seconds
        ready = await self._runner.ready()
        gpus = tuple(gpu.name for gpu in ready.capability.gpus)
        kind = WorkerKind(ready.compiler, ready.mcpu, processor(), settings.cores, gpus)
        making = Making(row, tuple(uploads), ready, self._runner.worker_id, settings.cores)
        self._target = making.target
        self._identity = identity_of(row.request, {file.digest: file.name for file in uploads}, kind)
        of_row = (row, attempt.tenant, self._runner.store)
        use_device = partial(may_use_device, *of_row)
        searches = await self._runner.store_retry.call(partial(searches_on_device, *of_row))
        search = SearchOnDevices(self._runner, row, attempt, folder, record)
        early = EarlyBundles(self._runner, making, attempt, folder, record)
        limit_bytes = self._runner.quotas.of(attempt.tenant).record_bytes
        records = JobRecords(self._runner.store, self._runner.store_retry, row, attempt, limit_bytes)
        self._records = records
        objects = None
        if self._cache is not None:
            uid = self._runner.uid(slot)
            objects = self._cache.of_job(folder, uid, attempt.tenant, ready.compiler)
        work = CompileWork(
            request=row.request.model_copy(update={"name": row.name}),
            extensions=extensions,
            seconds=min(timeout_seconds or inf, settings.limit_wall_seconds),
            by_device=await self._runner.store_retry.call(use_device),
            searches_on_device=searches,
            keeps_records=True,
            has_objects=objects is not None,
        )
        services: Services = {
            RecordsRequested: records.answer,
            NearRecordsRequested: records.answer,
            TrialsMeasured: records.answer,
            TrialsJudged: records.keep,
            PlansMeasured: records.keep,
            **({CandidatesBuilt: search.time} if searches else {}),
            **({EarlyBundleMade: early.publish} if row.request.tune.publish_early else {}),
            **({} if objects is None else {ObjectsRequested: objects.find}),
        }
        outcome = await self._runner.run(
            *(row.id, slot, folder, work, record, timeout_seconds, (trace,), services),
            on_gpu=_runs_on_gpu(row),
        )
        result: Message | Problem = refuse_early_end(conclude(outcome), row.request)
        if isinstance(result, Compiled) and ARCHIVE in result.files:
            result = await self._checked(making, attempt, folder, result)
        if isinstance(result, Compiled) and objects is not None:
            await objects.settle()
        return with_remedy(result, row.request) if isinstance(result, Problem) else result

    async def _checked(
        self, making: Making, attempt: Attempt, folder: JobFolder, compiled: Compiled
    ) -> Message | Problem:
        """The compilation with the findings of a fresh process, or the problem that it found."""
        runner, slot, row = self._runner, SLOTS[self.kind], making.row
        work = partial(CheckWork, runs=row.request.is_verified, by_device=compiled.left_to_device)
        name, on_gpu = f"check-{row.id}", _runs_on_gpu(row)
        try:
            checked = await run_check(runner, slot, row, attempt, name, folder, work, on_gpu)
        except MisbehavedError as error:
            return error.problem(None)
        if isinstance(checked, Problem):
            return checked
        result, self._bundle = checked
        compiled = with_check(compiled, result.check)
        if row.request.is_verified:
            found = await run_on_device(runner, slot, row, attempt, folder, compiled, result)
            if isinstance(found, Problem):
                return found
            compiled = found.compiled
            self._bundle = found.amended or self._bundle
        statement = make_statement(making, self._bundle, now())
        self._provenance = provenance_files(statement, runner.signing_key)
        try:
            await asyncio.to_thread(add_to_archive, folder.output / ARCHIVE, self._provenance)
        except MisbehavedError as error:
            return error.problem(None)
        return compiled

    def _write(self, attempt: Attempt, folder: JobFolder, result: Message | Problem) -> Problem | None:
        artifacts = self._runner.store.artifacts.for_tenant(attempt.tenant)
        limit_bytes = self._runner.settings.limit_disk_bytes
        if isinstance(result, Compiled):
            assert self._target is not None
            try:
                files = self._collected(folder, result, artifacts)
            except MisbehavedError as error:
                result = error.problem(None)
            else:
                found = (self._target, result.verified, result.figures, files)
                is_whole = self._records is None or not self._records.stopped
                self._settle_records(succeeded=result.verified is True)
                identity = self._identity if is_whole else None
                self._jobs.succeed(self._id, attempt, *found, identity, result.compiles)
                return None
        problem = as_problem(result)
        self._settle_records(succeeded=False)
        if problem.code is ErrorCode.CANCELLED:
            self._jobs.cancel_finished(self._id, attempt)
        else:
            self._jobs.fail(self._id, attempt, problem, collect_left(folder.path, artifacts, limit_bytes))
        return problem

    def _settle_records(self, succeeded: bool) -> None:
        if self._records is not None:
            self._records.settle(succeeded)

    def _collected(
        self, folder: JobFolder, compiled: Compiled, artifacts: TenantArtifacts
    ) -> tuple[Artifact, ...]:
        """Store the child's files, and the provenance in the bundle and beside it.

        Raises:
            MisbehavedError: see ``collect``; or a file beside the bundle is not the one in it.
        """
        limit_bytes = self._runner.settings.limit_disk_bytes
        files = collect(folder.path, compiled, artifacts, limit_bytes, self._stored)
        for file in files:
            if self._bundle.get(file.name, file.digest) != file.digest:
                raise MisbehavedError(f"{file.name!r} is not the file of that name in its bundle")
        own = (collect_content(name, text, artifacts) for name, text in self._provenance.items())
        return (*files, *own)


def _runs_on_gpu(row: Compilation) -> bool:
    """Whether processes of the job run kernels on a GPU, if the worker has one."""
    return row.request.is_verified and bool(gpus_of(row.request.target))
