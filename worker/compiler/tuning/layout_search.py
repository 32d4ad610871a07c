"""Searches the choices of the layout phase, which follows the processor's model.

A choice for the whole model, such as the width of its blocks, is measured on the whole model in alternation
with the expected choice: conversions and caches count. The algorithm of each convolution of 3x3 taps is
measured layer by layer: the model is laid out once for each other algorithm, and a function of each layer is
timed beside the one that the layout phase has chosen. Then the model is laid out with the winners, and the
plans of its functions are searched.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import NamedTuple

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import RunnerResult

from bessemer.contract.records import JudgedTrial, trace_digest
from bessemer.contract.report import LayoutTrial
from worker.compiler.layout.choices import AS_EXPECTED, LayoutChoices
from worker.compiler.schedules.annotations import ACTIVATED, FAMILY, PACKED
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
    RestoredTrial,
    layout_candidate,
    trace_text,
    wanted_layout,
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
MODEL_WORTHWHILE = 0.97
"""A choice about the whole model wins with less than this share of its latency."""
TRIALS_FOR_MODELS = 128
"""A search of fewer trials builds no whole models: each takes as long as a round or two."""
_WIDEST_BITS = 512
_MODEL = "model"


@dataclass(frozen=True)
class MeasuredLayer:
    """A layer as it is: the seconds of its functions in one run, and the chosen side."""

    algorithm: Algorithm
    seconds: float


def worthwhile(
    measured: Sequence[MeasuredLayer], cycles: Callable[[Layer], Mapping[int, float]], most: int
) -> tuple[Algorithm, ...]:
    """The algorithms to measure, the most promising first.

    Args:
        measured: the layers as they are.
        cycles: the cycles that the processor's model expects of a layer, by the side of a tile.
        most: how many to measure.
    """
    total = sum(own.seconds for own in measured)
    found = [
        (
            own.seconds * (MOST_EXPECTED - expected / known[own.algorithm.side]),
            Algorithm(layer, side),
        )
        for own in measured
        if own.seconds >= LEAST_SHARE * total
        for layer in [own.algorithm.layer]
        for known in [cycles(layer)]
        for side, expected in known.items()
        if side != own.algorithm.side and own.algorithm.side in known
    ]
    promising = [each for each in found if each[0] > 0]
    return tuple(algorithm for _, algorithm in sorted(promising, key=lambda each: -each[0])[:most])


class Rival(NamedTuple):
    """A function of a layer, and the one that computes the same by another algorithm."""

    task: TaskSearch
    other: TaskSearch
    algorithm: Algorithm


@dataclass
class Measured:
    """The measurement of a choice beside the expected one, for the function or for the whole model.

    ``task`` is a function that the choice concerns, which keeps the record; ``other`` computes its layer.
    """

    task: TaskSearch
    wanted: LayoutChoices
    layer: str
    choice: str
    expected: str
    seconds: float | None
    default_seconds: float | None
    wins: bool
    other: TaskSearch | None = None
    kept: bool = False

    @property
    def reported(self) -> LayoutTrial:
        """What the report says of it."""
        return LayoutTrial(
            layer=self.layer,
            function=self.task.name,
            choice=self.choice,
            expected=self.expected,
            found_ms=milliseconds(self.seconds),
            default_ms=milliseconds(self.default_seconds),
            kept=self.kept,
        )


class Alternative(NamedTuple):
    """A choice about the whole model, and what it and the expected one are called."""

    wanted: LayoutChoices
    choice: str
    expected: str


def model_alternatives(module: tvm.IRModule, machine: Machine) -> tuple[Alternative, ...]:
    """The choices about a whole model that a search may measure.

    Processors with vectors of 512 bits may compute on half of them: blocks of fewer channels leave fewer
    lanes empty, and more tiles fit.
    """
    half = Alternative(LayoutChoices(block_bits=_WIDEST_BITS // 2), "blocks-256", "blocks-512")
    inactive = Alternative(LayoutChoices(activates=False), "activation-apart", "activation-inside")
    unchained = Alternative(LayoutChoices(chains=False), "chains-apart", "chains")
    functions = [_annotations(each) for each in module.functions.values() if isinstance(each, tirx.PrimFunc)]
    possible = (
        (half, machine.vector_bits == _WIDEST_BITS and any(FAMILY in names for names in functions)),
        (inactive, any(ACTIVATED in names for names in functions)),
        (unchained, any(max(names[FAMILY], names[PACKED]) > 1 for names in functions)),
    )
    return tuple(alternative for alternative, is_possible in possible if is_possible)


@dataclass
class LayoutSearch:
    """The search of one model's layout.

    Attributes:
        lay_out: makes the model's functions again, as wanted.
        machine: the processor.
        seconds: what laying the model out once takes.
        model: the name of the model in records about the whole model.
        trials: what was measured.
        restored_trials: the number of trials that earlier attempts made of functions that only other choices
            make.
    """

    session: TuningSession
    machine: Machine
    lay_out: Callable[[LayoutChoices], Sequence[TaskSearch]]
    seconds: float
    model: str
    trials: list[Measured] = field(default_factory=list)
    restored_trials: int = 0

    def search_model(
        self,
        tasks: Sequence[TaskSearch],
        alternatives: Sequence[Alternative],
        compare: Callable[[LayoutChoices], tuple[float, float] | None],
        untuned_seconds: float | None = None,
    ) -> LayoutChoices:
        """Measure the whole model with other choices, and return those that won.

        Args:
            tasks: the model's functions, whose default schedules are measured.
            alternatives: the choices.
            compare: the seconds of the model with a choice and without it; None if it crashes.
            untuned_seconds: what the model takes without a choice, if that was measured before.
        """
        task, chosen = max(tasks, key=_seconds_in_run), AS_EXPECTED
        for alternative in alternatives:
            trial = self._restored_model(tasks, alternative, untuned_seconds)
            if trial is None:
                found = compare(alternative.wanted)
                trial = _compared(task, alternative, *((None, None) if found is None else found))
                self._tell(task, [alternative.wanted], [_relative(task, trial)], task.default_seconds or 1.0)
            self.trials.append(trial)
            chosen = chosen | alternative.wanted if trial.wins else chosen
        return chosen

    def search_layers(
        self, tasks: Sequence[TaskSearch], chosen: LayoutChoices, left_seconds: float
    ) -> LayoutChoices:
        """Measure other algorithms of the model's layers, and return those that won.

        Args:
            tasks: the model's functions, whose default schedules are measured.
            chosen: how the model is laid out.
            left_seconds: the time that the search has.
        """
        ends, by_layer = time.monotonic() + SECONDS_SHARE * left_seconds, heaviest(tasks)
        wanted = worthwhile(
            [MeasuredLayer(algorithm, sum(map(_seconds_in_run, own))) for algorithm, own in by_layer.items()],
            lambda layer: expected_cycles(layer, chosen.machine(self.machine)),
            int(TRIALS_SHARE * self.session.options.trials),
        )
        sides = _affordable([algorithm.side for algorithm in wanted], self.seconds, left_seconds)
        rivals: dict[Layer, list[Rival]] = {}
        for side in sides:
            layers = [algorithm.layer for algorithm in wanted if algorithm.side == side]
            others = self.lay_out(chosen | LayoutChoices(dict.fromkeys(layers, side)))
            for rival in _rivals(by_layer, others, side, layers):
                rivals.setdefault(rival.algorithm.layer, []).append(rival)
        best = self._winners(list(rivals.values()), ends)
        return reduce(or_, (trial.wanted for trial in best), chosen)

    def known(self, tasks: list[TaskSearch]) -> list[TaskSearch]:
        """The tasks, with the times of their default schedules where this search has measured them."""
        seconds = {
            workload_of(trial.other.module): trial.seconds for trial in self.trials if trial.other is not None
        }
        for task in tasks:
            task.default_seconds = seconds.get(workload_of(task.module))
        return tasks

    def judge(self, kept: LayoutChoices) -> None:
        """Note how the library is laid out."""
        for trial in self.trials:
            trial.kept = kept >= trial.wanted
        if self.session.journal is not None:
            self.session.journal.judge(_judged(trial, self.model) for trial in self.trials)

    def _restored_model(
        self, tasks: Sequence[TaskSearch], alternative: Alternative, untuned_seconds: float | None
    ) -> Measured | None:
        """What an earlier attempt measured of the whole model with a choice; None if it did not.

        Its times are stored relative to those of the function that keeps the record: only their ratio
        matters.
        """
        for task in tasks:
            for trial in task.restored_layouts:
                found = best_of(trial.result.run_secs)
                is_comparable = found is None or trial.default_seconds is not None
                if _wants(trial) == alternative.wanted and is_comparable:
                    default = trial.default_seconds or 1.0
                    scale = 1.0 if untuned_seconds is None else untuned_seconds / default
                    seconds = None if found is None else scale * found
                    return _compared(task, alternative, seconds, scale * default)
        return None

    def _winners(self, rivals: Sequence[Sequence[Rival]], ends: float) -> list[Measured]:
        """The winners of the layers for which there is time: each is expected to take as long as the last."""
        best, last_seconds = [], 0.0
        for of_layer in rivals:
            began = time.monotonic()
            if began + last_seconds > ends:
                break
            winner = self._winner(of_layer)
            last_seconds = time.monotonic() - began
            best += [] if winner is None else [winner]
        return best

    def _winner(self, rivals: Sequence[Rival]) -> Measured | None:
        measured = self._measure(rivals)
        self.trials += measured
        won = [trial for trial in measured if trial.wins]
        return min(won, key=lambda trial: trial.seconds or 0.0, default=None)

    def _measure(self, rivals: Sequence[Rival]) -> list[Measured]:
        task = rivals[0].task
        known = dict(_restored(task))
        fresh = [rival for rival in rivals if rival.algorithm.side not in known]
        modules = [default_module(each, self.session) for each in (task, *(rival.other for rival in fresh))]
        results = measure(modules, self.session, COMPARISON_ROUNDS) if fresh else []
        default = results[0].run_secs if results else [task.default_seconds or 0.0]
        self._tell(task, [_wanted(rival) for rival in fresh], results[1:], best_of(default))
        by_side = known | {
            rival.algorithm.side: result for rival, result in zip(fresh, results[1:], strict=True)
        }
        return [
            _measured(rival, best_of(by_side[rival.algorithm.side].run_secs), default) for rival in rivals
        ]

    def _tell(
        self,
        task: TaskSearch,
        wanted: Sequence[LayoutChoices],
        results: Sequence[RunnerResult],
        default_seconds: float | None,
    ) -> None:
        if self.session.journal is not None and wanted:
            candidates = [layout_candidate(task.module, each, self.model) for each in wanted]
            function = Function(task.name, task.module)
            self.session.journal.tell(function, LAYOUT, candidates, results, default_seconds)


def algorithm_name(side: int) -> str:
    """The name of an algorithm in the report."""
    return "direct" if side == DIRECT else f"winograd-{side}"


def _wanted(rival: Rival) -> LayoutChoices:
    return LayoutChoices({rival.algorithm.layer: rival.algorithm.side})


def _measured(rival: Rival, seconds: float | None, default: Sequence[float] | None) -> Measured:
    current = algorithm_of(rival.task.module["main"])
    return Measured(
        task=rival.task,
        wanted=_wanted(rival),
        layer=str(rival.algorithm.layer),
        choice=algorithm_name(rival.algorithm.side),
        expected=algorithm_name(DIRECT if current is None else current.side),
        seconds=seconds,
        default_seconds=best_of(default),
        wins=seconds is not None and beats([seconds], default),
        other=rival.other,
    )


def _compared(
    task: TaskSearch, alternative: Alternative, seconds: float | None, default: float | None
) -> Measured:
    """A choice about the whole model, which a function keeps the record of."""
    wins = seconds is not None and default is not None and seconds < MODEL_WORTHWHILE * default
    return Measured(task, alternative.wanted, _MODEL, *alternative[1:], seconds, default, wins)


def _relative(task: TaskSearch, trial: Measured) -> RunnerResult:
    """A whole model's trial as a time of the function that keeps the record."""
    if trial.seconds is None or not trial.default_seconds:
        return RunnerResult(None, "the model failed")
    return RunnerResult([(task.default_seconds or 1.0) * trial.seconds / trial.default_seconds], None)


def _annotations(function: tirx.PrimFunc) -> Counter[str]:
    """How many blocks of a function have each annotation."""
    found: Counter[str] = Counter()
    tvm_ffi.structural_walk(
        function.body, (s_tir.SBlock, lambda block: found.update(map(str, block.annotations)))
    )
    return found


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


def _restored(task: TaskSearch) -> Iterator[tuple[int, RunnerResult]]:
    """What earlier attempts measured of a function's rivals, by the side of a tile."""
    for trial in task.restored_layouts:
        yield from ((side, trial.result) for side in _wants(trial).sides.values())


def _wants(trial: RestoredTrial) -> LayoutChoices:
    return AS_EXPECTED if trial.candidate is None else wanted_layout(trial.candidate.sch.mod)


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


def _judged(trial: Measured, model: str) -> JudgedTrial:
    candidate = layout_candidate(trial.task.module, trial.wanted, model)
    return JudgedTrial(
        workload=workload_of(trial.task.module),
        digest=trace_digest(trace_text(candidate.sch)),
        won=trial.kept,
        default_seconds=trial.task.default_seconds,
    )
