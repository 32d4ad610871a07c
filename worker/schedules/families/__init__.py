"""Templates for kinds of functions; the first that claims a function schedules it.

A family gets a function whose elementwise blocks are inlined. It looks for its own block, and either
schedules the whole function and returns True, or leaves it and returns False. What TVM refuses on the way
counts as False. Where it could schedule the function in several ways it lists them, the most promising
first, and follows the one that it is told to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tvm import s_tir

from worker.schedules.attempt import REFUSALS
from worker.schedules.families.conv2d import schedule_conv2d
from worker.schedules.families.depthwise import schedule_depthwise
from worker.schedules.families.elementwise import schedule_elementwise
from worker.schedules.families.plain_pooling import schedule_plain_pooling
from worker.schedules.families.pooling import schedule_pooling
from worker.schedules.machine import Machine
from worker.schedules.plans import Chooser, Numbers, Scheduled


class Family(NamedTuple):
    """A template: a name, and what claims and schedules a function in place."""

    name: str
    schedule: Callable[[s_tir.Schedule, Machine, Chooser], bool]


FAMILIES: tuple[Family, ...] = (
    Family("conv2d", schedule_conv2d),
    Family("depthwise", schedule_depthwise),
    Family("pooling", schedule_pooling),
    Family("plain-pooling", schedule_plain_pooling),
    Family("elementwise", schedule_elementwise),
)


def schedule_by_family(
    schedule: s_tir.Schedule, machine: Machine, wanted: Numbers | None
) -> Scheduled | None:
    """The function as the first family that claims it schedules it; None where none does.

    Args:
        schedule: the function.
        machine: the processor.
        wanted: the plan to follow; the family's first where it is None.
    """
    for family in FAMILIES:
        trial, choose = schedule.copy(), Chooser(wanted)
        try:
            if family.schedule(trial, machine, choose):
                return Scheduled(trial.mod["main"], choose.plans)
        except REFUSALS:
            continue
    return None
