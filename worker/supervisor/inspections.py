"""Inspections of uploads in the supervisor."""

from functools import partial

from bessemer.contract.base import Digest
from bessemer.contract.model import Inspection
from bessemer.contract.problem import Problem
from bessemer.store.queue_port import TaskKind
from worker.protocol.messages import Inspected
from worker.protocol.order import InspectWork
from worker.supervisor.attempts import TaskHandler
from worker.supervisor.job_record import JobRecord
from worker.supervisor.job_runner import SLOTS, JobRunner
from worker.supervisor.outcome import as_problem, conclude
from worker.supervisor.retry import unless_lost


class InspectionTask(TaskHandler):
    """One inspection; a claim is the number of its attempt."""

    kind = TaskKind.INSPECT

    def __init__(self, digest: Digest, runner: JobRunner) -> None:
        self._digest = digest
        self._runner = runner
        self._models = runner.store.models

    def describe(self, claim: int) -> str:
        """By the model's digest."""
        return f"the inspection of {self._digest}"

    def take(self) -> int | None:
        """Claim the inspection."""
        return self._models.start(self._digest, self._runner.worker_id)

    def lost_attempts(self, claim: int) -> int:
        """The number that the row has counted."""
        return self._models.lost_attempts(self._digest, claim)

    def hand_back(self, claim: int) -> None:
        """Release the inspection."""
        self._models.hand_back(self._digest, claim)

    def fail(self, claim: int, problem: Problem) -> None:
        """Reject the model."""
        self._finish(claim, problem)

    async def attempt(self, claim: int, lost_attempts: int) -> Problem | None:
        """Inspect the model in a child, and write the result."""
        found = unless_lost(await self._found(), lost_attempts)
        await self._runner.store_retry.call(partial(self._finish, claim, found))
        return found if isinstance(found, Problem) else None

    def _finish(self, claim: int, found: Inspection | Problem) -> None:
        self._models.finish_inspection(self._digest, claim, found)

    async def _found(self) -> Inspection | Problem:
        slot = SLOTS[self.kind]
        async with self._runner.folder(f"inspect-{self._digest[:16]}", slot) as folder:
            damage = await self._runner.fetch_model(self._digest, folder, slot)
            if damage is not None:
                return damage
            limit = self._runner.settings.limit_inspect_seconds
            outcome = await self._runner.run(self._digest, slot, folder, InspectWork(), JobRecord(), limit)
        result = conclude(outcome)
        return result.inspection if isinstance(result, Inspected) else as_problem(result)
