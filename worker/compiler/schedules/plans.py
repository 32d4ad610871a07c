"""Plans: the choices of a family, and how a search selects one.

A plan is a frozen dataclass of numbers, such as the sides of a tile. A family ranks its plans by its cost
model and passes them to a ``PlanChooser``, which returns the first unless a search wants another one. A
search notes a plan as annotations of the function's root block (``PLAN``), number by number, and the family
follows it when the function is scheduled.

For MetaSchedule, the plans are a space (``space_of``): each point is a trace that samples the numbers of a
plan and annotates them. Such a trace is small, readable, and replays from JSON; the loops come from the
family, for a candidate as for a stored record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import product
from typing import Any, NamedTuple, TypeVar

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.meta_schedule.space_generator import ScheduleFn, SpaceGenerator

PLAN = "bessemer.plan."
"""The prefix of the annotations of a plan; the name of a number follows."""

Plan = TypeVar("Plan")
"""A frozen dataclass of integers, truth values and such dataclasses, with distinct names."""

Numbers = dict[str, int]


class NoSuchPlanError(ValueError):
    """The plan that a function carries is not one of its family's."""


class Scheduled(NamedTuple):
    """A function with its loops, and the plans of its family; empty if it has no choice.

    ``shapes`` are the dataclasses of sizes that the family derived the plans from.
    """

    function: tirx.PrimFunc
    plans: tuple[Any, ...]
    shapes: tuple[Any, ...] = ()


class PlanChooser:
    """Returns one of a family's plans: the wanted one, or the first."""

    def __init__(self, wanted: Numbers | None) -> None:
        self._wanted = wanted
        self.plans: tuple[Any, ...] = ()
        self.shapes: tuple[Any, ...] = ()

    def __call__(self, plans: Sequence[Plan], *shapes: Any) -> Plan:
        """The plan to follow.

        Args:
            plans: at least one, the most promising first.
            shapes: the dataclasses of sizes that they follow from, for cost models.

        Raises:
            NoSuchPlanError: the wanted plan is not among them.
        """
        self.plans, self.shapes = tuple(plans), shapes
        if self._wanted is None:
            return plans[0]
        for plan in plans:
            if numbers_of(plan) == self._wanted:
                return plan
        raise NoSuchPlanError(f"the family has no plan {self._wanted}")


def numbers_of(plan: Any) -> Numbers:
    """The numbers of a plan, by name."""
    numbers: Numbers = {}
    for field in fields(plan):
        value = getattr(plan, field.name)
        numbers |= numbers_of(value) if is_dataclass(value) else {field.name: int(value)}
    return numbers


def noted_plan(function: tirx.PrimFunc) -> Numbers | None:
    """The plan that a function carries, if any."""
    body = function.body
    annotations = body.block.annotations if isinstance(body, s_tir.SBlockRealize) else {}
    noted = {
        str(key).removeprefix(PLAN): int(value)
        for key, value in annotations.items()
        if str(key).startswith(PLAN)
    }
    return noted or None


def with_plan(function: tirx.PrimFunc, plan: Any) -> tirx.PrimFunc:
    """The function, carrying a plan that its family then follows."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    root = schedule.get_sblock("root", func_name="main")
    for name, number in numbers_of(plan).items():
        schedule.annotate(root, PLAN + name, number)
    return schedule.mod["main"]


def forget_plan(schedule: s_tir.Schedule, plan: Numbers) -> None:
    """Remove a plan's annotations from the root block."""
    root = schedule.get_sblock("root")
    for name in plan:
        schedule.unannotate(root, PLAN + name)


def by_rank(*alternatives: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """All combinations of alternatives, each given best first, ordered by the sum of their ranks."""
    ranked = product(*(enumerate(each) for each in alternatives))
    ordered = sorted(ranked, key=lambda combination: sum(rank for rank, _ in combination))
    return tuple(tuple(choice for _, choice in combination) for combination in ordered)


def either(expected: bool) -> tuple[bool, bool]:
    """Both truth values, the expected one first."""
    return (expected, not expected)


def space_of(plans: Sequence[Any], points: Sequence[Any] | None = None) -> SpaceGenerator:
    """The space of a family's plans.

    Args:
        plans: the plans among which a point samples.
        points: the plans that the space lists, in this order; None for all.
    """
    every = [numbers_of(plan) for plan in plans]
    listed = every if points is None else [numbers_of(plan) for plan in points]

    def list_points(schedule: s_tir.Schedule) -> list[s_tir.Schedule]:
        return [_noting(schedule.copy(), numbers, every) for numbers in listed]

    return ScheduleFn(list_points, sch_rules=[], postprocs=[], mutator_probs={})


def _noting(schedule: s_tir.Schedule, plan: Numbers, plans: Sequence[Numbers]) -> s_tir.Schedule:
    """Sample each number from the plans that agree with the numbers before it."""
    root = schedule.get_sblock("root")
    for name, number in plan.items():
        candidates = sorted({other[name] for other in plans})
        plans = [other for other in plans if other[name] == number]
        share = [1.0 / len(candidates)] * len(candidates)
        sampled = schedule.sample_categorical(candidates, share, decision=candidates.index(number))
        schedule.annotate(root, PLAN + name, sampled)
    return schedule
