"""Plans: what a family chooses among, and how a function carries the choice that a search made for it.

A family ranks its plans by the analytic model and lets a ``PlanChooser`` take one. Without a search it takes
the first. A search notes another one, number by number, on the function's root block (``PLAN``); when the
function is scheduled, the family gets that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import product
from typing import Any, NamedTuple, TypeVar

from tvm import s_tir, tirx
from tvm.s_tir.meta_schedule.space_generator import ScheduleFn, SpaceGenerator

PLAN = "bessemer.plan."
"""What the annotations begin with that note a plan; the name of a number follows."""

Plan = TypeVar("Plan")
"""A frozen dataclass of integers, truth values, and dataclasses of these, whose names differ."""

Numbers = dict[str, int]


class NoSuchPlanError(ValueError):
    """The plan that a function carries is none of those of its family."""


class Scheduled(NamedTuple):
    """A function with its loops, and the plans that its family chose among; none where it had no choice."""

    function: tirx.PrimFunc
    plans: tuple[Any, ...]


class PlanChooser:
    """Takes one of a family's plans: the wanted one, or the one that the model expects to be fastest."""

    def __init__(self, wanted: Numbers | None) -> None:
        self._wanted = wanted
        self.plans: tuple[Any, ...] = ()

    def __call__(self, plans: Sequence[Plan]) -> Plan:
        """The plan to follow.

        Args:
            plans: at least one, the most promising first.

        Raises:
            NoSuchPlanError: the wanted plan is not among them.
        """
        self.plans = tuple(plans)
        if self._wanted is None:
            return plans[0]
        for plan in plans:
            if numbers_of(plan) == self._wanted:
                return plan
        raise NoSuchPlanError(f"the family has no plan {self._wanted}")


def numbers_of(plan: Any) -> Numbers:
    """The numbers that make a plan, by name."""
    numbers: Numbers = {}
    for field in fields(plan):
        value = getattr(plan, field.name)
        numbers |= numbers_of(value) if is_dataclass(value) else {field.name: int(value)}
    return numbers


def noted_plan(function: tirx.PrimFunc) -> Numbers | None:
    """The plan that a function carries."""
    body = function.body
    annotations = body.block.annotations if isinstance(body, s_tir.SBlockRealize) else {}
    noted = {
        str(key).removeprefix(PLAN): int(value)
        for key, value in annotations.items()
        if str(key).startswith(PLAN)
    }
    return noted or None


def forget_plan(schedule: s_tir.Schedule, plan: Numbers) -> None:
    """Take a plan off the root block of a function."""
    root = schedule.get_sblock("root")
    for name in plan:
        schedule.unannotate(root, PLAN + name)


def by_rank(*alternatives: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Every combination of alternatives, each of which comes best first: those that give up least, first."""
    ranked = product(*(enumerate(each) for each in alternatives))
    ordered = sorted(ranked, key=lambda combination: sum(rank for rank, _ in combination))
    return tuple(tuple(choice for _, choice in combination) for combination in ordered)


def either(expected: bool) -> tuple[bool, bool]:
    """Both truth values, the expected one first."""
    return (expected, not expected)


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
