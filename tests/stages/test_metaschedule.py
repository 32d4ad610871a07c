"""MetaSchedule by name: every search, strategy and cost model runs, with candidates in confined processes."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import mkdtemp

import pytest
from extension_samples import uploaded
from test_tune_search import check_outputs, run_tune, scheduled_functions

from bessemer.contract.options import (
    EVOLUTIONARY,
    REPLAY_FUNC,
    REPLAY_TRACE,
    STRATEGIES,
    CostModel,
    SearchEnd,
    SearchMethod,
    TuneOptions,
)
from bessemer.contract.problem import ErrorCode
from worker.candidates.client import CandidateClient
from worker.compiler.tuning import proposals
from worker.compiler.tuning.session import open_database
from worker.compiler.values import Tuned
from worker.errors import JobError

pytestmark = pytest.mark.usefixtures("warm")


def trials_of(tuned: Tuned) -> dict[str, dict[str, int]]:
    """The trials by function and space."""
    return {task.name: {each.name: each.trials for each in task.spaces} for task in tuned.result.tasks}


def sampled(tuned: Tuned) -> set[str]:
    """The primitives in the records that a search wrote."""
    assert tuned.records is not None
    lines = (tuned.records / "database_tuning_record.json").read_text().splitlines()
    return {step[0] for line in lines for step in json.loads(line)[1][0][0]}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        *((EVOLUTIONARY, model) for model in CostModel),
        # replays are not guided by a model, which learns from them in the same way
        *((strategy, CostModel.XGB) for strategy in STRATEGIES if strategy != EVOLUTIONARY),
    ],
)
def test_every_strategy_and_every_cost_model_runs(
    strategy: str,
    model: CostModel,
    server: CandidateClient,
    tmp_path: Path,
) -> None:
    options = TuneOptions(trials=10, search=SearchMethod.METASCHEDULE, strategy=strategy, cost_model=model)
    tuned, _ = run_tune(server, tmp_path, options)

    assert tuned.result.trials == 10
    assert {space for spaces in trials_of(tuned).values() for space in spaces} == {"metaschedule"}
    assert "SamplePerfectTile" in sampled(tuned)
    assert scheduled_functions(tuned.module) == [True, True]
    check_outputs(server, tuned.module, tmp_path)


def test_metaschedule_tunes_every_function_of_the_module(server: CandidateClient, tmp_path: Path) -> None:
    options = TuneOptions(trials=12, search=SearchMethod.METASCHEDULE, strategy=REPLAY_TRACE)
    tuned, _ = run_tune(server, tmp_path, options)

    assert set(trials_of(tuned)) == {"matmul", "fused_matmul1_relu"}
    assert all(spaces["metaschedule"] > 0 for spaces in trials_of(tuned).values())


@pytest.mark.slow
def test_the_boosted_trees_learn_from_what_evolution_measures(
    server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[int] = []
    monkeypatch.setattr("worker.compiler.tuning.session.WARM_UP_SAMPLES", 8)
    update = proposals.StockProposals.learn

    def watch(self: proposals.StockProposals, candidates: list[object], results: list[object]) -> None:
        update(self, candidates, results)  # type: ignore[arg-type]
        learned.append(self._cost_model.data_size)  # type: ignore[union-attr]

    monkeypatch.setattr(proposals.StockProposals, "learn", watch)
    options = TuneOptions(trials=16, max_trials_per_task=16, search=SearchMethod.METASCHEDULE)
    run_tune(server, tmp_path, options)

    assert learned == [4, 10, 16]


@pytest.fixture(scope="module")
def plans_of_one_row(server: CandidateClient, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """Functions of one row, tuned with plans alone: how many there are depends on the processor."""
    options = TuneOptions(trials=64, search=SearchMethod.PLANS)
    tuned, _ = run_tune(server, tmp_path_factory.mktemp("plans"), options, rows=1)
    return tuned


def test_plans_alone_leave_the_other_trials_unused(plans_of_one_row: Tuned) -> None:
    result = plans_of_one_row.result
    assert result.ended_by is SearchEnd.CANDIDATES
    assert result.trials < 64
    spaces = trials_of(plans_of_one_row)
    assert set(spaces) == {"fused_matmul1_relu", "matmul"}
    assert all(set(tried) == {"plans"} and tried["plans"] > 1 for tried in spaces.values())
    assert all(task.exhausted for task in result.tasks)


@pytest.mark.slow
def test_metaschedule_gets_the_trials_that_the_plans_leave(
    server: CandidateClient, tmp_path: Path, plans_of_one_row: Tuned
) -> None:
    plans = plans_of_one_row.result.trials
    tuned, _ = run_tune(server, tmp_path, TuneOptions(trials=plans + 9), rows=1)

    assert tuned.result.trials == plans + 9
    assert tuned.result.ended_by is SearchEnd.TRIALS
    spaces = trials_of(tuned)
    expected = {name: tried["plans"] for name, tried in trials_of(plans_of_one_row).items()}
    assert {name: tried["plans"] for name, tried in spaces.items()} == expected
    assert sum(tried.get("metaschedule", 0) for tried in spaces.values()) == 9
    check_outputs(server, tuned.module, tmp_path, rows=1)


def test_each_function_has_at_most_the_trials_that_one_may_have(
    server: CandidateClient, tmp_path: Path
) -> None:
    options = TuneOptions(trials=100, max_trials_per_task=3)
    tuned, told = run_tune(server, tmp_path, options)

    assert [task.trials for task in tuned.result.tasks] == [3, 3]
    assert tuned.result.ended_by is SearchEnd.TRIALS_PER_TASK
    assert told.steps[-1][2].endswith("; ended by tune.max_trials_per_task=3")


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", [REPLAY_TRACE, REPLAY_FUNC])
def test_equal_seeds_replay_equal_candidates(strategy: str, server: CandidateClient, tmp_path: Path) -> None:
    def candidates(seed: int) -> set[str]:
        options = TuneOptions(trials=8, spaces={"matmul": "metaschedule"}, strategy=strategy, seed=seed)
        folder = Path(mkdtemp(dir=tmp_path))
        tuned, _ = run_tune(server, folder, options)
        records = open_database(folder / "records").get_all_tuning_records()
        assert tuned.result.trials == len(records)
        return {json.dumps(record.trace.as_json(), default=str) for record in records}

    assert candidates(seed=1) == candidates(seed=1)
    assert candidates(seed=1) != candidates(seed=2)


RAISING = """
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.search_strategy import PySearchStrategy
    from worker.compiler.tuning.strategies import Strategy


    @derived_object
    class Raising(PySearchStrategy):
        def _initialize_with_tune_context(self, context): ...
        def pre_tuning(self, *arguments): ...
        def post_tuning(self): ...
        def notify_runner_results(self, *arguments): ...

        def generate_measure_candidates(self):
            raise KeyError("no ideas")


    STRATEGIES = (Strategy("raising", Raising, "fails"),)
"""


def test_a_strategy_that_raises_ends_the_search_with_its_reason(
    server: CandidateClient, tmp_path: Path
) -> None:
    options = TuneOptions(trials=2, search=SearchMethod.METASCHEDULE, strategy="raising")
    with uploaded(tmp_path, mine=RAISING), pytest.raises(JobError) as caught:
        run_tune(server, tmp_path, options)
    assert caught.value.code is ErrorCode.EXTENSION_INVALID
    assert "the strategy 'raising' raised KeyError" in caught.value.detail


@pytest.mark.parametrize(
    ("made", "message"),
    [("1 / 0", "raised ZeroDivisionError: division by zero"), ("7", "returned int, not a SearchStrategy")],
)
def test_a_strategy_that_cannot_be_made_ends_the_search(
    made: str, message: str, server: CandidateClient, tmp_path: Path
) -> None:
    file = f"""
        from worker.compiler.tuning.strategies import Strategy

        STRATEGIES = (Strategy("mine", lambda: {made}, "fails"),)
    """
    options = TuneOptions(trials=2, search=SearchMethod.METASCHEDULE, strategy="mine")
    with uploaded(tmp_path, mine=file), pytest.raises(JobError) as caught:
        run_tune(server, tmp_path, options)
    assert caught.value.code is ErrorCode.EXTENSION_INVALID
    assert caught.value.detail == f"the strategy 'mine' {message}"
