"""The search of one task: MetaSchedule proposes, the candidate server measures, the database remembers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig, XGBModel
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerInput, RunnerResult

from worker.errors import ran_out_of_memory
from worker.schedules.attempt import REFUSALS
from worker.tuning.log import tuning_logger
from worker.tuning.policy import ROUND_TRIALS, Standing

DEVICE = "cpu"
_POPULATION = 128
_MIN_UNMEASURED = 32
_WARM_UP_SAMPLES = 16
_MAX_SEED = (1 << 31) - 1


@dataclass(frozen=True)
class Laboratory:
    """What all tasks share."""

    target: tvm.target.Target
    builder: Any
    runner: Any
    database: Database
    cost_model: CostModel
    threads: int
    seed: int
    max_trials: int


def make_cost_model(seed: int, threads: int) -> CostModel:
    """A gradient-boosted model that predicts from few samples on."""
    return XGBModel(
        config=XGBConfig(seed=seed, nthread=threads),
        num_warmup_samples=_WARM_UP_SAMPLES,
        num_tuning_cores=threads,
    )


@dataclass
class TaskSearch:
    """The search of one task; ``trial_seconds`` has an entry for every trial, None where it failed."""

    name: str
    weight: int
    module: tvm.IRModule
    laboratory: Laboratory
    index: int
    default_seconds: float | None = None
    exhausted: bool = False
    trial_seconds: list[float | None] = field(default_factory=list)
    best_record: TuningRecord | None = None
    _context: Any = None

    @property
    def standing(self) -> Standing:
        """How far the search is, for the policy."""
        known = [seconds for seconds in (self.default_seconds, self.best_seconds) if seconds is not None]
        return Standing(
            weight=self.weight,
            trials=len(self.trial_seconds),
            best_seconds=min(known, default=None),
            exhausted=self.exhausted,
        )

    @property
    def best_seconds(self) -> float | None:
        """The best candidate's seconds, the default schedule apart."""
        return min((seconds for seconds in self.trial_seconds if seconds is not None), default=None)

    def advance(self, trials: int) -> int:
        """Search one round.

        Args:
            trials: how many candidates to measure at most.

        Returns:
            How many were measured or failed; 0 where the space is exhausted.
        """
        candidates = self._propose()[:trials]
        if not candidates:
            self.exhausted = True
            return 0
        results = self._measure(candidates)
        self._learn(candidates, results)
        return len(candidates)

    def _propose(self) -> list[Any]:
        try:
            if self._context is None:
                self._context = self._make_context()
            return list(self._context.generate_measure_candidates() or ())
        except REFUSALS as error:
            if ran_out_of_memory(error):
                raise
            tuning_logger().warning("%s: no candidates: %s", self.name, error)
            return []

    def _make_context(self) -> Any:
        laboratory = self.laboratory
        context = ms.TuneContext(
            self.module,
            target=laboratory.target,
            space_generator="post-order-apply",
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=_POPULATION, init_min_unmeasured=_MIN_UNMEASURED
            ),
            task_name=self.name,
            rand_state=(laboratory.seed * 7919 + self.index) % _MAX_SEED + 1,
            num_threads=laboratory.threads,
            logger=tuning_logger(),
        )
        context.pre_tuning(
            max_trials=laboratory.max_trials,
            num_trials_per_iter=ROUND_TRIALS,
            database=laboratory.database,
            cost_model=laboratory.cost_model,
        )
        return context

    def _measure(self, candidates: list[Any]) -> list[RunnerResult]:
        laboratory = self.laboratory
        built = laboratory.builder.build(
            [BuilderInput(candidate.sch.mod, laboratory.target) for candidate in candidates]
        )
        inputs = [
            RunnerInput(result.artifact_path, DEVICE, candidate.args_info)
            for candidate, result in zip(candidates, built, strict=True)
            if result.error_msg is None
        ]
        finished = iter(laboratory.runner.run(inputs) if inputs else ())
        return [
            next(finished).result() if result.error_msg is None else RunnerResult(None, result.error_msg)
            for result in built
        ]

    def _learn(self, candidates: list[Any], results: list[RunnerResult]) -> None:
        laboratory = self.laboratory
        for candidate, result in zip(candidates, results, strict=True):
            self._record(candidate, result)
        laboratory.cost_model.update(self._context, candidates, results)
        self._context.notify_runner_results(candidates, results)

    def _record(self, candidate: Any, result: RunnerResult) -> None:
        if not result.run_secs:
            tuning_logger().info("%s: failed: %s", self.name, result.error_msg)
            self.trial_seconds.append(None)
            return
        database = self.laboratory.database
        seconds = median(float(value) for value in result.run_secs)
        record = TuningRecord(
            candidate.sch.trace,
            database.commit_workload(self.module),
            [float(value) for value in result.run_secs],
            self.laboratory.target,
            candidate.args_info,
        )
        database.commit_tuning_record(record)
        if self.best_seconds is None or seconds < self.best_seconds:
            self.best_record = record
        self.trial_seconds.append(seconds)


def open_database(folder: Path) -> Database:
    """MetaSchedule's database as JSON lines in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    return ms.database.JSONDatabase(
        path_workload=str(folder / "database_workload.json"),
        path_tuning_record=str(folder / "database_tuning_record.json"),
    )
