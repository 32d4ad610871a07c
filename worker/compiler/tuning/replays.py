"""Applies traces that others made, first in a process of its own.

TVM checks a trace while it replays it, but not all of it: some wrong traces end the process. So a job replays
the traces that it gets from the service in a forked process, and again itself those that leave it alive.
"""

from __future__ import annotations

import json
import pickle
import time
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

_GROUP_SECONDS = 30.0
"""Processor time for some traces in one process."""
_LEFT_SECONDS = 60.0
"""How long to look for the traces that end a process; those that were not tried by then are left out."""
_SEED = 1
"""A trace may leave decisions open: the job must draw what the forked process drew."""


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
        schedule, instructions = s_tir.Schedule(module, seed=_SEED), json.loads(trace)
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
            replay: what the job will do with a trace; it must pickle.
        """
        own = [each for each in traced if each.workload in modules]
        calls = [partial(_replay, replay, each.trace, modules[each.workload]) for each in own]
        ends = self._ends(calls, time.monotonic() + _LEFT_SECONDS) if calls else []
        for each, ended_well in zip(own, ends, strict=True):
            if not ended_well:
                said = "a stored record of function %s ends the compiler, or takes too long to replay"
                tuning_logger().warning(said, each.workload)
        return [each for each, ended_well in zip(own, ends, strict=True) if ended_well]

    def _ends(self, calls: Sequence[Callable[[], None]], until: float) -> list[bool]:
        """Which calls end well. If they do not all end well together, each half is tried alone, and so on."""
        if self._end_well(calls):
            return [True] * len(calls)
        if len(calls) == 1 or time.monotonic() > until:
            return [False] * len(calls)
        middle = len(calls) // 2
        return self._ends(calls[:middle], until) + self._ends(calls[middle:], until)

    def _end_well(self, calls: Sequence[Callable[[], None]]) -> bool:
        group = CompileFunctions((), pickle.dumps(partial(_all, calls)), _GROUP_SECONDS)
        (outcome,) = self.candidates.compile_many(CompileBatch((group,), workers=1), lambda _: None)
        return outcome.failure is None and not outcome.is_late


def _all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _replay(replay: Replay, trace: str, module: tvm.IRModule) -> None:
    """Do what the job will do, which passes over traces that raise."""
    try:
        replay(trace, module)
    except Exception as error:
        if ran_out_of_memory(error):
            raise
