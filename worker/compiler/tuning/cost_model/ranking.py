"""Ranks plans by the learned model where it was better on other functions, else by the family's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from worker.compiler.schedules.blocks import has_dynamic_sizes
from worker.compiler.schedules.default import is_scheduled, ranked_plans
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.schedules.plans import with_plan
from worker.compiler.schedules.processors import machine_of
from worker.compiler.tuning.cost_model.features import family_of, features_of, kind_of
from worker.compiler.tuning.cost_model.trees import CostModel, FamilyModel
from worker.compiler.tuning.ranker import AnalyticRanker, Ranker


@dataclass(frozen=True)
class LearnedRanker:
    """Scores plans by what was learned of their family."""

    name: str
    learned: FamilyModel
    target: tvm.target.Target

    def scores(self, workload: tvm.IRModule, plans: Sequence[Any]) -> Sequence[float]:
        """See ``Ranker.scores``."""
        known, shapes = ranked_plans(workload["main"], self.target)
        return self.learned.scores(features_of(plans, known, shapes, machine_of(self.target)))


def ranker_for(plans: Sequence[Any], target: tvm.target.Target, models: Sequence[CostModel]) -> Ranker:
    """What ranks the plans of a function: the first model that was better for such plans and processors."""
    if not plans or gpu_in(target) is not None:
        return AnalyticRanker()
    family, kind = family_of(plans[0]), kind_of(target)
    for model in models:
        learned = model.of(family, kind)
        if learned is not None:
            return LearnedRanker(f"learned {model.version}", learned, target)
    return AnalyticRanker()


def in_order(workload: tvm.IRModule, plans: Sequence[Any], ranker: Ranker) -> tuple[Any, ...]:
    """The plans, the most promising first; equal scores keep the family's order."""
    scores = ranker.scores(workload, plans)
    places = sorted(range(len(plans)), key=lambda place: -scores[place])
    return tuple(plans[place] for place in places)


def preferred_plans(
    module: tvm.IRModule, target: tvm.target.Target, models: Sequence[CostModel]
) -> tuple[tvm.IRModule, dict[str, int]]:
    """Let each function carry the plan that ranks first, where that is not its family's own first.

    Returns:
        The module, and how many functions each ranker ranked.
    """
    changed, counts = module.clone(), dict[str, int]()
    for variable, function in module.functions_items():
        if not isinstance(function, tirx.PrimFunc) or is_scheduled(function) or has_dynamic_sizes(function):
            continue
        plans = ranked_plans(function, target).plans
        if not plans:
            continue
        ranker = ranker_for(plans, target, models)
        counts[ranker.name] = counts.get(ranker.name, 0) + 1
        first = in_order(tvm.IRModule({"main": function}), plans, ranker)[0]
        if first != plans[0]:
            changed.update_func(variable, with_plan(function, first))
    return changed, counts
