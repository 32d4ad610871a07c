"""Sources of a task's candidates: its family's plans, MetaSchedule's own space, or a hand-written space."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count, islice
from random import Random
from typing import Any, NamedTuple, Protocol

import tvm
from tvm import s_tir
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.cost_model import CostModel, RandomModel
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate, SearchStrategy

from bessemer.contract.options import EVOLUTIONARY, REPLAY_FUNC, REPLAY_TRACE, TuneOptions
from bessemer.contract.problem import ErrorCode
from worker.candidates.requests import NO_TIME
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.schedules.plans import noted_plan, numbers_of, space_of
from worker.compiler.spaces.space import Space
from worker.compiler.tuning.evolution import LARGE, nearest_plans, next_generation, with_advice
from worker.compiler.tuning.near_misses import Advice, adapted
from worker.compiler.tuning.session import WARM_UP_SAMPLES, TuningSession, tuning_logger
from worker.compiler.tuning.stored_records import workload_of
from worker.compiler.tuning.strategies import Strategy, strategy_book
from worker.compiler.tuning.trial_budget import best_of, best_plan, next_plans
from worker.errors import JobError, failure_of, ran_out_of_memory, refusal, short_message
from worker.quick_stack import quick_stack

_GPU_INTRINSICS = "tvm.s_tir.tensor_intrin.cuda"
"""The tensor intrinsics of MetaSchedule's rules for tensor cores, which only a search for GPUs parses."""

_ENTRY = "main"
_POPULATION = 64
_MIN_UNMEASURED = 32
_EVOLVED_AT_ONCE = 16
"""Candidates of one evolution, whose time depends on the population and not on how many are taken from it."""
_MAX_SEED = (1 << 31) - 1
_UNLIMITED = 1 << 30
"""MetaSchedule counts a draw as whole even if a round takes a part of it. The search counts its own."""

_CHOICE = 3
"""Points drawn for each that is measured, once the cost model has learned."""

_ATTEMPTS = 4
"""Draws for each point that is wanted, since points repeat and a space may raise."""

_SAMPLES = ("SampleCategorical", "SamplePerfectTile", "SamplePartitionedTile", "SampleComputeLocation")


FAILED_BEFORE = RunnerResult(None, "it did not compile in an earlier search")
"""The result of a candidate that is not measured."""

_UNMEASURED = (NO_TIME, FAILED_BEFORE.error_msg)


class Proposals(Protocol):
    """Proposes a space's candidates in the order of a search."""

    def next(self, count: int) -> list[MeasureCandidate]:
        """Up to ``count`` new candidates; an empty list if the space is exhausted."""

    def learn(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """Record the results of candidates."""

    def restore(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """Go on after candidates that an earlier attempt measured. Called before ``next``, at most once."""


class Refusals(NamedTuple):
    """The number of draws on which a space raised, and the last reason."""

    draws: int = 0
    last: str | None = None


class FamilyProposals:
    """The plans of the function's family, as a ranker orders them.

    The first is the default schedule, which is already measured. A search begins with plans that earlier
    searches found fast for similar functions. A large space evolves, and also tries what is fast for other
    functions of this search.
    """

    def __init__(
        self,
        module: tvm.IRModule,
        plans: Sequence[Any],
        default_seconds: float | None,
        session: TuningSession,
        index: int = 0,
        advice: Advice | None = None,
    ) -> None:
        self._session = session
        self._advice = Advice() if advice is None else advice
        self._workload = workload_of(module)
        self._random = Random(session.options.seed * 7919 + index)
        self._module = module
        self._plans = tuple(plans)
        self._numbers = tuple(map(numbers_of, plans))
        self._arguments = ArgInfo.from_entry_func(module)
        self._seconds: dict[int, float | None] = {0: default_seconds}
        self._near = nearest_plans(self._numbers, self._advice.plans)
        self._asked: list[int] = []

    def next(self, count: int) -> list[MeasureCandidate]:
        """See ``Proposals.next``."""
        self._asked = list(self._chosen(count))
        space = space_of(self._plans, [self._plans[index] for index in self._asked])
        return [
            MeasureCandidate(point, self._arguments) for point in space.generate_design_space(self._module)
        ]

    def learn(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.learn``."""
        for index, result in zip(self._asked, results, strict=True):
            if result.error_msg != NO_TIME:
                self._seconds[index] = best_of(result.run_secs)
            self._advice.trials += index in self._near and result.error_msg not in _UNMEASURED
        best = best_plan(self._seconds)
        if best > 0:
            self._session.fast_plans.note(self._workload, self._numbers[best])

    @property
    def measured(self) -> dict[Any, float]:
        """The seconds of each plan that ran."""
        return {self._plans[index]: each for index, each in self._seconds.items() if each is not None}

    def _chosen(self, count: int) -> tuple[int, ...]:
        if len(self._plans) <= LARGE:
            chosen = next_plans(self._numbers, self._seconds, count)
            return with_advice(chosen, self._near, self._seconds, count)
        others = nearest_plans(self._numbers, self._session.fast_plans.of_others(self._workload))
        advised = (*self._near, *others)
        return next_generation(self._numbers, self._seconds, advised, count, self._random)

    def restore(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.restore``."""
        for candidate, result in zip(candidates, results, strict=True):
            numbers = noted_plan(candidate.sch.mod[_ENTRY])
            if numbers in self._numbers:
                self._seconds[self._numbers.index(numbers)] = best_of(result.run_secs)


class StockProposals:
    """MetaSchedule's design spaces for any function, searched by the strategy that the request names.

    Evolution starts from the records in a database of its own: those of plans carry no decisions to mutate.
    Before that, it measures schedules that were fast for similar functions, adapted to this one.
    A replay draws on one thread, since TVM seeds each thread and lets them compete for the draws.
    """

    def __init__(
        self,
        module: tvm.IRModule,
        session: TuningSession,
        index: int,
        restored: int = 0,
        advice: Advice | None = None,
    ) -> None:
        options = session.options
        self._advice = Advice() if advice is None else advice
        self._near = list(self._advice.traces) if options.strategy == EVOLUTIONARY else []
        self._measured: set[str] = set()
        self._is_near = False
        if gpu_in(session.target) is not None:
            with quick_stack():
                importlib.import_module(_GPU_INTRINSICS)
        self._module = module
        self._target = session.target
        self._database = ms.database.MemoryDatabase()
        self._cost_model = _model_of_evolution(session) if _evolves(options) else None
        self._left: list[MeasureCandidate] = []
        self._drawn = 0 if _evolves(options) else restored
        seed = options.seed * 7919 + index + (restored * 104_729 if _evolves(options) else 0)
        self._context = ms.TuneContext(
            module,
            target=session.target,
            space_generator="post-order-apply",
            search_strategy=make_strategy(options.strategy),
            rand_state=seed % _MAX_SEED + 1,
            num_threads=session.threads if _evolves(options) else 1,
            logger=tuning_logger(),
        )
        self._strategy = options.strategy
        with _naming(self._strategy):
            self._context.pre_tuning(
                max_trials=options.trials if _evolves(options) else _UNLIMITED,
                num_trials_per_iter=_drawn_at_once(session),
                database=self._database,
                cost_model=self._cost_model,
            )

    def next(self, count: int) -> list[MeasureCandidate]:
        """See ``Proposals.next``."""
        near = self._adapted(count)
        self._is_near = bool(near)
        if near:
            return near
        while not self._left:
            with _naming(self._strategy):
                found = list(self._context.generate_measure_candidates() or ())
            self._left, self._drawn = found[self._drawn :], max(0, self._drawn - len(found))
            if not found:
                break
        chosen, self._left = self._left[:count], self._left[count:]
        return chosen

    def learn(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.learn``."""
        self.restore(candidates, results)
        if self._is_near:
            self._advice.trials += sum(result.error_msg not in _UNMEASURED for result in results)
            return
        with _naming(self._strategy):
            self._context.notify_runner_results(candidates, results)

    @property
    def has_drawn(self) -> bool:
        """Whether candidates are left of the last draw."""
        return bool(self._left)

    def _adapted(self, count: int) -> list[MeasureCandidate]:
        """Up to ``count`` candidates that decide as similar functions do."""
        found: list[MeasureCandidate] = []
        postprocessors = list(self._context.space_generator.postprocs or ())
        while self._near and len(found) < count:
            schedule = adapted(self._near.pop(0), self._module, postprocessors)
            if schedule is not None and str(schedule.trace) not in self._measured:
                self._measured.add(str(schedule.trace))
                found.append(MeasureCandidate(schedule, ArgInfo.from_entry_func(self._module)))
        return found

    def restore(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.restore``: a replay draws and drops what it has drawn before."""
        self._measured |= {str(candidate.sch.trace) for candidate in candidates}
        for candidate, result in zip(candidates, results, strict=True):
            if result.run_secs:
                workload = self._database.commit_workload(self._module)
                trace, arguments = candidate.sch.trace, candidate.args_info
                record = TuningRecord(trace, workload, result.run_secs, self._target, arguments)
                self._database.commit_tuning_record(record)
        if self._cost_model is not None:
            self._cost_model.update(self._context, candidates, results)


def _drawn_at_once(session: TuningSession) -> int:
    if session.options.strategy == EVOLUTIONARY:
        return max(_EVOLVED_AT_ONCE, session.round_trials)
    return session.round_trials


def make_strategy(name: str) -> SearchStrategy:
    """The search strategy of this name: an extension's or MetaSchedule's.

    Raises:
        JobError: ``extension-invalid``: an extension's strategy cannot be made.
    """
    extensions = strategy_book()
    if name in extensions:
        return _made(extensions[name])
    if name == EVOLUTIONARY:
        return ms.search_strategy.EvolutionarySearch(
            population_size=_POPULATION, init_min_unmeasured=_MIN_UNMEASURED
        )
    return ms.search_strategy.create(name)


def _made(strategy: Strategy) -> SearchStrategy:
    with _naming(strategy.name):
        made = strategy.make()
    if not isinstance(made, SearchStrategy):
        detail = f"the strategy '{strategy.name}' returned {type(made).__name__}, not a SearchStrategy"
        raise JobError(ErrorCode.EXTENSION_INVALID, detail)
    return made


@contextmanager
def _naming(strategy: str) -> Iterator[None]:
    """Name an extension's strategy in what it raises; MetaSchedule's own only find no more candidates."""
    try:
        yield
    except Exception as error:
        if strategy not in strategy_book():
            raise
        detail = f"the strategy '{strategy}' raised {short_message(error)}"
        raise failure_of(ErrorCode.EXTENSION_INVALID, error, detail) from error


def _evolves(options: TuneOptions) -> bool:
    """Whether the strategy may use a cost model: all but the replays."""
    return options.strategy not in (REPLAY_TRACE, REPLAY_FUNC)


def _model_of_evolution(session: TuningSession) -> CostModel:
    return session.cost_model or RandomModel(seed=session.options.seed)


class SpaceProposals:
    """The distinct points of a space.

    Half of the draws are new points, half redraw one decision of the best so far. The cost model learns when
    it is first used, which takes seconds; a search of few trials never uses it. ``refusals`` counts the draws
    on which the space raised. ``next`` raises a ``JobError`` with ``space-failed`` if every first draw did.
    """

    def __init__(self, name: str, module: tvm.IRModule, space: Space, session: TuningSession) -> None:
        self._name = name
        self._module = module
        self._space = space
        self._session = session
        self._context = ms.TuneContext(module, target=session.target, num_threads=session.threads)
        self._arguments = ArgInfo.from_entry_func(module)
        self._random = Random(session.options.seed)
        self._seen: set[str] = set()
        self._measured = 0
        self._unlearned: list[tuple[list[MeasureCandidate], list[RunnerResult]]] = []
        self.refusals = Refusals()
        self._best: tuple[float, MeasureCandidate] | None = None

    def next(self, count: int) -> list[MeasureCandidate]:
        """See ``Proposals.next``."""
        model = self._session.cost_model
        learned = model is not None and self._measured >= WARM_UP_SAMPLES
        drawn = self._draw(count * _CHOICE if learned else count)
        chosen = self._promising(drawn, model)[:count] if learned else drawn
        self._seen |= {_identity(candidate.sch) for candidate in chosen}
        return chosen

    def learn(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.learn``."""
        self._unlearned.append((candidates, results))
        self._measured += len(candidates)
        for candidate, result in zip(candidates, results, strict=True):
            seconds = best_of(result.run_secs)
            if seconds is not None and (self._best is None or seconds < self._best[0]):
                self._best = (seconds, candidate)

    def restore(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.restore``."""
        self._seen |= {_identity(candidate.sch) for candidate in candidates}
        self.learn(candidates, results)

    def _promising(self, candidates: list[MeasureCandidate], model: CostModel) -> list[MeasureCandidate]:
        if not candidates:
            return []
        for measured in self._unlearned:
            model.update(self._context, *measured)
        self._unlearned.clear()
        scores = model.predict(self._context, candidates)
        order = sorted(range(len(candidates)), key=lambda index: -float(scores[index]))
        return [candidates[index] for index in order]

    def _draw(self, wanted: int) -> list[MeasureCandidate]:
        """Up to ``wanted`` new points; fewer if the space has no more."""
        found: dict[str, s_tir.Schedule] = {}
        refused: Exception | None = None
        for draw in islice(self._draws(), wanted * _ATTEMPTS):
            try:
                with self._session.target:
                    points = draw()
            except Exception as error:
                if ran_out_of_memory(error):
                    raise
                refused = error
                self.refusals = Refusals(self.refusals.draws + 1, refusal(error))
                continue
            found |= {key: point for point in points if (key := _identity(point)) not in self._seen}
            if len(found) >= wanted:
                break
        if refused is not None and not found and not self._seen:
            detail = f"space '{self._space.name}' on function '{self._name}': {self.refusals.last}"
            raise failure_of(ErrorCode.SPACE_FAILED, refused, detail) from refused
        return [MeasureCandidate(point, self._arguments) for point in list(found.values())[:wanted]]

    def _draws(self) -> Iterator[Callable[[], Sequence[s_tir.Schedule]]]:
        return chain.from_iterable(
            (self._anew,) if self._best is None or number % 2 == 0 else (self._beside_best,)
            for number in count()
        )

    def _anew(self) -> Sequence[s_tir.Schedule]:
        schedule = self._start()
        made = self._space.schedule(schedule)
        if made is None:
            return (schedule,)
        return (made,) if isinstance(made, s_tir.Schedule) else tuple(made)

    def _beside_best(self) -> Sequence[s_tir.Schedule]:
        assert self._best is not None
        trace = self._best[1].sch.trace
        sampled = [step for step in trace.insts if step.kind.name in _SAMPLES]
        if not sampled:
            return ()
        changed = self._random.choice(sampled)
        schedule = self._start()
        trace.apply_to_schedule(schedule, False, _forgetting(changed))
        return (schedule,)

    def _start(self) -> s_tir.Schedule:
        return s_tir.Schedule(self._module, seed=self._random.randrange(1, 1 << 31))


def _forgetting(changed: Any) -> Callable[[Any, Any, Any, Any], Any]:
    def decide(step: Any, _inputs: Any, _attributes: Any, decision: Any) -> Any:
        return None if step.same_as(changed) else decision

    return decide


def _identity(schedule: s_tir.Schedule) -> str:
    return json.dumps(schedule.trace.as_json(), default=str)
