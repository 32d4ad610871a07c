"""The families' plans as spaces of MetaSchedule.

Every point of a space is a trace that samples one plan, number by number, and notes it on the function's root
block; the family follows it when the function is built (``schedules.default``). So a trace is small,
says in words what it does, and replays from JSON like any other; the loops that belong to it come from one
place, whether a candidate is measured or a record applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir
from tvm.s_tir.meta_schedule.space_generator import ScheduleFn, SpaceGenerator

from worker.compiler.schedules.plans import PLAN, Numbers, numbers_of


def space_of(plans: Sequence[Any], points: Sequence[Any] | None = None) -> SpaceGenerator:
    """The space of a family's plans.

    Args:
        plans: all plans that a point samples among.
        points: those that the space lists as its points, in this order; all of them where it is None.
    """
    every = [numbers_of(plan) for plan in plans]
    listed = every if points is None else [numbers_of(plan) for plan in points]

    def list_points(schedule: s_tir.Schedule) -> list[s_tir.Schedule]:
        return [_noting(schedule.copy(), numbers, every) for numbers in listed]

    return ScheduleFn(list_points, sch_rules=[], postprocs=[], mutator_probs={})


def _noting(schedule: s_tir.Schedule, plan: Numbers, plans: Sequence[Numbers]) -> s_tir.Schedule:
    """Sample each number from those of the plans that agree with the numbers before it."""
    root = schedule.get_sblock("root")
    for name, number in plan.items():
        candidates = sorted({other[name] for other in plans})
        plans = [other for other in plans if other[name] == number]
        share = [1.0 / len(candidates)] * len(candidates)
        sampled = schedule.sample_categorical(candidates, share, decision=candidates.index(number))
        schedule.annotate(root, PLAN + name, sampled)
    return schedule
