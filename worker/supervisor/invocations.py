"""Invocations in the supervisor: fetches the bundle and the inputs, orders the run, writes the result."""

from functools import partial

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest, JobId
from bessemer.contract.invocation import OUTPUTS, Invocation
from bessemer.contract.job import Compilation
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.errors import BlobMissingError, DamagedError
from bessemer.store.queue_port import TaskKind
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import TenantStore
from bessemer.telemetry.traces import Tracer
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder
from worker.protocol.messages import Invoked, Message
from worker.protocol.order import ExtensionFile, InvokeWork
from worker.supervisor.attempts import CancellableTask
from worker.supervisor.collect import collect_file
from worker.supervisor.job_record import InvocationRecord
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.outcome import as_problem, conclude
from worker.supervisor.tracing import JobTrace


class InvocationTask(CancellableTask[Invocation]):
    """One run of a compiled library."""

    kind = TaskKind.INVOKE
    noun = "invocation"
    folder_prefix = "invoke-"

    def __init__(self, invocation_id: JobId, runner: JobRunner, tracer: Tracer) -> None:
        super().__init__(invocation_id, runner.store.invocations, runner, tracer)
        self._invocations = runner.store.invocations

    def _row(self, store: TenantStore) -> Invocation | None:
        return store.invocations.get(self._id)

    def _attributes(self, row: Invocation) -> dict[str, str]:
        return {"bessemer.invocation": row.id, "bessemer.job": row.compilation}

    async def _result(
        self, row: Invocation, attempt: Attempt, folder: JobFolder, trace: JobTrace
    ) -> Message | Problem:
        slot = SLOTS[self.kind]
        job = await self._runner.store_retry.call(partial(self._job, attempt.tenant, row.compilation))
        bundle = None if job is None else _bundle_of(job)
        if job is None or bundle is None:
            return make_problem(ErrorCode.INVOCATION_FAILED, "The compilation has no bundle.")
        try:
            for digest, path in ((bundle, folder.model), (row.inputs, folder.inputs)):
                await self._runner.fetch(BlobKey(attempt.tenant, digest), path, slot)
        except (BlobMissingError, DamagedError) as error:
            return make_problem(ErrorCode.INVOCATION_FAILED, str(error))
        # most libraries do not need the extensions that were compiled with, so some may be gone
        found = [
            await self._runner.fetch_extension(
                attempt.tenant, digest, job.request.extension_names, folder, slot
            )
            for digest in job.request.extensions
        ]
        extensions = tuple(file for file in found if isinstance(file, ExtensionFile))
        work = InvokeWork(runs=row.runs, entry=row.entry, extensions=extensions)
        limit = self._runner.settings.limit_invoke_seconds
        record = InvocationRecord(self._invocations, self._id, attempt)
        on_gpu = job.target is not None and bool(job.target.gpus)
        outcome = await self._runner.run(self._id, slot, folder, work, record, limit, on_gpu=on_gpu)
        return conclude(outcome)

    def _job(self, tenant: Tenant, compilation: JobId) -> Compilation | None:
        return self._runner.store.for_tenant(tenant).jobs.get(compilation)

    def _write(self, attempt: Attempt, folder: JobFolder, result: Message | Problem) -> Problem | None:
        artifacts = self._runner.store.artifacts.for_tenant(attempt.tenant)
        limit_bytes = self._runner.settings.limit_disk_bytes
        if isinstance(result, Invoked):
            try:
                outputs = collect_file(folder.path, OUTPUTS, artifacts, limit_bytes)
            except MisbehavedError as error:
                result = error.problem(None)
            else:
                self._invocations.succeed(
                    self._id, attempt, result.threads, result.latency, result.outputs, outputs
                )
                return None
        problem = as_problem(result)
        if problem.code is ErrorCode.CANCELLED:
            self._invocations.cancel_finished(self._id, attempt)
        else:
            self._invocations.fail(self._id, attempt, problem)
        return problem


def _bundle_of(job: Compilation) -> Digest | None:
    return next((artifact.digest for artifact in job.artifacts if artifact.name == ARCHIVE), None)
