"""What a search measured of a function's plans, as the cost model learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm

from bessemer.contract.cost_model import MAX_PLANS, Features, MeasuredFunction
from worker.compiler.schedules.default import ranked_plans
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.schedules.processors import machine_of
from worker.compiler.tuning.cost_model.features import family_of, features_of, kind_of
from worker.compiler.tuning.stored_records import workload_of

_DIGITS = 6


def measured_function(
    module: tvm.IRModule, seconds: Mapping[Any, float], target: tvm.target.Target
) -> MeasuredFunction | None:
    """Plans of a function with their times.

    Args:
        module: the function, as ``main``.
        seconds: the times of plans of its family. Of more than ``MAX_PLANS``, an even
            sample from the fastest to the slowest counts.
        target: the processor. Models know none for GPUs.

    Returns:
        None if fewer than two plans have times.
    """
    if len(seconds) < 2 or gpu_in(target) is not None:
        return None
    known, shapes = ranked_plans(module["main"], target)
    places = {plan: place for place, plan in enumerate(known)}
    timed = _sample([plan for plan in sorted(seconds, key=seconds.__getitem__) if plan in places])
    if len(timed) < 2:
        return None
    described = features_of(timed, known, shapes, machine_of(target))
    return MeasuredFunction(
        source=workload_of(module),
        family=family_of(timed[0]),
        kind=kind_of(target),
        features=tuple(map(_rounded, described)),
        places=tuple(places[plan] for plan in timed),
        seconds=tuple(seconds[plan] for plan in timed),
    )


def _sample(fastest_first: list[Any]) -> list[Any]:
    if len(fastest_first) <= MAX_PLANS:
        return fastest_first
    step = (len(fastest_first) - 1) / (MAX_PLANS - 1)
    return [fastest_first[round(step * number)] for number in range(MAX_PLANS)]


def _rounded(features: Features) -> Features:
    return {name: float(f"{value:.{_DIGITS}g}") for name, value in features.items()}
