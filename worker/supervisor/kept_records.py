"""Keeps the tuning records of one attempt at a compilation: finds them, and stores what it measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from bessemer.contract.cost_model import PackedPlans, packed
from bessemer.contract.job import Compilation
from bessemer.contract.records import JudgedTrial, SearchScope
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.rows.tuning_records import Batch
from bessemer.store.store import Store
from worker.compiler.tuning.cost_model.version import FEATURES
from worker.errors import MisbehavedError
from worker.protocol.messages import (
    MAX_REPORTED_FUNCTIONS,
    NearRecordsRequested,
    PlansMeasured,
    RecordsRequested,
    TrialsJudged,
    TrialsMeasured,
)
from worker.protocol.order import RecordsAnswer
from worker.supervisor.retry import StoreRetry


@dataclass
class JobRecords:
    """The records of one attempt.

    Attributes:
        limit_bytes: the size that the tenant's records may have; None: unlimited.
        scope: what the job has said that its records are about; None before it asked for any.
        judged: what it has said of its records, by function and trace.
        plans: what it has measured of plans, by function, as it is stored.
        stopped: whether its search was asked to stop, since the user wants the best so far.
    """

    store: Store
    retry: StoreRetry
    row: Compilation
    attempt: Attempt
    limit_bytes: int | None = None
    scope: SearchScope | None = None
    judged: dict[tuple[str, str], JudgedTrial] = field(default_factory=dict)
    plans: dict[str, PackedPlans] = field(default_factory=dict)
    stopped: bool = False

    async def answer(
        self, message: RecordsRequested | NearRecordsRequested | TrialsMeasured
    ) -> RecordsAnswer:
        """Find records, or store trials.

        Raises:
            MisbehavedError: the job sends trials, or asks for records of similar functions, before it has
                asked for records.
            FencedError: another attempt at the compilation has begun.
            StoreUnavailableError: the store was unavailable for too long.
        """
        if isinstance(message, RecordsRequested):
            return await self.retry.call(partial(self._find, message))
        if isinstance(message, NearRecordsRequested):
            return await self.retry.call(partial(self._find_near, message))
        return await self.retry.call(partial(self._add, message))

    async def keep(self, message: TrialsJudged | PlansMeasured) -> None:
        """Keep what the job says of its records and plans until it has ended.

        Raises:
            MisbehavedError: it reports the plans of too many functions, or before it has asked for records.
        """
        if isinstance(message, TrialsJudged):
            self.judged |= {(trial.workload, trial.digest): trial for trial in message.judged}
            return
        if self.scope is None:
            raise MisbehavedError("the job reported plans before it asked for records")
        if len(self.plans) == MAX_REPORTED_FUNCTIONS:
            raise MisbehavedError(
                f"the job reported the plans of more than {MAX_REPORTED_FUNCTIONS} functions"
            )
        plans = packed(message.function)
        if plans is not None:
            self.plans[message.function.source] = plans

    def settle(self, succeeded: bool) -> None:
        """Store which records won, once the library is verified; those that lost, in any case. Blocks.

        What was measured of plans is stored of searches that fail later, too.
        """
        if self.scope is None:
            return
        judged = [trial for trial in self.judged.values() if succeeded or not trial.won]
        if judged:
            self.store.records.judge(self.attempt.tenant, self.scope, judged)
        if self.plans:
            self.store.cost_models.add(self.attempt.tenant, self.scope, FEATURES, self.plans)

    def _find(self, message: RecordsRequested) -> RecordsAnswer:
        self.scope = message.scope
        records, options, job = self.store.records, self.row.request.tune, (self.row.id, self.attempt)
        keys = {message.scope.key(function): function for function in message.functions}
        imports = {message.scope.key_of_imports(function): function for function in message.functions}
        if message.applies:
            records.note_read(*job, keys)
        found = (
            records.find(self.attempt.tenant, {**imports, **keys}, options.share_records)
            if options.from_records
            else ()
        )
        searches = options.from_records and not message.applies
        uncompiled = records.find_uncompiled(self.attempt.tenant, keys) if searches else ()
        earlier = records.trials(*job, message.scope)
        return RecordsAnswer(
            stop=self._is_stopped(),
            records=found,
            uncompiled=uncompiled,
            trials=earlier.trials,
            count=earlier.count,
            elapsed_seconds=earlier.elapsed_seconds,
        )

    def _find_near(self, message: NearRecordsRequested) -> RecordsAnswer:
        if self.scope is None:
            raise MisbehavedError("the job asked for records of similar functions before its own")
        options = self.row.request.tune
        near = (
            self.store.records.find_near(
                self.attempt.tenant, self.scope, message.functions, options.share_records
            )
            if options.from_records
            else ()
        )
        return RecordsAnswer(stop=self._is_stopped(), near=near)

    def _add(self, message: TrialsMeasured) -> RecordsAnswer:
        if self.scope is None:
            raise MisbehavedError("the job sent trials before it asked for records")
        batch = Batch(
            first=message.first,
            trials=message.trials,
            workloads=message.workloads,
            elapsed_seconds=message.elapsed_seconds,
            shared=self.row.request.tune.share_records,
            limit_bytes=self.limit_bytes,
        )
        if batch.trials or batch.workloads:
            self.store.records.add(self.row.id, self.attempt, self.scope, batch)
        return RecordsAnswer(stop=self._is_stopped())

    def _is_stopped(self) -> bool:
        self.stopped = self.stopped or self.store.jobs.best_requested(self.row.id, self.attempt)
        return self.stopped
