"""Trying a step on a copy of a schedule."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import s_tir

Step = Callable[[s_tir.Schedule], object]

REFUSALS = (s_tir.ScheduleError, tvm.error.InternalError, RuntimeError, TypeError, ValueError)
"""What TVM raises where a primitive does not apply."""


def attempt(schedule: s_tir.Schedule, step: Step) -> s_tir.Schedule | None:
    """The schedule after a step, or None where TVM refuses it; the schedule itself stays as it is."""
    trial = schedule.copy()
    try:
        step(trial)
    except REFUSALS:
        return None
    return trial
