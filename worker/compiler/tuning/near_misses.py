"""Records of similar functions, as the first candidates of the search of a function without records.

They only say how others were scheduled. A plan is replaced by the most similar one that the function's own
family has. Of a trace in MetaSchedule's space, the decisions are applied to the function, then TVM's own
postprocessing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir

from bessemer.contract.records import SizedFunction
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.schedules.plans import PLAN, Numbers, noted_plan
from worker.compiler.tuning.function_kinds import heaviest_nest, kinds_of
from worker.compiler.tuning.replays import MisfitError, applied
from worker.compiler.tuning.session import tuning_logger
from worker.compiler.tuning.stored_records import Function, workload_of
from worker.errors import ran_out_of_memory, short_message

_ENTRY = "main"
_POSTPROCESSING = "EnterPostproc"


@dataclass
class Advice:
    """Schedules that were fast for similar functions, the most similar first.

    Attributes:
        plans: the numbers of their plans.
        traces: their traces in MetaSchedule's own spaces, in TVM's JSON.
        trials: how many candidates a search has measured because of them.
    """

    plans: tuple[Numbers, ...] = ()
    traces: tuple[str, ...] = ()
    trials: int = 0


def sized_function(function: Function) -> SizedFunction | None:
    """The key that finds similar functions; None if the function's sizes are unknown."""
    nest = heaviest_nest(function.module)
    if nest is None:
        return None
    kinds = tuple(kinds_of(nest, function.family).values())
    return SizedFunction(workload=workload_of(function.module), kinds=kinds, extents=nest.extents)


def advice_of(module: tvm.IRModule, traces: Sequence[str]) -> Advice:
    """What traces of similar functions mean for a function; those of plans that do not apply are left out."""
    plans: list[Numbers] = []
    for trace in traces:
        if PLAN not in trace:
            continue
        try:
            noted = noted_plan(applied(trace, module).mod[_ENTRY])
        except (*REFUSALS, OverflowError) as error:
            _pass_over(error)
            continue
        if noted is not None:
            plans.append(noted)
    return Advice(tuple(plans), tuple(trace for trace in traces if PLAN not in trace))


def replayed(trace: str, module: tvm.IRModule) -> None:
    """Do with a trace what ``advice_of`` and ``adapted`` do first.

    Raises:
        MisfitError: it does not apply.
    """
    applied(trace if PLAN in trace else _decisions_of(trace), module)


def adapted(trace: str, module: tvm.IRModule, postprocessors: Sequence[Any]) -> s_tir.Schedule | None:
    """A function's schedule with the decisions of a similar function's trace; None if they do not apply.

    Args:
        trace: the trace in TVM's JSON.
        module: the function.
        postprocessors: MetaSchedule's, which finish a schedule for its own sizes.
    """
    try:
        schedule = applied(_decisions_of(trace), module)
        schedule.enter_postproc()
        if all(each.apply(schedule) for each in postprocessors):
            return schedule
    except REFUSALS as error:
        _pass_over(error)
    return None


def _decisions_of(trace: str) -> str:
    """A trace without the steps that postprocessing has added.

    Raises:
        MisfitError: the text is not a trace.
    """
    try:
        return json.dumps(_before_postprocessing(json.loads(trace)))
    except (RecursionError, TypeError, ValueError) as error:
        raise MisfitError(short_message(error)) from error


def _before_postprocessing(trace: Any) -> list[Any]:
    match trace:
        case [[*steps], [*decisions]] if all(each and isinstance(each, list) for each in steps + decisions):
            names = [step[0] for step in steps]
            end = names.index(_POSTPROCESSING) if _POSTPROCESSING in names else len(names)
            return [steps[:end], [each for each in decisions if int(each[0]) < end]]
    raise ValueError("not a trace")


def _pass_over(error: BaseException) -> None:
    if ran_out_of_memory(error):
        raise error
    tuning_logger().info("a similar function's record does not apply: %s", short_message(error))
