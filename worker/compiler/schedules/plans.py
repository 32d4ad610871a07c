"""Plans: what a family chooses among, and how a function carries the choice that a search made for it.

A family ranks its plans by the analytic model and lets a ``PlanChooser`` take one. Without a search it takes
the first. A search notes another one, number by number, on the function's root block (``PLAN``); when the
function is scheduled, the family gets that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

from tvm import s_tir, tirx

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
