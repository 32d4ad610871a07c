"""The service's tuning records in the compiler: what a search stores, and what a later one does with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import tvm
from stage_samples import Function, capture_module, optimized
from stage_samples import make_context as stage_context
from test_tune_search import HOST, Told, check_outputs, make_context, make_inputs, two_layers
from torch import nn

from bessemer.contract.cost_model import MeasuredFunction
from bessemer.contract.options import REPLAY_TRACE, BenchmarkOptions, SearchEnd, SearchMethod, TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.records import (
    JudgedTrial,
    MeasuredTrial,
    NearTrial,
    SizedFunction,
    StoredTrial,
    UncompiledTrial,
    trace_digest,
)
from worker.candidates.client import CandidateClient
from worker.compiler.pipeline import without_records
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.without_records import build_or_drop_records
from worker.compiler.target import compile_target
from worker.compiler.tuning.early_bundles import EarlyBundles
from worker.compiler.tuning.replays import Replays
from worker.compiler.tuning.stored_records import SearchJournal, scope_of, workload_of
from worker.compiler.tuning.tasks import known_tasks
from worker.compiler.values import Optimized, Tuned
from worker.errors import JobError
from worker.protocol.messages import (
    NearRecordsRequested,
    PlansMeasured,
    RecordsRequested,
    TrialsJudged,
    TrialsMeasured,
)
from worker.protocol.order import RecordsAnswer

pytestmark = pytest.mark.usefixtures("warm")


@dataclass
class KeptHere:
    """Records in this process, which says stop after some answers.

    ``similar`` are the trials of other functions, which advise all functions of their kind.
    """

    found: RecordsAnswer = field(default_factory=RecordsAnswer)
    similar: Sequence[MeasuredTrial] = ()
    stops_after: int = 1 << 30
    asked: list[RecordsRequested] = field(default_factory=list)
    sized: list[SizedFunction] = field(default_factory=list)
    told: list[TrialsMeasured] = field(default_factory=list)
    judged: list[JudgedTrial] = field(default_factory=list)
    plans: list[MeasuredFunction] = field(default_factory=list)

    def ask(self, message: RecordsRequested | NearRecordsRequested | TrialsMeasured) -> RecordsAnswer:
        if isinstance(message, NearRecordsRequested):
            self.sized += NearRecordsRequested.model_validate_json(message.model_dump_json()).functions
            return RecordsAnswer(near=tuple(self.near(message.functions)))
        if isinstance(message, RecordsRequested):
            self.asked.append(RecordsRequested.model_validate_json(message.model_dump_json()))
            return self.found
        self.told.append(TrialsMeasured.model_validate_json(message.model_dump_json()))
        return RecordsAnswer(stop=len(self.told) >= self.stops_after)

    def near(self, functions: Sequence[SizedFunction]) -> Iterator[NearTrial]:
        for function in functions:
            for trial in self.similar:
                if trial.kind in function.kinds and trial.workload != function.workload:
                    yield NearTrial(workload=function.workload, trace=trial.trace)

    def report(self, message: TrialsJudged | PlansMeasured) -> None:
        if isinstance(message, PlansMeasured):
            self.plans.append(PlansMeasured.model_validate_json(message.model_dump_json()).function)
        else:
            self.judged += message.judged

    @property
    def trials(self) -> list[MeasuredTrial]:
        return [trial for message in self.told for trial in message.trials]


def run(candidates: Any, folder: Path, options: TuneOptions, kept: KeptHere, rows: int = 32) -> Tuned:
    folder.mkdir(exist_ok=True)
    request = SimpleNamespace(tune=options, benchmark=BenchmarkOptions(), makes_bundle=True)
    upload = SimpleNamespace(target=compile_target(HOST), request=request)
    captured = cast(Any, SimpleNamespace(upload=upload, inputs=make_inputs(rows)))
    module = Optimized(captured=captured, operators={}, module=two_layers(rows), passes=())
    return tune(module, replace(make_context(candidates, folder, Told()), stored=kept))


def workloads(scale: float, seed: int, folder: Path, width: int = 16) -> list[str]:
    """The keys of the functions of a model with these constants."""
    torch.manual_seed(seed)
    model = Function(lambda parts, x: torch.relu(parts.linear(x)) * scale, linear=nn.Linear(width, 8))
    found = optimized(capture_module(model, torch.ones(4, width)), stage_context(folder))
    tasks = known_tasks(found.module, compile_target(HOST).llvm)
    return sorted(workload_of(task.dispatched[0]) for task in tasks)


def test_functions_of_other_weights_have_the_same_key_and_those_of_other_sizes_do_not(tmp_path: Path) -> None:
    first = workloads(2.0, seed=0, folder=tmp_path)
    assert workloads(2.0, seed=1, folder=tmp_path) == first
    assert not set(workloads(2.0, seed=0, folder=tmp_path, width=32)) & set(first)


def test_tensors_in_a_function_do_not_change_its_key() -> None:
    module = two_layers()
    keys = {
        workload_of(tvm.IRModule({"main": function}))
        for function in module.functions.values()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    assert len(keys) == 2
    assert all(key.isdigit() for key in keys)


def won_of(trials: Sequence[MeasuredTrial], won: bool = True) -> tuple[StoredTrial, ...]:
    """The fastest trial of each function, as a record."""
    best: dict[str, MeasuredTrial] = {}
    for trial in trials:
        if trial.seconds is not None and trial.seconds < (
            (best[trial.workload].seconds or 0.0) if trial.workload in best else float("inf")
        ):
            best[trial.workload] = trial
    return tuple(
        StoredTrial(workload=trial.workload, trace=trial.trace, seconds=trial.seconds or 0.0, won=won)
        for trial in best.values()
    )


SEARCHES = {
    "plans": TuneOptions(trials=16, search=SearchMethod.PLANS, max_trials_per_task=8),
    "metaschedule": TuneOptions(
        trials=16, search=SearchMethod.METASCHEDULE, strategy=REPLAY_TRACE, max_trials_per_task=8
    ),
}


def first_search(search: str, server: CandidateClient, folder: Path) -> KeptHere:
    kept = KeptHere()
    run(server, folder / "first", SEARCHES[search], kept)
    return kept


@pytest.mark.sampled
@pytest.mark.parametrize("search", SEARCHES)
def test_what_a_search_stores_schedules_a_compilation_without_trials(
    search: str, server: CandidateClient, tmp_path: Path
) -> None:
    kept = KeptHere()
    searched = run(server, tmp_path / "search", SEARCHES[search], kept)
    assert len(kept.trials) == searched.result.trials == 16
    rounds = [message for message in kept.told if message.trials]
    ends = accumulate(len(message.trials) for message in rounds)
    assert [message.first for message in rounds] == [0, *ends][:-1]
    assert {digest for message in kept.told for digest in message.workloads} == set(kept.asked[0].functions)
    later = KeptHere(RecordsAnswer(records=won_of(kept.trials)))
    tuned = run(server, tmp_path / "later", TuneOptions(), later)
    assert later.asked[0].scope == kept.asked[0].scope
    assert (later.asked[0].applies, kept.asked[0].applies) == (True, False)
    assert tuned.result.stored is not None
    assert (tuned.result.stored.hits, tuned.result.stored.misses, tuned.result.trials) == (2, 0, 0)
    check_outputs(server, tuned.module, tmp_path)


HOSTILE: dict[str, list[Any]] = {
    "it ends the process": [
        ["SampleCategorical", [], [[1], [1.0]], ["v1"]],
        ["Annotate", [None, "v1"], ["bessemer.plan.rows"], []],
    ],
    "it ends the process, after a choice that it leaves open": [
        ["GetSBlock", [], ["root", "main"], ["b0"]],
        ["SampleCategorical", [], [[1, 2], [0.5, 0.5]], ["v0"]],
        ["Annotate", ["b0", "v0"], ["chosen"], []],
        ["Annotate", [None, "v0"], ["bessemer.plan.rows"], []],
    ],
    "TVM raises IndexError": [
        ["GetSBlock", [], ["root", "main"], ["b0"]],
        ["Unannotate", ["b0"], ["nope"], []],
    ],
}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("trials", [0, 4])
def test_a_record_that_ends_the_compiler_is_a_misfit(
    hostile: str, trials: int, server: CandidateClient, tmp_path: Path
) -> None:
    asked = KeptHere()
    run(server, tmp_path / "asked", TuneOptions(), asked)
    workload = asked.asked[0].functions[0]
    record = StoredTrial(workload=workload, trace=json.dumps([HOSTILE[hostile], []]), seconds=1e-9, won=True)
    tuned = run(
        server, tmp_path / "misled", TuneOptions(trials=trials), KeptHere(RecordsAnswer(records=(record,)))
    )
    assert tuned.result.stored is not None
    assert (tuned.result.stored.hits, tuned.result.stored.misfits) == (0, 1)


@pytest.mark.sampled
@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_passes_over_what_did_not_compile_in_an_earlier_one(
    search: str, server: CandidateClient, tmp_path: Path
) -> None:
    first = first_search(search, server, tmp_path)
    failed = {(trial.workload, trial.digest) for trial in first.trials[:4]}
    answer = RecordsAnswer(
        uncompiled=tuple(UncompiledTrial(workload=workload, digest=digest) for workload, digest in failed)
    )
    second = KeptHere(answer)
    tuned = run(server, tmp_path / "second", SEARCHES[search], second)
    assert not failed & {(trial.workload, trial.digest) for trial in second.trials}
    assert tuned.result.trials == len(second.trials) == 16
    assert tuned.result.stored is not None
    assert tuned.result.stored.passed_over >= len(failed)
    check_outputs(server, tuned.module, tmp_path)


def test_records_that_have_not_won_or_do_not_apply_schedule_nothing(
    server: CandidateClient, tmp_path: Path
) -> None:
    kept = KeptHere()
    run(server, tmp_path / "search", SEARCHES["plans"], kept)
    first, second = won_of(kept.trials, won=False)
    other_plan = second.trace.replace("bessemer.plan.", "bessemer.plan.not_")
    hostile = (
        first,
        *(
            second.model_copy(update={"won": True, "trace": each})
            for each in ("[", "[[],[]", "{}", other_plan)
        ),
    )
    tuned = run(server, tmp_path / "later", TuneOptions(), KeptHere(RecordsAnswer(records=hostile)))
    assert tuned.result.stored is not None
    assert (tuned.result.stored.hits, tuned.result.stored.misses) == (0, 2)
    assert tuned.result.stored.misfits == 4
    check_outputs(server, tuned.module, tmp_path)


def test_a_request_may_refuse_records(server: CandidateClient, tmp_path: Path) -> None:
    kept = KeptHere()
    tuned = run(server, tmp_path, TuneOptions(from_records=False), kept)
    assert (tuned.result.stored, kept.asked) == (None, [])


@pytest.mark.sampled
@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_goes_on_after_the_trials_of_an_earlier_attempt(
    search: str, server: CandidateClient, tmp_path: Path
) -> None:
    first = first_search(search, server, tmp_path)
    earlier = tuple(first.trials[:8])
    second = KeptHere(RecordsAnswer(trials=earlier, count=8, elapsed_seconds=1.0))
    tuned = run(server, tmp_path / "second", SEARCHES[search], second)
    assert tuned.result.stored is not None
    assert (tuned.result.stored.restored_trials, tuned.result.trials) == (8, 16)
    assert len(second.trials) == 8
    assert second.told[0].first == 8
    plans = sum(len(function.seconds) for function in second.plans)
    assert plans > 16 if search == "plans" else plans == 0  # the trials of both, and the default schedules
    repeated = {(trial.workload, trial.trace) for trial in second.trials} & {
        (trial.workload, trial.trace) for trial in earlier
    }
    assert not repeated


@pytest.mark.slow
def test_a_search_that_goes_on_publishes_no_untuned_bundle_again_and_judges_its_end_alone(
    server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[int] = []

    def publish(bundles: EarlyBundles, tuned: Any) -> None:
        assert tuned() is None or not kept.judged
        published.append(bundles.made)
        bundles.made += 1

    monkeypatch.setattr(EarlyBundles, "publish", publish)
    options = SEARCHES["plans"].model_copy(update={"publish_early": True})
    kept = first = KeptHere()
    run(server, tmp_path / "first", options, first)
    assert published[0] == 0
    published.clear()
    earlier = tuple(first.trials[:8])
    kept = second = KeptHere(RecordsAnswer(trials=earlier, count=8, elapsed_seconds=1.0))
    tuned = run(server, tmp_path / "second", options, second)
    assert 0 not in published
    assert tuned.result.trials == 16
    assert {judged.digest for judged in second.judged} <= {
        trace_digest(trial.trace) for trial in first.trials + second.trials
    }


def test_the_time_of_earlier_attempts_counts(server: CandidateClient, tmp_path: Path) -> None:
    first = KeptHere()
    run(server, tmp_path / "first", SEARCHES["plans"], first)
    spent = KeptHere(RecordsAnswer(trials=tuple(first.trials[:8]), count=8, elapsed_seconds=600.0))
    tuned = run(server, tmp_path / "second", TuneOptions(seconds=600.0), spent)
    assert tuned.result.ended_by is SearchEnd.SECONDS
    assert (tuned.result.trials, spent.trials) == (8, [])
    assert tuned.result.seconds > 600.0
    check_outputs(server, tuned.module, tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize(("search", "used"), [(SearchMethod.BOTH, 1), (SearchMethod.PLANS, 0)])
def test_a_search_measures_records_first_unless_it_names_its_candidates(
    server: CandidateClient, tmp_path: Path, search: SearchMethod, used: int
) -> None:
    kept = KeptHere()
    run(server, tmp_path / "search", SEARCHES["plans"], kept)
    records = won_of(kept.trials, won=False)
    later = KeptHere(RecordsAnswer(records=records))
    asked = SEARCHES["plans"].model_copy(update={"search": search})
    tuned = run(server, tmp_path / "later", asked, later)
    assert tuned.result.stored is not None
    assert tuned.result.stored.hits == 2 * used
    spaces = [{space.name: space.trials for space in task.spaces} for task in tuned.result.tasks]
    assert all(each.get("records", 0) == used for each in spaces)


def test_a_search_that_is_stopped_keeps_its_best(server: CandidateClient, tmp_path: Path) -> None:
    kept = KeptHere(stops_after=2)
    tuned = run(server, tmp_path, TuneOptions(trials=64, search=SearchMethod.PLANS), kept)
    assert tuned.result.ended_by is SearchEnd.STOPPED
    assert 0 < tuned.result.trials == len(kept.trials) < 64
    assert len(kept.judged) >= 1
    check_outputs(server, tuned.module, tmp_path)


def test_a_library_that_fails_with_records_is_built_without_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lost = JudgedTrial(workload="1", digest="a" * 64, won=False)
    use = {"hits": 1, "misses": 0}
    tuned = cast(
        Any,
        SimpleNamespace(
            applied=(lost,),
            optimized=None,
            as_expected=None,
            result=SimpleNamespace(stored=SimpleNamespace(model_copy=lambda update: {**use, **update})),
        ),
    )
    assert tuned.applied
    kept = KeptHere()
    context = replace(stage_context(tmp_path), stored=kept)
    context.scratch.mkdir(exist_ok=True)

    def build(given: Any, _context: Any) -> Any:
        if given is tuned:
            raise JobError(ErrorCode.BUILD_FAILED, "no such instruction")
        return BuiltHere(given)

    monkeypatch.setattr(without_records, "build", build)
    monkeypatch.setattr(without_records, "tune", lambda _optimized, _context: TunedHere(_Result()))
    built = build_or_drop_records(tuned, context)
    assert built.tuned.result.stored == {**use, "dropped": "no such instruction"}  # type: ignore[comparison-overlap]
    assert kept.judged == [lost]


@dataclass(frozen=True)
class _Result:
    stored: Any = None

    def model_copy(self, update: dict[str, Any]) -> _Result:
        return _Result(**update)


@dataclass(frozen=True)
class TunedHere:
    """What the second ``tune`` returns."""

    result: _Result


@dataclass(frozen=True)
class BuiltHere:
    """What the second ``build`` returns."""

    tuned: Any


def test_a_search_that_asks_again_counts_its_time_once(server: CandidateClient) -> None:
    kept = KeptHere(RecordsAnswer(count=3, elapsed_seconds=5.0))
    scope = scope_of(compile_target(HOST).llvm, 2)
    journal = SearchJournal(kept, scope, Replays(server))
    journal.open([])
    kept.found = RecordsAnswer(count=4, elapsed_seconds=60.0, stop=True)
    journal.open([])
    assert (journal.searched_seconds, journal.count, journal.stopped) == (5.0, 4, True)
