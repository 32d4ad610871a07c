"""The search of one task: a space proposes candidates, the candidate server measures them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import tvm
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from bessemer.contract.base import Digest
from bessemer.contract.options import SearchMethod
from bessemer.contract.problem import ErrorCode
from bessemer.contract.records import trace_digest
from worker.candidates.requests import NO_TIME
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.spaces.registry import space_book
from worker.compiler.spaces.space import LAYOUT, PLANS, RECORDS, STOCK
from worker.compiler.tuning.assignment import Assignment
from worker.compiler.tuning.cost_model.features import family_of
from worker.compiler.tuning.cost_model.ranking import in_order, ranker_for
from worker.compiler.tuning.given_records import RecordProposals
from worker.compiler.tuning.near_misses import Advice
from worker.compiler.tuning.proposals import (
    FAILED_BEFORE,
    FamilyProposals,
    Proposals,
    Refusals,
    SpaceProposals,
    StockProposals,
)
from worker.compiler.tuning.ranker import Ranker
from worker.compiler.tuning.session import TuningSession, measure, tuning_logger
from worker.compiler.tuning.stored_records import Function, RestoredTrial, trace_text
from worker.compiler.tuning.trial_budget import MEASURED_ROUNDS, ROUND_TRIALS, Standing
from worker.errors import JobError, ran_out_of_memory


class Trial(NamedTuple):
    """The space that proposed a candidate, and its seconds; None if it failed."""

    space: str
    seconds: float | None


class Compared(NamedTuple):
    """A record that was measured beside the default schedule, and whether it was faster."""

    record: TuningRecord | None = None
    won: bool = False


_REPEATS = 4
"""How often a replay may draw nothing but schedules that it has drawn before."""


def _digest_of(candidate: MeasureCandidate) -> Digest:
    return trace_digest(trace_text(candidate.sch))


def spaces_to_search(has_plans: bool, method: SearchMethod) -> tuple[str, ...]:
    """The spaces of a function that the request does not name, in order."""
    plans = (PLANS,) if has_plans else ()
    match method:
        case SearchMethod.PLANS:
            return plans
        case SearchMethod.METASCHEDULE:
            return (STOCK,)
        case SearchMethod.BOTH:
            return (*plans, STOCK)


@dataclass
class TaskSearch:
    """The search of one task, one space after another.

    Attributes:
        plans: the plans of the function's family; None if no family claims it.
        wanted: the space that the request names, if any.
        misfit: why the space that a pattern names does not fit the function.
        records: the request's records of the function, the fastest first; then the service's.
        uncompiled: the digests of this function's schedules that did not compile in earlier searches.
        passed_over: those digests that were proposed again, and not measured.
        advice: schedules that were fast for similar functions, if there are no records of this one.
        restored: the trials of earlier attempts that its spaces go on from.
        restored_layouts: their trials of what the layout phase may choose otherwise.
        compared: the record that was last measured beside the default schedule.
        won_record: the last record that was faster than the default schedule beside it.
        plan_seconds: the plans that were measured, with their times.
    """

    name: str
    weight: int
    module: tvm.IRModule
    plans: Sequence[Any] | None
    wanted: Assignment | None
    session: TuningSession
    index: int
    default_seconds: float | None = None
    trials: list[Trial] = field(default_factory=list)
    best_record: TuningRecord | None = None
    failure: str | None = None
    misfit: JobError | None = None
    records: Sequence[TuningRecord] = ()
    uncompiled: Set[Digest] = frozenset()
    passed_over: set[Digest] = field(default_factory=set)
    advice: Advice = field(default_factory=Advice)
    restored: list[RestoredTrial] = field(default_factory=list)
    restored_layouts: list[RestoredTrial] = field(default_factory=list)
    compared: Compared = field(default_factory=Compared)
    won_record: TuningRecord | None = None
    plan_seconds: dict[Any, float] = field(default_factory=dict)
    _exhausted_spaces: int = 0
    _proposals: Proposals | None = None

    @property
    def function(self) -> Function:
        """The function, with the family that claims it."""
        return Function(self.name, self.module, family_of(self.plans[0]) if self.plans else None)

    @property
    def standing(self) -> Standing:
        """The search's progress, for the policy."""
        known = [seconds for seconds in (self.default_seconds, self.best_seconds) if seconds is not None]
        return Standing(
            weight=self.weight,
            trials=len(self.trials),
            best_seconds=min(known, default=None),
            exhausted=self.exhausted or self.is_capped,
            is_named=self.wanted is not None,
            default_seconds=self.default_seconds,
            has_plans=self.space in (RECORDS, PLANS) and self.wanted is None,
            follows_plans=self.space == STOCK and PLANS in self.spaces,
            is_capped=self.is_capped,
            latest_gain=self._latest_gain,
            is_compared=self.best_record is not None and self.best_record is self.compared.record,
            space=self.space,
            has_proposed=isinstance(self._proposals, StockProposals) and self._proposals.has_drawn,
        )

    @property
    def _latest_gain(self) -> float:
        """By how many seconds the latest round's trials beat everything before them."""
        latest = len(self.trials) - ROUND_TRIALS
        before = [trial.seconds for trial in self.trials[: max(0, latest)]]
        best = min((each for each in (self.default_seconds, *before) if each is not None), default=None)
        return 0.0 if best is None or self.best_seconds is None else max(0.0, best - self.best_seconds)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The names of the spaces to search."""
        if self.wanted is not None:
            spaces: tuple[str, ...] = (self.wanted.choice,)
        else:
            spaces = spaces_to_search(self.plans is not None, self.session.options.search)
        return (RECORDS, *spaces) if self.records else spaces

    @property
    def exhausted(self) -> bool:
        """Whether every candidate of every space was tried."""
        return self._exhausted_spaces == len(self.spaces)

    @property
    def is_capped(self) -> bool:
        """Whether candidates are left, but no trials for this task."""
        limit = self.session.options.max_trials_per_task
        return limit is not None and len(self.trials) >= limit and not self.exhausted

    @property
    def space(self) -> str:
        """The name of the space that is searched now, or was last; empty if there is none."""
        spaces = self.spaces
        return spaces[min(self._exhausted_spaces, len(spaces) - 1)] if spaces else ""

    @property
    def best_space(self) -> str:
        """The space of the best candidate, or the first one."""
        ran = [trial for trial in self.trials if trial.seconds is not None]
        best = min(ran, key=lambda trial: trial.seconds or 0.0, default=None)
        return best.space if best else next(iter(self.spaces), "")

    @property
    def ranker(self) -> Ranker:
        """What orders the plans before any is measured."""
        return ranker_for(self.plans or (), self.session.target, self.session.learned)

    @property
    def refusals(self) -> Refusals:
        """The draws on which a hand-written space raised."""
        return self._proposals.refusals if isinstance(self._proposals, SpaceProposals) else Refusals()

    @property
    def trial_seconds(self) -> list[float | None]:
        """One entry for each trial, None if it failed."""
        return [trial.seconds for trial in self.trials]

    @property
    def best_seconds(self) -> float | None:
        """The seconds of the best candidate, excluding the default schedule."""
        return min((seconds for seconds in self.trial_seconds if seconds is not None), default=None)

    def advance(self, trials: int, left_seconds: float = inf) -> int:
        """Search one round.

        Args:
            trials: maximum number of candidates to measure.
            left_seconds: how long builds may take; candidates that are not built by then do not count.

        Returns:
            How many candidates ran or failed; 0 if the space is exhausted, and the next one follows.
        """
        ends = time.monotonic() + left_seconds
        limit = self.session.options.max_trials_per_task
        proposed = self._propose_fresh(trials if limit is None else min(trials, limit - len(self.trials)))
        candidates = [candidate for candidate in proposed if not self._is_known(candidate)]
        if not candidates:
            self._exhausted_spaces += 1
            if not self.exhausted:
                self._proposals = None
            return 0
        modules = [candidate.sch.mod for candidate in candidates]
        workloads, rival_seconds = [self.module] * len(modules), self.standing.best_seconds
        left_seconds = max(0.0, ends - time.monotonic())
        results = measure(
            modules,
            self.session,
            MEASURED_ROUNDS,
            workloads,
            rival_seconds,
            together=False,
            left_seconds=left_seconds,
        )
        tried = [index for index, result in enumerate(results) if result.error_msg != NO_TIME]
        ours, found = [candidates[index] for index in tried], [results[index] for index in tried]
        if self.session.journal is not None:
            self.session.journal.tell(self.function, self.space, ours, found, self.default_seconds)
        for candidate, result in zip(ours, found, strict=True):
            self._record(self.space, candidate, result)
        self._learn(proposed, results)
        if isinstance(self._proposals, FamilyProposals):
            self.plan_seconds = self._proposals.measured
        return len(tried)

    def restore(self, trials: Sequence[RestoredTrial]) -> None:
        """Go on after the trials of earlier attempts."""
        self.restored_layouts = [trial for trial in trials if trial.space == LAYOUT]
        own = [trial for trial in trials if trial.space != LAYOUT]
        for trial in own:
            self._record(trial.space, trial.candidate, trial.result)
        self.restored = [trial for trial in own if trial.candidate is not None]

    def _propose_fresh(self, trials: int) -> list[MeasureCandidate]:
        """Propose candidates until one is not known not to compile; empty if the space has no more."""
        for _ in range(len(self.uncompiled) + _REPEATS):
            proposed = self._propose(trials)
            if not proposed or not all(map(self._is_known, proposed)):
                return proposed
            self._learn(proposed, ())
        return []

    def _is_known(self, candidate: MeasureCandidate) -> bool:
        """Whether the candidate did not compile in an earlier search."""
        return bool(self.uncompiled) and _digest_of(candidate) in self.uncompiled

    def _learn(self, proposed: list[MeasureCandidate], results: Iterable[RunnerResult]) -> None:
        """Give the space the results of its proposals, failures where they did not compile before."""
        assert self._proposals is not None
        measured, known = iter(results), [self._is_known(candidate) for candidate in proposed]
        self.passed_over |= {
            _digest_of(candidate) for candidate, failed in zip(proposed, known, strict=True) if failed
        }
        self._proposals.learn(proposed, [FAILED_BEFORE if failed else next(measured) for failed in known])

    def _propose(self, trials: int) -> list[MeasureCandidate]:
        try:
            if self._proposals is None:
                self._proposals = self._resumed(self._open_space())
            return self._proposals.next(trials)
        except JobError as error:
            if self.wanted is None or not self.wanted.may_skip or error.code is not ErrorCode.SPACE_FAILED:
                raise
            self.misfit = error
            return []
        except REFUSALS as error:
            if ran_out_of_memory(error):
                raise
            tuning_logger().warning("%s: no candidates: %s", self.name, error)
            return []

    def _resumed(self, proposals: Proposals) -> Proposals:
        own = [trial for trial in self.restored if trial.space == self.space]
        if own:
            candidates = [trial.candidate for trial in own if trial.candidate is not None]
            proposals.restore(candidates, [trial.result for trial in own])
        if isinstance(proposals, FamilyProposals):
            self.plan_seconds = proposals.measured
        return proposals

    def _open_space(self) -> Proposals:
        if self.space == RECORDS:
            return RecordProposals(self.records)
        if self.space == STOCK:
            measured = sum(trial.space == STOCK for trial in self.restored)
            return StockProposals(self.module, self.session, self.index, measured, self.advice)
        if self.space == PLANS:
            return FamilyProposals(
                self.module,
                self._plans_in_order(),
                self.default_seconds,
                self.session,
                self.index,
                self.advice,
            )
        space = space_book().spaces[self.space]
        return SpaceProposals(self.name, self.module, space, self.session)

    def _plans_in_order(self) -> Sequence[Any]:
        """The default schedule's plan, then the others as they are ranked."""
        first, *others = self._own_plans()
        return (first, *in_order(self.module, others, self.ranker))

    def _own_plans(self) -> Sequence[Any]:
        if self.plans is None:
            raise JobError(ErrorCode.SPACE_FAILED, f"no family claims '{self.name}': it has no plans")
        return self.plans

    def _record(self, space: str, candidate: MeasureCandidate | None, result: RunnerResult) -> None:
        if candidate is None or not result.run_secs:
            tuning_logger().info("%s: failed: %s", self.name, result.error_msg)
            self.trials.append(Trial(space, None))
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
        self.trials.append(Trial(space, seconds))
