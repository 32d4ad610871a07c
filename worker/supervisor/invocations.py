"""Invocations in the supervisor: fetches the bundle and the inputs, orders the run, writes the result."""

from functools import partial

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.base import Digest, JobId
from bessemer.contract.invocation import OUTPUTS, Invocation
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.store.errors import BlobMissingError, DamagedError, FencedError
from bessemer.store.queue_port import TaskKind
from bessemer.telemetry.logs import log_fields
from bessemer.telemetry.traces import Tracer
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder
from worker.protocol.messages import Invoked
from worker.protocol.order import InvokeWork
from worker.supervisor.attempts import TaskHandler
from worker.supervisor.collect import collect_file
from worker.supervisor.job_record import InvocationRecord
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.outcome import as_problem, conclude
from worker.supervisor.retry import unless_lost
from worker.supervisor.tracing import traced_job


class InvocationTask(TaskHandler):
    """One run of a compiled library; a claim is the number of its attempt."""

    kind = TaskKind.INVOKE

    def __init__(self, invocation_id: JobId, runner: JobRunner, tracer: Tracer) -> None:
        self._id = invocation_id
        self._tracer = tracer
        self._runner = runner
        self._invocations = runner.store.invocations

    def describe(self, claim: int) -> str:
        """By number and invocation."""
        return f"attempt {claim} of invocation {self._id}"

    def take(self) -> int | None:
        """Begin an attempt; an earlier one that still runs is fenced out."""
        return self._invocations.start(self._id, self._runner.worker_id)

    def lost_attempts(self, claim: int) -> int:
        """The row's count."""
        return self._read(claim).lost_attempts

    def hand_back(self, claim: int) -> None:
        """Release the invocation."""
        self._invocations.hand_back(self._id, claim)

    def fail(self, claim: int, problem: Problem) -> None:
        """End the invocation with a problem."""
        self._invocations.fail(self._id, claim, problem)

    def is_cancelled(self, claim: int) -> bool:
        """Check the row."""
        requested = self._invocations.cancel_requested(self._id, claim)
        if requested:
            self._invocations.cancel_finished(self._id, claim)
        return requested

    async def attempt(self, claim: int, lost_attempts: int) -> Problem | None:
        """Run the library in a child, and store its outputs."""
        store_retry = self._runner.store_retry
        invocation = await store_retry.call(partial(self._read, claim))
        parent = await store_retry.call(partial(self._invocations.traceparent, self._id))
        described: dict[str, str | int] = {
            "bessemer.invocation": self._id,
            "bessemer.job": invocation.compilation,
            "bessemer.attempt": claim,
            "bessemer.worker": self._runner.worker_id,
        }
        with (
            log_fields(attempt=claim),
            traced_job(self._tracer, parent, invocation.created_at, described, "invocation") as trace,
        ):
            async with self._runner.folder(f"invoke-{self._id}", SLOTS[self.kind]) as folder:
                result = unless_lost(await self._result(invocation, claim, folder), lost_attempts)
                trace.problem = await store_retry.call(partial(self._write, claim, folder, result))
        return trace.problem

    def _read(self, claim: int) -> Invocation:
        invocation = self._invocations.get(self._id)
        if invocation is None:
            raise FencedError(self._id, claim)
        return invocation

    async def _result(self, invocation: Invocation, attempt: int, folder: JobFolder) -> Invoked | Problem:
        slot = SLOTS[self.kind]
        bundle = await self._runner.store_retry.call(partial(self._bundle, invocation.compilation))
        if bundle is None:
            return make_problem(ErrorCode.INVOCATION_FAILED, "The compilation has no bundle.")
        try:
            for digest, path in ((bundle, folder.model), (invocation.inputs, folder.inputs)):
                await self._runner.fetch(digest, path, slot)
        except (BlobMissingError, DamagedError) as error:
            return make_problem(ErrorCode.INVOCATION_FAILED, str(error))
        work, limit = InvokeWork(runs=invocation.runs), self._runner.settings.limit_invoke_seconds
        record = InvocationRecord(self._invocations, self._id, attempt)
        outcome = await self._runner.run(self._id, slot, folder, work, record, limit)
        result = conclude(outcome)
        return result if isinstance(result, Invoked) else as_problem(result)

    def _bundle(self, compilation: JobId) -> Digest | None:
        job = self._runner.store.jobs.get(compilation)
        artifacts = job.artifacts if job else ()
        return next((artifact.digest for artifact in artifacts if artifact.name == ARCHIVE), None)

    def _write(self, attempt: int, folder: JobFolder, result: Invoked | Problem) -> Problem | None:
        """Write how the invocation ended, and return its problem, if any."""
        artifacts, limit_bytes = self._runner.store.artifacts, self._runner.settings.limit_disk_bytes
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
        if result.code is ErrorCode.CANCELLED:
            self._invocations.cancel_finished(self._id, attempt)
        else:
            self._invocations.fail(self._id, attempt, result)
        return result
