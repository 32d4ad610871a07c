"""Search spaces, and the tensor intrinsics that they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import s_tir, tirx

PLANS = "plans"
"""The plans of the family that claims a function."""

STOCK = "metaschedule"
"""MetaSchedule's own rules."""

OWN_SPACES = (PLANS, STOCK)

RECORDS = "records"
"""The candidates of the records that a request gives; no request names this space."""

LAYOUT = "layout"
"""What the layout phase may choose otherwise for a convolution; no request names this space."""

RESERVED = (*OWN_SPACES, RECORDS, LAYOUT)

ScheduleFunction = Callable[[s_tir.Schedule], s_tir.Schedule | Sequence[s_tir.Schedule] | None]
"""Transforms the function ``main`` of a schedule in place, or returns schedules.

Its samples (``sample_perfect_tile``, ``sample_categorical``) differ on each run; the space is the set of all
results. The target is ``tvm.target.Target.current()``.
"""


@dataclass(frozen=True)
class Space:
    """A search space that a request can name; ``summary`` describes the functions that it fits."""

    name: str
    schedule: ScheduleFunction
    summary: str


@dataclass(frozen=True)
class Intrinsic:
    """A tensor intrinsic: the computation of a region, and the implementation that replaces it.

    Both have the same parameters. ``Schedule.tensorize`` takes the ``name``.
    """

    name: str
    description: tirx.PrimFunc
    implementation: tirx.PrimFunc
