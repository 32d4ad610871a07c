"""Applies traces that others made, first in a process of its own.

TVM checks a trace while it replays it, but not all of it: some wrong traces end the process. So a job replays
the traces that it gets from the service in a forked process, and again itself those that leave it alive.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import tvm
from tvm import s_tir
from tvm.s_tir.schedule import Trace

from worker.candidates.requests import CompileBatch, CompileFunctions
from worker.compiler.tuning.foreign_code import refuse_foreign_code
from worker.compiler.tuning.session import tuning_logger
from worker.errors import ran_out_of_memory, short_message

if TYPE_CHECKING:
    from worker.candidates.client import CandidateClient

_SECONDS = 10.0
"""Processor time for one trace alone."""
_SECONDS_OF_ALL = 30.0
_WORKERS = 2


class MisfitError(ValueError):
    """A trace does not apply to a function, or brings code along."""


class Traced(Protocol):
    """A trace, and the hash of the function that it is for."""

    @property
    def workload(self) -> str:
        """The structural hash of the function."""
        ...

    @property
    def trace(self) -> str:
        """TVM's JSON."""
        ...


Replay = Callable[[str, tvm.IRModule], object]
AnyTraced = TypeVar("AnyTraced", bound=Traced)


def applied(trace: str, module: tvm.IRModule) -> s_tir.Schedule:
    """A function's schedule after a trace in TVM's JSON.

    Raises:
        MisfitError: the trace does not apply, or brings code along.
    """
    try:
        schedule, instructions = s_tir.Schedule(module), json.loads(trace)
        Trace.apply_json_to_schedule(instructions, schedule)
        refuse_foreign_code(instructions, module, schedule.mod)
    except Exception as error:
        if ran_out_of_memory(error):
            raise
        raise MisfitError(short_message(error)) from error
    return schedule


@dataclass(frozen=True)
class Replays:
    """Tries traces in forked processes."""

    candidates: CandidateClient

    def surviving(
        self,
        modules: Mapping[str, tvm.IRModule],
        traced: Sequence[AnyTraced],
        replay: Replay = applied,
    ) -> list[AnyTraced]:
        """The traces of some functions, in order, without those that end a process or take too long.

        Args:
            modules: the functions by their hash.
            traced: traces; those of other functions are left out.
            replay: what will be done with a trace; a module's function.
        """
        own = [each for each in traced if each.workload in modules]
        workloads = {each.workload for each in own}
        texts = {workload: tvm.ir.save_json(modules[workload]) for workload in workloads}
        calls = [partial(_replay, replay, each.trace, texts[each.workload]) for each in own]
        if not calls or self._end_well([partial(_all, calls)], _SECONDS_OF_ALL)[0]:
            return own
        ends = self._end_well(calls, _SECONDS)
        for each, ended_well in zip(own, ends, strict=True):
            if not ended_well:
                tuning_logger().warning("a stored record of function %s ends the compiler", each.workload)
        return [each for each, ended_well in zip(own, ends, strict=True) if ended_well]

    def _end_well(self, calls: Sequence[Callable[[], None]], seconds: float) -> list[bool]:
        groups = tuple(CompileFunctions((), pickle.dumps(call), seconds) for call in calls)
        outcomes = self.candidates.compile_many(CompileBatch(groups, _WORKERS), lambda _: None)
        return [outcome.failure is None and not outcome.is_late for outcome in outcomes]


def _all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _replay(replay: Replay, trace: str, text: str) -> None:
    try:
        replay(trace, tvm.ir.load_json(text))
    except MisfitError:
        return
