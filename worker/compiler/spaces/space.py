"""What a package adds: search spaces, and the tensor intrinsics that they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import s_tir, tirx

PLANS = "plans"
"""The plans of the family that claims a function."""

STOCK = "metaschedule"
"""MetaSchedule's own rules."""

OWN_SPACES = (PLANS, STOCK)

ScheduleFunction = Callable[[s_tir.Schedule], s_tir.Schedule | Sequence[s_tir.Schedule] | None]
"""Transforms the function ``main`` of a schedule: in place, or by returning schedules.

Run again, its samples (``sample_perfect_tile``, ``sample_categorical``) come out differently: all that can
come out is the space. The target is ``tvm.target.Target.current()``.
"""


@dataclass(frozen=True)
class Space:
    """A search space that a request names; ``summary`` says on one line which functions it fits."""

    name: str
    schedule: ScheduleFunction
    summary: str


@dataclass(frozen=True)
class Intrinsic:
    """A tensor intrinsic: what a region computes, and what computes it instead.

    Both have the same parameters. ``name`` is what ``Schedule.tensorize`` takes.
    """

    name: str
    description: tirx.PrimFunc
    implementation: tirx.PrimFunc
