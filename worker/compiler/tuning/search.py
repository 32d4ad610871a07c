"""The search of one task: a space proposes candidates, the candidate server measures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from bessemer.contract.problem import ErrorCode
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.spaces.registry import space_book
from worker.compiler.spaces.space import PLANS, STOCK
from worker.compiler.tuning.policy import MEASURED_ROUNDS, Standing
from worker.compiler.tuning.proposals import (
    FamilyProposals,
    Proposals,
    Refusals,
    SpaceProposals,
    StockProposals,
)
from worker.compiler.tuning.session import TuningSession, measure, tuning_logger
from worker.errors import JobError, ran_out_of_memory


@dataclass
class TaskSearch:
    """The search of one task.

    Attributes:
        plans: the plans of the function's family; None if no family claims it.
        wanted: the space that the request names, if any.
        trial_seconds: one entry for each trial, None if it failed.
    """

    name: str
    weight: int
    module: tvm.IRModule
    plans: Sequence[Any] | None
    wanted: str | None
    session: TuningSession
    index: int
    default_seconds: float | None = None
    exhausted: bool = False
    trial_seconds: list[float | None] = field(default_factory=list)
    best_record: TuningRecord | None = None
    failure: str | None = None
    _proposals: Proposals | None = None

    @property
    def standing(self) -> Standing:
        """The search's progress, for the policy."""
        known = [seconds for seconds in (self.default_seconds, self.best_seconds) if seconds is not None]
        return Standing(
            weight=self.weight,
            trials=len(self.trial_seconds),
            best_seconds=min(known, default=None),
            exhausted=self.exhausted,
            is_named=self.wanted is not None,
            default_seconds=self.default_seconds,
        )

    @property
    def space(self) -> str:
        """The name of the space to search."""
        return self.wanted or (STOCK if self.plans is None else PLANS)

    @property
    def refusals(self) -> Refusals:
        """The draws on which a hand-written space raised."""
        return self._proposals.refusals if isinstance(self._proposals, SpaceProposals) else Refusals()

    @property
    def best_seconds(self) -> float | None:
        """The seconds of the best candidate, excluding the default schedule."""
        return min((seconds for seconds in self.trial_seconds if seconds is not None), default=None)

    def advance(self, trials: int) -> int:
        """Search one round.

        Args:
            trials: maximum number of candidates to measure.

        Returns:
            How many candidates ran or failed; 0 if the space is exhausted.
        """
        candidates = self._propose(trials)
        if not candidates:
            self.exhausted = True
            return 0
        results = measure([candidate.sch.mod for candidate in candidates], self.session, MEASURED_ROUNDS)
        for candidate, result in zip(candidates, results, strict=True):
            self._record(candidate, result)
        assert self._proposals is not None
        self._proposals.learn(candidates, results)
        return len(candidates)

    def _propose(self, trials: int) -> list[MeasureCandidate]:
        try:
            if self._proposals is None:
                self._proposals = self._open_space()
            return self._proposals.next(trials)
        except REFUSALS as error:
            if ran_out_of_memory(error):
                raise
            tuning_logger().warning("%s: no candidates: %s", self.name, error)
            return []

    def _open_space(self) -> Proposals:
        if self.space == STOCK:
            return StockProposals(self.module, self.session, self.index)
        if self.space == PLANS:
            return FamilyProposals(self.module, self._own_plans(), self.default_seconds)
        space = space_book().spaces[self.space]
        return SpaceProposals(self.name, self.module, space, self.session)

    def _own_plans(self) -> Sequence[Any]:
        if self.plans is None:
            raise JobError(ErrorCode.SPACE_FAILED, f"no family claims '{self.name}': it has no plans")
        return self.plans

    def _record(self, candidate: MeasureCandidate, result: RunnerResult) -> None:
        if not result.run_secs:
            tuning_logger().info("%s: failed: %s", self.name, result.error_msg)
            self.trial_seconds.append(None)
            self.failure = result.error_msg
            return
        database = self.session.database
        seconds = min(float(value) for value in result.run_secs)
        record = TuningRecord(
            candidate.sch.trace,
            database.commit_workload(self.module),
            [seconds],
            self.session.target,
            candidate.args_info,
        )
        database.commit_tuning_record(record)
        if self.best_seconds is None or seconds < self.best_seconds:
            self.best_record = record
        self.trial_seconds.append(seconds)
