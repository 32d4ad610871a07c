"""Inspections of uploads in the supervisor."""

from functools import partial

from bessemer.contract.model import Inspection
from bessemer.contract.problem import Problem
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.errors import FencedError
from bessemer.store.queue_port import TaskKind
from bessemer.store.rows.lifecycle import Attempt
from bessemer.telemetry.logs import add_log_fields
from worker.protocol.messages import Inspected
from worker.protocol.order import InspectWork
from worker.supervisor.attempts import TaskHandler
from worker.supervisor.job_record import JobRecord
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.outcome import as_problem, conclude
from worker.supervisor.retry import unless_lost


class InspectionTask(TaskHandler):
    """One inspection."""

    kind = TaskKind.INSPECT

    def __init__(self, model_id: str, runner: JobRunner) -> None:
        self._models = runner.store.models
        super().__init__(model_id, self._models, runner)

    def describe(self, claim: Attempt) -> str:
        """By the model's id."""
        return f"the inspection of model {self._id}"

    def fail(self, claim: Attempt, problem: Problem) -> None:
        """Reject the model."""
        self._finish(claim, problem)

    async def attempt(self, claim: Attempt, lost_attempts: int) -> Problem | None:
        """Inspect the model in a child, and write the result."""
        found = unless_lost(await self._found(claim), lost_attempts)
        await self._runner.store_retry.call(partial(self._finish, claim, found))
        return found if isinstance(found, Problem) else None

    def _finish(self, claim: Attempt, found: Inspection | Problem) -> None:
        self._models.finish_inspection(self._id, claim, found)

    async def _found(self, claim: Attempt) -> Inspection | Problem:
        slot, store_retry = SLOTS[self.kind], self._runner.store_retry
        digest = await store_retry.call(partial(self._models.digest, self._id))
        if digest is None:
            raise FencedError(self._id, claim.number)
        add_log_fields(model=digest)
        async with self._runner.folder(f"inspect-{self._id}", slot) as folder:
            damage = await self._runner.fetch_model(BlobKey(claim.tenant, digest), folder.model, slot)
            if damage is not None:
                return damage
            limit = self._runner.settings.limit_inspect_seconds
            outcome = await self._runner.run(self._id, slot, folder, InspectWork(), JobRecord(), limit)
        result = conclude(outcome)
        return result.inspection if isinstance(result, Inspected) else as_problem(result)
