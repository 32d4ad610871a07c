"""The memory in use during each call of a run, from the plan of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from bessemer.contract.report import MemoryPoint, RunMemory
from worker.compiler.codegen.estimate import bytes_of
from worker.compiler.codegen.standalone.plan import CallPlan, Memory

MAX_CALLS = 10_000


def memory_of_run(plan: CallPlan) -> RunMemory:
    """The bytes in use during each call: a tensor counts from the first call that uses it to the last.

    Outputs count to the end. Tensors that share their first byte at one time, such as a tensor and its view
    in another shape, count once.
    """
    calls = len(plan.calls)
    changes = [0] * (calls + 1)
    for lives in _lives(plan).values():
        for life in _joined(sorted(lives)):
            changes[life.first] += life.size
            changes[life.last + 1] -= life.size
    points = (
        MemoryPoint(function=call.function, live_bytes=live)
        for call, live in zip(plan.calls[:MAX_CALLS], accumulate(changes), strict=False)
    )
    return RunMemory(arena_bytes=plan.arena_bytes, calls=tuple(points))


class _Life(NamedTuple):
    first: int
    last: int
    size: int


def _lives(plan: CallPlan) -> dict[int, list[_Life]]:
    """The tensors in the arena by their first byte."""
    uses: dict[int, list[int]] = {}
    for index, call in enumerate(plan.calls):
        for tensor in call.arguments:
            uses.setdefault(tensor, []).append(index)
    for tensor in plan.outputs if plan.calls else ():
        uses.setdefault(tensor, []).append(len(plan.calls) - 1)
    lives: dict[int, list[_Life]] = {}
    for tensor, calls in uses.items():
        planned = plan.tensors[tensor]
        if planned.memory is Memory.ARENA:
            life = _Life(min(calls), max(calls), bytes_of(planned))
            lives.setdefault(planned.number, []).append(life)
    return lives


def _joined(lives: list[_Life]) -> Iterator[_Life]:
    current, *others = lives
    for life in others:
        if life.first > current.last:
            yield current
            current = life
        else:
            current = _Life(current.first, max(current.last, life.last), max(current.size, life.size))
    yield current
