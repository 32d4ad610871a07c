"""The model that a search schedules, and the comparison that decides what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm

from bessemer.contract.report import Schedules
from worker.compiler.layout.choices import AS_EXPECTED, LayoutChoices
from worker.compiler.tuning.final_comparison import (
    Finalists,
    ModelComparison,
    compare_finalists,
    compare_on_device,
    compare_on_gpu,
)
from worker.compiler.tuning.layout_search import LayoutSearch
from worker.compiler.tuning.record_selection import forced_records, winners
from worker.compiler.tuning.results import Outcome
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.session import TuningSession
from worker.compiler.tuning.tasks import apply_records
from worker.compiler.tuning.trial_budget import share_seconds
from worker.compiler.values import Optimized, StageContext


@dataclass(frozen=True)
class SearchedModel:
    """The model that is searched, with its default schedules, and its library with these if it is built.

    ``lay_out`` lays the model out as a search wants it. ``laid_out`` is the model with the ``choices`` of a
    search of ``layouts``.
    """

    optimized: Optimized
    session: TuningSession
    default: tvm.IRModule
    lay_out: Callable[[LayoutChoices], Optimized]
    library: Path | None = None
    layouts: LayoutSearch | None = None
    choices: LayoutChoices = AS_EXPECTED
    laid_out: Optimized | None = None

    @property
    def searched(self) -> Optimized:
        """The model whose functions are searched."""
        return self.laid_out or self.optimized

    def finalists(self, searched: tvm.IRModule) -> Finalists:
        """The model with the search's schedules beside the one with the default ones."""
        optimized = self.optimized
        return Finalists(
            searched,
            self.default,
            optimized.module,
            self.session.target,
            optimized.captured,
            optimized.parameters,
            self.library,
            None if self.laid_out is None else self.laid_out.module,
        )


def is_compared(model: SearchedModel) -> bool:
    """Whether the request compares, and this machine's processor measures."""
    return model.session.is_local and model.optimized.captured.upload.request.benchmark.compare


def settle(
    tasks: Sequence[TaskSearch],
    model: SearchedModel,
    context: StageContext,
    left_seconds: Callable[[], float] = lambda: 0.0,
) -> Outcome:
    """Keep the records that the request forces, or the ones that win by themselves and in the whole model.

    The final comparison may measure for the ``left_seconds``.
    """
    session = model.session
    is_forced, optimized = session.options.force, model.searched
    records = forced_records(tasks) if is_forced else winners(tasks, session)
    if not records and model.laid_out is None:
        kept = Schedules.SEARCH if is_forced else Schedules.DEFAULT
        return Outcome(optimized, model.default, ModelComparison(kept=kept))
    searched = apply_records(optimized.module, records, session.target)
    if is_forced:
        return Outcome(optimized, searched, ModelComparison(kept=Schedules.SEARCH), kept=records)
    finalists = model.finalists(searched)
    seconds = share_seconds(session.options.seconds).comparison_seconds
    if session.bench is not None:
        comparison = compare_on_device(finalists, context, session.bench, seconds)
    elif session.references is not None:
        comparison = compare_on_gpu(finalists, context, seconds)
    else:
        comparison = compare_finalists(finalists, context, seconds, left_seconds)
    if comparison.kept is Schedules.SEARCH:
        return Outcome(optimized, searched, comparison, kept=records, won=records)
    return Outcome(model.optimized, model.default, comparison, won=records)
