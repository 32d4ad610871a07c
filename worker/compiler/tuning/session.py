"""The state that all searches of a job share, and the measurement of modules."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.cost_model import CostModel, RandomModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig, XGBModel
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.runner import RunnerInput, RunnerResult

from bessemer.contract.options import CostModel as CostModelName
from bessemer.contract.options import TuneOptions
from worker.candidates.requests import Evaluation
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.schedules.plans import Numbers
from worker.compiler.tuning.cost_model.trees import CostModel as LearnedModel
from worker.compiler.tuning.on_device import DeviceBench
from worker.compiler.tuning.on_gpu import References
from worker.compiler.tuning.phases import PhaseClock
from worker.compiler.tuning.trial_budget import ROUND_TRIALS

if TYPE_CHECKING:
    from worker.compiler.tuning.stored_records import SearchJournal

WARM_UP_SAMPLES = 16
"""Measurements that the cost model needs before it predicts."""

EVALUATION = Evaluation(repeats=8, repeat_seconds=0.0015)
"""How a candidate is timed in one round: repeats short enough to fit between other processes' turns."""


@dataclass
class FastPlans:
    """The fastest plan of each function, as advice for similar ones: those whose plans have equal numbers.

    Attributes:
        by_workload: the numbers, the latest last.
    """

    by_workload: dict[str, Numbers] = field(default_factory=dict)

    def note(self, workload: str, plan: Numbers) -> None:
        """Keep a function's fastest plan."""
        self.by_workload.pop(workload, None)
        self.by_workload[workload] = plan

    def of_others(self, workload: str) -> list[Numbers]:
        """The plans of other functions, the latest first."""
        return [plan for name, plan in reversed(self.by_workload.items()) if name != workload]


@dataclass(frozen=True)
class TuningSession:
    """The state that all tasks share.

    Attributes:
        builder: builds candidates; None, as is ``runner``, if nothing can time them.
        bench: the devices that measure; None if this machine does, or nothing.
        references: what candidates for a GPU are checked against; None for processors.
        round_trials: the candidates of a round.
        clock: how long builds and measurements have taken.
        journal: stores what is measured; None if nothing does.
        learned: rank plans before any is measured, the first that is better than the families' own order.
        fast_plans: plans that were fast for similar functions.
    """

    target: tvm.target.Target
    builder: Any
    runner: Any
    database: Database
    cost_model: CostModel | None
    threads: int
    options: TuneOptions
    bench: DeviceBench | None = None
    references: References | None = None
    round_trials: int = ROUND_TRIALS
    clock: PhaseClock = field(default_factory=PhaseClock)
    journal: SearchJournal | None = None
    learned: tuple[LearnedModel, ...] = ()
    fast_plans: FastPlans = field(default_factory=FastPlans)

    @property
    def is_local(self) -> bool:
        """Whether this machine's processor measures."""
        return self.bench is None and self.references is None

    @property
    def measures(self) -> bool:
        """Whether anything can time candidates: a target with a GPU needs one."""
        return self.runner is not None


def make_cost_model(options: TuneOptions, threads: int) -> CostModel | None:
    """The cost model that the options name; the gradient-boosted one needs few samples."""
    match options.cost_model:
        case CostModelName.XGB:
            return XGBModel(
                config=XGBConfig(seed=options.seed, nthread=threads),
                num_warmup_samples=WARM_UP_SAMPLES,
                num_tuning_cores=threads,
            )
        case CostModelName.RANDOM:
            return RandomModel(seed=options.seed)
        case CostModelName.NONE:
            return None


def open_database(folder: Path) -> Database:
    """MetaSchedule's database as JSON lines in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    return ms.database.JSONDatabase(
        path_workload=str(folder / "database_workload.json"),
        path_tuning_record=str(folder / "database_tuning_record.json"),
    )


def measure(
    modules: Sequence[tvm.IRModule],
    session: TuningSession,
    rounds: int,
    workloads: Sequence[tvm.IRModule] = (),
    rival_seconds: float | None = None,
    together: bool = True,
    left_seconds: float = inf,
) -> list[RunnerResult]:
    """Time each module's ``main`` in several rounds over all modules.

    Other load on the machine varies. In rounds it slows all modules alike, and the best round of each has
    suffered least.

    Args:
        modules: the modules to build and run.
        session: its builder and runner.
        rounds: how often each module is timed.
        workloads: for the first modules, what they schedule: on a GPU, their results are checked.
        rival_seconds: the best time so far, if all modules compute the same function: on this machine's
            processor, clearly slower ones are timed less.
        together: whether the times decide which module is faster; else devices of a kind may share them out.
        left_seconds: how long builds may take, unless a reference has to be built with them.

    Returns:
        The seconds of each round for each module, or its error.

    Raises:
        NoDeviceError: devices measure, and none is left.
    """
    if session.bench is not None:
        session.bench.require()
    session.builder.left_seconds = left_seconds if session.references is None else inf
    with session.clock.building():
        built = session.builder.build([BuilderInput(module, session.target) for module in modules])
    if session.references is not None:
        checked = [index for index, _ in enumerate(workloads) if built[index].error_msg is None]
        artifacts = [str(built[index].artifact_path) for index in checked]
        session.references.expect(artifacts, [workloads[index] for index in checked])
    device = "cpu" if gpu_in(session.target) is None else "cuda"
    runnable = [index for index, result in enumerate(built) if result.error_msg is None] * rounds
    inputs = [
        RunnerInput(built[index].artifact_path, device, ArgInfo.from_entry_func(modules[index]))
        for index in runnable
    ]
    seconds: list[list[float]] = [[] for _ in modules]
    errors = [result.error_msg for result in built]
    session.runner.rival_seconds, session.runner.together = rival_seconds, together
    with session.clock.measuring():
        futures = session.runner.run(inputs) if inputs else ()
    for index, future in zip(runnable, futures, strict=True):
        result = future.result()
        seconds[index] += [float(value) for value in result.run_secs or ()]
        errors[index] = errors[index] or result.error_msg
    if session.bench is not None:
        session.bench.require()
    return [
        RunnerResult(None, error) if error is not None else RunnerResult(times, None)
        for times, error in zip(seconds, errors, strict=True)
    ]


_LIBRARY = "tvm.s_tir.meta_schedule"


def tuning_logger() -> logging.Logger:
    """The logger of the search."""
    return logging.getLogger(f"{_LIBRARY}.bessemer")


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Send MetaSchedule's log to a file, not to the job's own output."""
    logger = logging.getLogger(_LIBRARY)
    handler = logging.FileHandler(path)
    propagated, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.propagate, logger.level = propagated, level
