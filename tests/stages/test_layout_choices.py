"""What a search may change of the layout phase's choices, and how later compilations follow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest
import torch
import tvm
from stage_samples import capture_module, make_context, optimized
from test_stored_records import KeptHere
from torch import nn
from tvm import s_tir
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult

from bessemer.contract.options import TuneOptions
from bessemer.contract.records import MeasuredTrial, StoredTrial, trace_digest
from bessemer.contract.report import Schedules, TuneResult
from worker.candidates.client import CandidateClient
from worker.compiler.layout.blocked import convolution_rule
from worker.compiler.layout.choices import AS_EXPECTED, LayoutChoices
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.optimize import lay_out
from worker.compiler.pipeline.recompile import uses_winograd
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.schedules.annotations import LAID_OUT_MODEL
from worker.compiler.schedules.default import schedule_rest, unclaimed_functions
from worker.compiler.schedules.families.convolution.layers import DIRECT, Algorithm, Layer, algorithm_of
from worker.compiler.spaces.space import LAYOUT
from worker.compiler.tuning import layout_search
from worker.compiler.tuning.final_comparison import ModelComparison
from worker.compiler.tuning.given_records import records_of
from worker.compiler.tuning.stored_records import layout_candidate, model_of, trace_text, workload_of
from worker.compiler.tuning.tasks import known_tasks
from worker.compiler.values import Captured, Optimized, StageContext, Tuned
from worker.protocol.order import RecordsAnswer

pytestmark = pytest.mark.usefixtures("warm")


class Convolved(nn.Module):
    """A layer with several algorithms, a join that a convolution activates, and channels for few lanes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(64, 64, 3, padding=1)
        self.narrow = nn.Conv2d(64, 40, 1)
        self.norm = nn.BatchNorm2d(104)
        self.last = nn.Conv2d(104, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.layer(x))
        return self.last(torch.relu(self.norm(torch.cat([y, self.narrow(y)], 1))))


IMAGE = torch.randn(1, 64, 28, 28, generator=torch.Generator().manual_seed(0))
SEARCH = TuneOptions(trials=8)


def captured(**request: Any) -> Captured:
    return capture_module(Convolved(), IMAGE, **request)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Optimized:
    """The model as the layout phase leaves it."""
    return optimized(captured(), make_context(tmp_path_factory.mktemp("expected")))


def algorithms(module: Any) -> list[Algorithm]:
    found = (algorithm_of(each) for each in module.functions.values() if hasattr(each, "body"))
    return [each for each in found if each is not None]


def expect_badly(patch: pytest.MonkeyPatch) -> None:
    """Have the processor's model prefer direct convolutions, by mistake."""
    original = convolution_rule.faster_by_winograd
    patch.setattr(
        convolution_rule,
        "faster_by_winograd",
        lambda direct, machine, least_gain=0.0: original(direct, machine, least_gain or 1e-9),
    )


def replace_comparisons(patch: pytest.MonkeyPatch, compare: Callable[..., ModelComparison]) -> None:
    for module in ("model_layouts", "searched_model"):
        patch.setattr(f"worker.compiler.tuning.{module}.compare_finalists", compare)


def let_the_search_win(patch: pytest.MonkeyPatch) -> None:
    """Have other algorithms of layers and whole models with a search's schedules always win."""

    def compare(*_given: Any) -> ModelComparison:
        return ModelComparison(kept=Schedules.SEARCH, search_ms=1.0, default_ms=2.0)

    replace_comparisons(patch, compare)
    patch.setattr(layout_search, "beats", lambda *_given: True)


@pytest.fixture
def expected_badly(monkeypatch: pytest.MonkeyPatch) -> None:
    expect_badly(monkeypatch)


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_search_win(monkeypatch)


@dataclass(frozen=True)
class Searched:
    """A search that the processor's model misled, and the records that it kept."""

    tuned: Tuned
    kept: KeptHere


@pytest.fixture(scope="module")
def misled(server: CandidateClient, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    kept = KeptHere()
    searching = replace(make_context(tmp_path_factory.mktemp("misled"), server), stored=kept)
    with pytest.MonkeyPatch.context() as patch:
        expect_badly(patch)
        let_the_search_win(patch)
        first = optimized(captured(tune=SEARCH), searching)
        assert not uses_winograd(first.module)
        return Searched(tune(first, searching), kept)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "choices",
    [
        LayoutChoices(block_bits=256),
        LayoutChoices(activates=False),
        *(LayoutChoices({Layer(1, 4, 28, 28, 4, 28, 28, 16): side}) for side in (DIRECT, 2, 4)),
    ],
)
def test_a_model_that_is_laid_out_otherwise_computes_the_same(
    choices: LayoutChoices, expected: Optimized, context: StageContext
) -> None:
    found = lay_out(expected, choices, context)
    scheduled = schedule_rest(found.module, expected.captured.upload.target.llvm)
    tuned = Tuned(found, scheduled, TuneResult(trials=0, seconds=0, tasks=()), None)
    verified = verify(build(tuned, context), context)
    assert [comparison.mismatches for comparison in verified.comparisons] == [0]
    assert unclaimed_functions(scheduled) == ()


def test_a_layer_is_computed_as_the_search_wants(expected: Optimized, context: StageContext) -> None:
    [current] = algorithms(expected.module)
    for side in (DIRECT, 2, 4):
        laid_out = lay_out(expected, LayoutChoices({current.layer: side}), context)
        assert algorithms(laid_out.module) == [Algorithm(current.layer, side)]
    assert algorithms(lay_out(expected, AS_EXPECTED, context).module) == [current]


def won_of(trials: list[MeasuredTrial], judged: list[Any]) -> tuple[StoredTrial, ...]:
    """The records that the search judged last to have won."""
    verdicts = {(each.workload, each.digest): each.won for each in judged}
    return tuple(
        StoredTrial(workload=trial.workload, trace=trial.trace, seconds=trial.seconds, won=True)
        for trial in sorted(trials, key=lambda trial: trial.seconds or inf)
        if trial.seconds is not None and verdicts.get((trial.workload, trace_digest(trial.trace)))
    )


@pytest.mark.usefixtures("expected_badly", "faster")
def test_a_search_changes_the_algorithm_and_the_next_compilation_follows_without_trials(
    misled: Searched, context: StageContext
) -> None:
    searched, kept = misled.tuned, misled.kept
    assert uses_winograd(searched.optimized.module)
    assert [trial.kept for trial in searched.result.layouts].count(True) == 1
    assert searched.result.trials == SEARCH.trials
    verified = verify(build(searched, context), context)
    assert [comparison.mismatches for comparison in verified.comparisons] == [0]

    again = KeptHere(RecordsAnswer(records=won_of(kept.trials, kept.judged)))
    following = replace(context, stored=again)
    second = tune(optimized(captured(), following), following)

    assert algorithms(second.optimized.module) == algorithms(searched.optimized.module)
    assert second.result.trials == 0
    assert second.result.stored is not None
    assert second.result.stored.hits >= 1
    assert second.as_expected is not None
    assert not uses_winograd(second.as_expected.module)


@pytest.mark.usefixtures("expected_badly", "faster")
def test_another_attempt_does_not_measure_algorithms_again(misled: Searched, context: StageContext) -> None:
    trials = tuple(misled.kept.trials)
    again = KeptHere(RecordsAnswer(trials=trials, count=len(trials)))
    restarted = replace(context, stored=again)
    found = tune(optimized(captured(tune=SEARCH), restarted), restarted)

    assert found.result.trials == SEARCH.trials
    assert again.trials == []
    assert algorithms(found.optimized.module) == algorithms(misled.tuned.optimized.module)


@pytest.mark.slow
@pytest.mark.usefixtures("expected_badly")
def test_a_layout_with_which_the_model_is_slower_is_not_kept(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower = ModelComparison(kept=Schedules.DEFAULT, search_ms=2.0, default_ms=1.0)
    replace_comparisons(monkeypatch, lambda *_given: slower)
    kept = KeptHere()
    searching = replace(context, stored=kept)

    found = tune(optimized(captured(tune=SEARCH), searching), searching)

    assert not uses_winograd(found.optimized.module)
    assert not any(trial.kept for trial in found.result.layouts)
    assert not any(trial.won for trial in kept.judged)


@pytest.mark.slow
@pytest.mark.usefixtures("faster")
def test_a_long_search_measures_choices_about_the_whole_model(context: StageContext) -> None:
    kept = KeptHere(stops_after=3)
    searching = replace(context, stored=kept)

    found = tune(optimized(captured(tune=SEARCH.model_copy(update={"trials": 128})), searching), searching)

    wide = found.captured.upload.target.machine.vector_bits == 512
    choices = {trial.choice for trial in found.result.layouts if trial.layer == "model"}
    assert choices == {"activation-apart", *(("blocks-256",) if wide else ())}
    assert all(trial.kept for trial in found.result.layouts if trial.layer == "model")


def test_a_given_record_of_another_layout_is_no_candidate(expected: Optimized) -> None:
    target = expected.captured.upload.target.llvm
    functions = (each for each in expected.module.functions.values() if isinstance(each, tvm.tirx.PrimFunc))
    function = next(each for each in functions if algorithm_of(each) is not None)
    task = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    workload = ms.database.Workload(task)
    wanting = layout_candidate(task, LayoutChoices(block_bits=256), "any")
    given = [
        ms.database.TuningRecord(schedule.trace, workload, [1e-3], target, None)
        for schedule in (s_tir.Schedule(task), wanting.sch)
    ]

    assert records_of(task, given) == given[:1]


def test_a_record_of_another_layout_is_passed_over_where_the_layout_is_fixed(
    expected: Optimized, context: StageContext
) -> None:
    target = expected.captured.upload.target.llvm
    tasks = [each.dispatched[0] for each in known_tasks(expected.module, target)]
    task, model = tasks[0], model_of(tasks)
    trace = trace_text(layout_candidate(task, LayoutChoices(block_bits=128), model).sch)
    won = StoredTrial(workload=workload_of(task), trace=trace, seconds=1e-3, won=True)
    following = replace(context, stored=KeptHere(RecordsAnswer(records=(won,))))

    found = [tune(each, following) for each in (expected, replace(expected, unlaid=None))]

    hits = [tuned.result.stored.hits for tuned in found if tuned.result.stored is not None]
    assert hits == [1, 0]
    assert found[1].optimized.module.same_as(expected.module)


@pytest.mark.parametrize(
    ("choices", "followed"),
    [(LayoutChoices(block_bits=128), [True, False]), (LayoutChoices(activates=False), [True, False])],
)
def test_a_choice_about_a_whole_model_is_not_followed_by_another_that_shares_a_function(
    choices: LayoutChoices, followed: list[bool], context: StageContext
) -> None:
    expected = optimized(captured(), context)
    target = expected.captured.upload.target.llvm
    tasks = [each.dispatched[0] for each in known_tasks(expected.module, target)]
    found = []
    for model in (model_of(tasks), model_of(tasks[1:])):
        trace = trace_text(layout_candidate(tasks[0], choices, model).sch)
        won = StoredTrial(workload=workload_of(tasks[0]), trace=trace, seconds=1e-3, won=True)
        tuned = tune(expected, replace(context, stored=KeptHere(RecordsAnswer(records=(won,)))))
        found.append(not tuned.optimized.module.same_as(expected.module))
        assert tuned.result.stored is not None
        assert tuned.result.stored.hits == int(found[-1])
    assert found == followed


def test_models_are_the_same_if_their_functions_are() -> None:
    one, two = (tvm.IRModule({"main": each}) for each in (tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0)),) * 2)
    other = tvm.IRModule({"main": tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(1))})
    assert model_of([one]) == model_of([two, one])
    assert model_of([one, other]) == model_of([other, one])
    assert model_of([one]) != model_of([one, other])


def equally_fast(modules: Sequence[Any], *_given: Any, **_named: Any) -> list[RunnerResult]:
    """Nothing is measured: each candidate takes as long as any other."""
    return [RunnerResult([1e-3], None) for _ in modules]


@pytest.mark.slow
def test_another_attempt_does_not_measure_the_whole_model_again(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[Any] = []

    def compare(finalists: Any, *_given: Any) -> ModelComparison:
        compared.append(finalists)
        return ModelComparison(kept=Schedules.SEARCH, search_ms=1.0, default_ms=2.0)

    replace_comparisons(monkeypatch, compare)
    for module in ("search", "record_selection", "layout_search"):
        monkeypatch.setattr(f"worker.compiler.tuning.{module}.measure", equally_fast)
    options = TuneOptions(trials=128)
    kept = KeptHere(stops_after=3)
    searching = replace(context, stored=kept)
    searched = tune(optimized(captured(tune=options), searching), searching)
    told = [trial for trial in kept.trials if LAID_OUT_MODEL in trial.trace]
    measured = [trial for trial in searched.result.layouts if trial.layer == "model"]
    assert measured
    assert len(compared) > len(measured)
    compared.clear()

    again = KeptHere(RecordsAnswer(trials=tuple(kept.trials), count=len(kept.trials), stop=True))
    restarted = replace(context, stored=again)
    found = tune(optimized(captured(tune=options), restarted), restarted)

    assert len(compared) == 1
    assert [trial for trial in again.trials if trial.space == LAYOUT] == []
    assert len(told) == len(measured)
    restored = [trial for trial in found.result.layouts if trial.layer == "model"]
    assert [(each.choice, each.kept) for each in restored] == [(each.choice, each.kept) for each in measured]
    for trial in restored:
        assert trial.found_ms is not None
        assert trial.default_ms is not None
        assert trial.found_ms == pytest.approx(trial.default_ms / 2)
