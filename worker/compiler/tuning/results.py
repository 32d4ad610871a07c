"""What a search reports, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tvm
from tvm.s_tir.meta_schedule.database import TuningRecord

from bessemer.contract.report import SearchedSpace, TuneResult, TuneTask
from worker.compiler.schedules.default import unclaimed_functions
from worker.compiler.spaces.space import PLANS
from worker.compiler.tuning.final_comparison import ModelComparison
from worker.compiler.tuning.record_selection import is_skipped
from worker.compiler.tuning.search import TaskSearch, Trial
from worker.compiler.tuning.trial_budget import best_so_far
from worker.compiler.values import Optimized


class Outcome(NamedTuple):
    """The model, scheduled, the final comparison, its records, and the records that won by themselves."""

    optimized: Optimized
    module: tvm.IRModule
    comparison: ModelComparison
    kept: Sequence[TuningRecord] = ()
    won: Sequence[TuningRecord] = ()


def no_search(module: tvm.IRModule) -> TuneResult:
    """The result for a model that was scheduled without a search."""
    return with_unclaimed(TuneResult(trials=0, seconds=0.0, tasks=()), module)


def with_unclaimed(result: TuneResult, module: tvm.IRModule) -> TuneResult:
    """A result with the functions that no family of schedules claims."""
    names = unclaimed_functions(module)
    return result.model_copy(update={"unclaimed": len(names), "unclaimed_functions": names})


def result_of(tasks: Sequence[TaskSearch], seconds: float, outcome: Outcome) -> TuneResult:
    """What a search of some seconds found, and what is kept of it."""
    return TuneResult(
        trials=sum(len(task.trials) for task in tasks),
        seconds=seconds,
        tasks=tuple(_describe(task, outcome) for task in tasks),
        skipped=sum(map(is_skipped, tasks)),
        kept=outcome.comparison.kept,
        search_ms=outcome.comparison.search_ms,
        default_ms=outcome.comparison.default_ms,
        crashed=outcome.comparison.crashed,
    )


def _describe(task: TaskSearch, outcome: Outcome) -> TuneTask:
    best, found, default = task.standing.best_seconds, task.best_seconds, task.default_seconds
    return TuneTask(
        name=task.name,
        weight=task.weight,
        trials=len(task.trials),
        failed=_failed(task.trials),
        best_ms=None if best is None else best * 1e3,
        history_ms=best_so_far(task.trial_seconds, default),
        space=task.best_space,
        spaces=tuple(_searched_spaces(task)),
        kept=task.best_record in outcome.kept,
        won=task.best_record in outcome.won,
        found_ms=None if found is None else found * 1e3,
        default_ms=None if default is None else default * 1e3,
        failure=task.failure,
        exhausted=task.exhausted,
        refused=task.refusals.draws,
        refusal=task.refusals.last if task.misfit is None else task.misfit.detail,
        skipped=is_skipped(task),
        ranked_by=task.ranker.name if any(trial.space == PLANS for trial in task.trials) else None,
    )


def _searched_spaces(task: TaskSearch) -> Iterator[SearchedSpace]:
    for index, name in enumerate(task.spaces):
        trials = [trial for trial in task.trials if trial.space == name]
        if not trials and index > 0:
            continue
        best = min((trial.seconds for trial in trials if trial.seconds is not None), default=None)
        yield SearchedSpace(
            name=name,
            trials=len(trials),
            failed=_failed(trials),
            best_ms=None if best is None else best * 1e3,
        )


def _failed(trials: Sequence[Trial]) -> int:
    return sum(trial.seconds is None for trial in trials)
