"""Sources of a task's candidates: its family's plans, or MetaSchedule's own space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from worker.compiler.schedules.plans import numbers_of
from worker.compiler.schedules.spaces import space_of
from worker.compiler.tuning.policy import ROUND_TRIALS, best_of, next_plans
from worker.compiler.tuning.session import TuningSession, tuning_logger

_POPULATION = 128
_MIN_UNMEASURED = 32
_MAX_SEED = (1 << 31) - 1


class Proposals(Protocol):
    """Proposes a space's candidates in the order of a search."""

    def next(self, count: int) -> list[MeasureCandidate]:
        """Up to ``count`` new candidates; an empty list if the space is exhausted."""

    def learn(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """Record the results of candidates."""


class Refusals(NamedTuple):
    """The number of draws on which a space raised, and the last reason."""

    draws: int = 0
    last: str | None = None


class FamilyProposals:
    """The plans of the function's family. The first is the default schedule, which is already measured."""

    def __init__(self, module: tvm.IRModule, plans: Sequence[Any], default_seconds: float | None) -> None:
        self._module = module
        self._plans = tuple(plans)
        self._numbers = tuple(map(numbers_of, plans))
        self._arguments = ArgInfo.from_entry_func(module)
        self._seconds: dict[int, float | None] = {0: default_seconds}
        self._asked: list[int] = []

    def next(self, count: int) -> list[MeasureCandidate]:
        """See ``Proposals.next``."""
        self._asked = list(next_plans(self._numbers, self._seconds, count))
        space = space_of(self._plans, [self._plans[index] for index in self._asked])
        return [
            MeasureCandidate(point, self._arguments) for point in space.generate_design_space(self._module)
        ]

    def learn(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.learn``."""
        for index, result in zip(self._asked, results, strict=True):
            self._seconds[index] = best_of(result.run_secs)


class StockProposals:
    """MetaSchedule's rules for any function, searched by evolution with a cost model."""

    def __init__(self, module: tvm.IRModule, session: TuningSession, index: int) -> None:
        self._cost_model = session.cost_model
        self._context = ms.TuneContext(
            module,
            target=session.target,
            space_generator="post-order-apply",
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=_POPULATION, init_min_unmeasured=_MIN_UNMEASURED
            ),
            rand_state=(session.seed * 7919 + index) % _MAX_SEED + 1,
            num_threads=session.threads,
            logger=tuning_logger(),
        )
        self._context.pre_tuning(
            max_trials=session.max_trials,
            num_trials_per_iter=ROUND_TRIALS,
            database=session.database,
            cost_model=session.cost_model,
        )

    def next(self, count: int) -> list[MeasureCandidate]:
        """See ``Proposals.next``."""
        return list(self._context.generate_measure_candidates() or ())[:count]

    def learn(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.learn``."""
        self._cost_model.update(self._context, candidates, results)
        self._context.notify_runner_results(candidates, results)
