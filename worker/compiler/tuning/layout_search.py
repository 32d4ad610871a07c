"""Searches the choices of the layout phase: the algorithm of each convolution of 3x3 taps.

The layout phase follows the processor's model. A search with trials lays the model out once for each other
algorithm, measures a function of each layer beside the one that the layout phase has chosen, and has the
model laid out with the winners. What follows searches the plans of these functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import RunnerResult

from bessemer.contract.records import JudgedTrial, trace_digest
from bessemer.contract.report import LayerTrial
from worker.compiler.layout.choices import LayoutChoices
from worker.compiler.schedules.families.convolution.layers import (
    DIRECT,
    Algorithm,
    Layer,
    algorithm_of,
    expected_cycles,
)
from worker.compiler.schedules.processors import Machine
from worker.compiler.spaces.space import LAYOUT
from worker.compiler.tuning.record_selection import default_module
from worker.compiler.tuning.search import TaskSearch
from worker.compiler.tuning.session import TuningSession, measure
from worker.compiler.tuning.stored_records import (
    Function,
    layout_candidate,
    trace_text,
    wanted_algorithm,
    workload_of,
)
from worker.compiler.tuning.trial_budget import COMPARISON_ROUNDS, beats, best_of, milliseconds

MOST_EXPECTED = 1.6
"""An algorithm that is expected to take more than this multiple of the chosen one's cycles is not tried."""
LEAST_SHARE = 0.01
"""A layer with a smaller share of the model's time is left as it is."""
TRIALS_SHARE = 0.25
"""The share of a search's trials that other algorithms may take."""
SECONDS_SHARE = 0.25
"""The share of a search's time that laying the model out again may take."""


@dataclass(frozen=True)
class Standing:
    """A layer as it is: the seconds of its functions in one run, and the chosen side."""

    algorithm: Algorithm
    seconds: float


def worthwhile(
    standings: Sequence[Standing], cycles: Callable[[Layer], Mapping[int, float]], most: int
) -> tuple[Algorithm, ...]:
    """The algorithms to measure, the most promising first.

    Args:
        standings: the layers.
        cycles: those that the processor's model expects of a layer, by the side of a tile.
        most: how many to measure.
    """
    total = sum(standing.seconds for standing in standings)
    found = [
        (
            standing.seconds * (MOST_EXPECTED - expected / known[standing.algorithm.side]),
            Algorithm(layer, side),
        )
        for standing in standings
        if standing.seconds >= LEAST_SHARE * total
        for layer in [standing.algorithm.layer]
        for known in [cycles(layer)]
        for side, expected in known.items()
        if side != standing.algorithm.side and standing.algorithm.side in known
    ]
    promising = [each for each in found if each[0] > 0]
    return tuple(algorithm for _, algorithm in sorted(promising, key=lambda each: -each[0])[:most])


class Rival(NamedTuple):
    """A function of a layer, and the one that computes the same by another algorithm."""

    task: TaskSearch
    other: TaskSearch
    algorithm: Algorithm


@dataclass
class LayoutTrial:
    """The measurement of a rival beside the chosen algorithm."""

    rival: Rival
    seconds: float | None
    default_seconds: float | None
    wins: bool
    kept: bool = False

    @property
    def reported(self) -> LayerTrial:
        """What the report says of it."""
        current = algorithm_of(self.rival.task.module["main"])
        return LayerTrial(
            layer=str(self.rival.algorithm.layer),
            function=self.rival.task.name,
            algorithm=algorithm_name(self.rival.algorithm.side),
            expected=algorithm_name(DIRECT if current is None else current.side),
            found_ms=milliseconds(self.seconds),
            default_ms=milliseconds(self.default_seconds),
            kept=self.kept,
        )


def algorithm_name(side: int) -> str:
    """The name of an algorithm in the report."""
    return "direct" if side == DIRECT else f"winograd-{side}"


@dataclass
class LayoutSearch:
    """The search of one model's layout.

    Attributes:
        lay_out: makes the model's functions again, as wanted.
        machine: the processor.
        seconds: what laying the model out once takes.
        trials: what was measured.
    """

    session: TuningSession
    machine: Machine
    lay_out: Callable[[LayoutChoices], Sequence[TaskSearch]]
    seconds: float
    trials: list[LayoutTrial] = field(default_factory=list)

    def search(self, tasks: Sequence[TaskSearch], left_seconds: float) -> LayoutChoices:
        """Measure other algorithms of the model's layers, and return those that won.

        Args:
            tasks: the model's functions, whose default schedules are measured.
            left_seconds: the time that the search has.
        """
        by_layer = heaviest(tasks)
        most = int(TRIALS_SHARE * self.session.options.trials)
        wanted = worthwhile(
            [Standing(algorithm, sum(map(_seconds_in_run, own))) for algorithm, own in by_layer.items()],
            lambda layer: expected_cycles(layer, self.machine),
            most,
        )
        sides = _affordable([algorithm.side for algorithm in wanted], self.seconds, left_seconds)
        rivals: dict[Layer, list[Rival]] = {}
        for side in sides:
            layers = [algorithm.layer for algorithm in wanted if algorithm.side == side]
            others = self.lay_out(LayoutChoices(dict.fromkeys(layers, side)))
            for rival in _rivals(by_layer, others, side, layers):
                rivals.setdefault(rival.algorithm.layer, []).append(rival)
        for of_layer in rivals.values():
            self._measure(of_layer)
        winners = {layer: best for layer in rivals if (best := self._winner(layer)) is not None}
        return LayoutChoices(winners)

    def known(self, tasks: list[TaskSearch]) -> list[TaskSearch]:
        """The tasks, with the times of their default schedules where this search has measured them."""
        seconds = {workload_of(trial.rival.other.module): trial.seconds for trial in self.trials}
        for task in tasks:
            task.default_seconds = seconds.get(workload_of(task.module))
        return tasks

    def judge(self, kept: LayoutChoices) -> None:
        """Note which algorithms the library uses."""
        for trial in self.trials:
            algorithm = trial.rival.algorithm
            trial.kept = kept.sides.get(algorithm.layer) == algorithm.side
        if self.session.journal is not None:
            self.session.journal.judge(map(_judged, self.trials))

    def _measure(self, rivals: Sequence[Rival]) -> None:
        task = rivals[0].task
        known = {trial.side: trial.result for trial in _restored(task)}
        open_rivals = [rival for rival in rivals if rival.algorithm.side not in known]
        modules = [
            default_module(each, self.session) for each in (task, *(rival.other for rival in open_rivals))
        ]
        results = measure(modules, self.session, COMPARISON_ROUNDS) if open_rivals else []
        default = results[0].run_secs if results else [task.default_seconds or 0.0]
        if open_rivals and self.session.journal is not None:
            candidates = [layout_candidate(task.module, rival.algorithm.side) for rival in open_rivals]
            function = Function(task.name, task.module)
            self.session.journal.tell(function, LAYOUT, candidates, results[1:])
        measured = zip(open_rivals, results[1:], strict=True)
        again = ((rival, known[rival.algorithm.side]) for rival in rivals if rival.algorithm.side in known)
        for rival, result in (*measured, *again):
            seconds = best_of(result.run_secs)
            rival.other.default_seconds = seconds
            wins = seconds is not None and beats([seconds], default)
            self.trials.append(LayoutTrial(rival, seconds, best_of(default), wins))

    def _winner(self, layer: Layer) -> int | None:
        won = [trial for trial in self.trials if trial.wins and trial.rival.algorithm.layer == layer]
        best = min(won, key=lambda trial: trial.seconds or 0.0, default=None)
        return None if best is None else best.rival.algorithm.side


def heaviest(tasks: Sequence[TaskSearch]) -> dict[Algorithm, list[TaskSearch]]:
    """The functions of each layer that were measured, the ones that take most of a run first."""
    found: dict[Algorithm, list[TaskSearch]] = {}
    for task in sorted(tasks, key=_seconds_in_run, reverse=True):
        algorithm = algorithm_of(task.module["main"])
        if algorithm is not None and task.default_seconds is not None and task.wanted is None:
            found.setdefault(algorithm, []).append(task)
    return found


def carried_over(old: Sequence[TaskSearch], new: Sequence[TaskSearch]) -> list[TaskSearch]:
    """The functions of a model that was laid out again; those that it had before go on where they are."""
    known = {workload_of(task.module): task for task in old}
    kept = []
    for task in new:
        before = known.get(workload_of(task.module))
        if before is None:
            kept.append(task)
        else:
            before.weight = task.weight
            kept.append(before)
    return kept


class _RestoredTrial(NamedTuple):
    side: int
    result: RunnerResult


def _restored(task: TaskSearch) -> Iterator[_RestoredTrial]:
    """What earlier attempts measured of a function's rivals."""
    for trial in task.restored_layouts:
        wanted = None if trial.candidate is None else wanted_algorithm(trial.candidate.sch.mod)
        if wanted is not None:
            yield _RestoredTrial(wanted.side, trial.result)


def _affordable(sides: Sequence[int], seconds: float, left_seconds: float) -> tuple[int, ...]:
    """The sides, by the first layer that wants them, for which there is time to lay the model out."""
    different = tuple(dict.fromkeys(sides))
    affordable = SECONDS_SHARE * left_seconds
    return tuple(side for count, side in enumerate(different, 2) if count * seconds <= affordable)


def _rivals(
    by_layer: Mapping[Algorithm, Sequence[TaskSearch]],
    others: Sequence[TaskSearch],
    side: int,
    layers: Sequence[Layer],
) -> Iterator[Rival]:
    for current, own in by_layer.items():
        if current.layer not in layers:
            continue
        wanted = Algorithm(current.layer, side)
        fitting = [other for other in others if algorithm_of(other.module["main"]) == wanted]
        task = own[0]
        other = max(fitting, key=lambda each: _likeness(task, each), default=None)
        if other is not None:
            yield Rival(task, other, wanted)


def _likeness(task: TaskSearch, other: TaskSearch) -> tuple[int, int]:
    """How many arguments two functions share, and whether as many calls: weights differ by algorithm."""
    own, others = (Counter(map(str, ArgInfo.from_entry_func(each.module))) for each in (task, other))
    return (own & others).total() - abs(own.total() - others.total()), -abs(task.weight - other.weight)


def _seconds_in_run(task: TaskSearch) -> float:
    return task.weight * (task.default_seconds or 0.0)


def _judged(trial: LayoutTrial) -> JudgedTrial:
    candidate = layout_candidate(trial.rival.task.module, trial.rival.algorithm.side)
    return JudgedTrial(
        workload=workload_of(trial.rival.task.module),
        digest=trace_digest(trace_text(candidate.sch)),
        won=trial.kept,
        default_seconds=trial.default_seconds,
    )
