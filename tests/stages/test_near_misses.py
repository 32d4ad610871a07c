"""Records of similar functions as the first candidates of a search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import tvm
from test_stored_records import SEARCHES, KeptHere, run
from test_tune_search import HOST, two_layers
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult

from bessemer.contract.options import SearchMethod, TuneOptions
from bessemer.contract.records import StoredTrial
from worker.candidates.client import CandidateClient
from worker.compiler.schedules.default import plans_of
from worker.compiler.schedules.plans import noted_plan, numbers_of
from worker.compiler.spaces.space import PLANS, STOCK
from worker.compiler.target import compile_target
from worker.compiler.tuning.function_kinds import heaviest_nest, kinds_of
from worker.compiler.tuning.near_misses import Advice, adapted, advice_of
from worker.compiler.tuning.proposals import FamilyProposals, StockProposals
from worker.compiler.tuning.session import FastPlans
from worker.compiler.tuning.stored_records import trace_text
from worker.compiler.tuning.tasks import known_tasks
from worker.protocol.order import RecordsAnswer

pytestmark = pytest.mark.usefixtures("warm")

TARGET = compile_target(HOST).llvm


@pytest.fixture
def equally_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured: each candidate takes as long as any other."""

    def measured(modules: Sequence[Any], *_given: Any, **_named: Any) -> list[RunnerResult]:
        return [RunnerResult([1e-3], None) for _ in modules]

    for module in ("search", "record_selection"):
        monkeypatch.setattr(f"worker.compiler.tuning.{module}.measure", measured)


def function(rows: int) -> tvm.IRModule:
    """The heavier of two products."""
    return max(known_tasks(two_layers(rows), TARGET), key=lambda task: int(task.weight)).dispatched[0]


def session(**options: Any) -> Any:
    return SimpleNamespace(
        target=TARGET,
        options=TuneOptions(**options),
        cost_model=None,
        threads=2,
        round_trials=8,
        fast_plans=FastPlans(),
    )


def same(candidates: Sequence[Any]) -> list[RunnerResult]:
    return [RunnerResult([1e-3], None) for _ in candidates]


def test_functions_of_other_sizes_are_of_the_same_kind() -> None:
    nests = [heaviest_nest(function(rows)) for rows in (32, 64)]
    assert [nest.extents for nest in nests if nest] == [(32, 48, 48), (64, 48, 48)]
    first, second = (kinds_of(cast(Any, nest), "matmul") for nest in nests)
    assert first == second
    assert set(first) == {PLANS, STOCK}
    other = kinds_of(cast(Any, nests[0]), "another family")
    assert (other[STOCK], other[PLANS] == first[PLANS]) == (first[STOCK], False)


def test_a_function_of_dynamic_sizes_has_no_kind() -> None:
    module = two_layers(tvm.tirx.Var("n", "int64"))
    functions = [each for each in module.functions.values() if isinstance(each, tvm.tirx.PrimFunc)]
    assert [heaviest_nest(tvm.IRModule({"main": each})) for each in functions] == [None, None]


@pytest.mark.usefixtures("equally_fast")
def test_a_search_without_records_begins_as_similar_functions_are_fast(
    server: CandidateClient, tmp_path: Path
) -> None:
    first = KeptHere()
    run(server, tmp_path / "first", TuneOptions(trials=16, max_trials_per_task=8), first)
    assert all(trial.kind and trial.extents and trial.default_seconds for trial in first.trials)

    later = KeptHere(similar=first.trials)
    found = run(server, tmp_path / "later", TuneOptions(trials=4, max_trials_per_task=2), later, rows=64)

    stored = found.result.stored
    assert stored is not None
    assert (stored.hits, stored.misses, stored.near) == (0, 2, 2)
    assert 2 <= stored.near_trials <= found.result.trials == 4
    assert {each.workload for each in later.sized} == set(later.asked[0].functions)
    assert {each.extents for each in later.sized} == {(64, 48, 48), (64, 17, 48)}


def test_the_first_plan_of_a_search_is_the_one_that_a_similar_function_is_fast_with() -> None:
    module = function(64)
    plans = plans_of(module["main"], TARGET) or ()
    advice = Advice(plans=(numbers_of(plans[-1]),))
    proposals = FamilyProposals(module, plans, 1e-3, session(), advice=advice)

    first, *others = proposals.next(4)
    assert advice.trials == 0
    proposals.learn([first, *others], same([first, *others]))

    assert noted_plan(first.sch.mod["main"]) == numbers_of(plans[-1])
    assert (len(others), advice.trials) == (3, 1)
    assert advice_of(function(32), [trace_text(first.sch)]).plans == advice.plans


def test_metaschedule_evolves_what_similar_functions_are_fast_with() -> None:
    of_another = StockProposals(function(32), session(trials=8), 0).next(2)
    traces = tuple(trace_text(candidate.sch) for candidate in of_another)
    advice = Advice(traces=(*traces, "[]", *traces))
    proposals = StockProposals(function(64), session(trials=8), 0, advice=advice)

    near = proposals.next(8)
    proposals.learn(near, same(near))
    evolved = proposals.next(4)
    proposals.learn(evolved, same(evolved))

    assert len(near) == advice.trials == len({trace_text(candidate.sch) for candidate in near})
    assert 1 <= len(near) <= 2
    assert len(evolved) == 4
    replay = StockProposals(function(64), session(trials=8, strategy="replay-trace"), 0, advice=advice)
    assert replay.next(2)
    assert advice.trials == len(near)


@pytest.mark.parametrize(
    "trace",
    ["", "[", "[[],[]", "{}", '[[["EnterPostproc"]],[["x"]]]', '[[["bessemer.plan."]],[]]', "[[[]],[]]"],
)
def test_what_is_no_trace_advises_nothing(trace: str) -> None:
    module = function(32)
    context = ms.TuneContext(module, target=TARGET, space_generator="post-order-apply")
    assert adapted(trace, module, context.space_generator.postprocs) is None
    assert advice_of(module, [trace]).plans == ()


@pytest.mark.usefixtures("equally_fast")
@pytest.mark.parametrize(
    "options",
    [SEARCHES["plans"], SEARCHES["metaschedule"], TuneOptions(trials=2, spaces={"*": PLANS})],
)
def test_a_search_that_names_its_candidates_takes_no_advice(
    options: TuneOptions, server: CandidateClient, tmp_path: Path
) -> None:
    kept = KeptHere()
    run(server, tmp_path, options.model_copy(update={"trials": 2, "max_trials_per_task": 1}), kept)
    assert options.search is not SearchMethod.BOTH or options.spaces
    assert kept.sized == []


@pytest.mark.usefixtures("equally_fast")
def test_what_another_attempt_has_measured_is_no_record_to_measure_again(
    server: CandidateClient, tmp_path: Path
) -> None:
    options = TuneOptions(trials=8, max_trials_per_task=4)
    first = KeptHere()
    run(server, tmp_path / "first", options, first)
    stored = tuple(
        StoredTrial(workload=trial.workload, trace=trial.trace, seconds=1e-3, won=False)
        for trial in first.trials
    )
    answer = RecordsAnswer(records=stored, trials=tuple(first.trials), count=len(first.trials))
    second = KeptHere(answer)
    found = run(server, tmp_path / "second", options, second)
    assert (found.result.trials, second.trials) == (8, [])
    assert found.result.stored is not None
    assert (found.result.stored.hits, found.result.stored.restored_trials) == (0, 8)
