"""Searches of small functions with the real candidate server; every third candidate may be made to crash."""

import itertools
import json
import pickle
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.script import tirx as T

from bessemer.contract.options import BenchmarkOptions, SearchEnd, TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import ModelEstimate, Schedules
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget
from worker.candidates.client import CandidateClient, LibraryCrashedError, ModelProcess
from worker.candidates.requests import BuildBatch, BuildCandidate, BuildOutcome, MeasureBatch, MeasureOutcome
from worker.compiler.codegen.link import link_shared
from worker.compiler.pipeline.tune import tune
from worker.compiler.schedules.default import follow_plans, is_scheduled, schedule_rest
from worker.compiler.target import compile_target, host_mcpu, refuse_unrunnable
from worker.compiler.tuning.final_comparison import Finalists, ModelComparison, compare_finalists
from worker.compiler.tuning.meta_schedule import build_library
from worker.compiler.tuning.session import open_database
from worker.compiler.tuning.tasks import apply_records
from worker.compiler.values import Optimized, StageContext, Tuned
from worker.errors import JobError
from worker.parameters import ParameterFile
from worker.protocol.observer import JobObserver

pytestmark = pytest.mark.usefixtures("warm")

HOST = ResolvedTarget(
    name="host",
    kind="llvm",
    mcpu=host_mcpu(),
    triple="x86_64-unknown-linux-gnu",
    features=(),
    cores=2,
)


@T.prim_func(s_tir=True)
def aborts() -> None:
    T.evaluate(T.call_extern("int32", "abort"))


@dataclass
class EveryThirdCrashes:
    """The candidate server, given another module for every third candidate: one that aborts when it runs."""

    client: CandidateClient
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def open_library(self, path: Path, threads: int, parameters: ParameterFile | None = None) -> ModelProcess:
        return self.client.open_library(path, threads, parameters)

    def build_many(self, batch: BuildBatch) -> tuple[BuildOutcome, ...]:
        candidates = tuple(self.spoil(candidate) for candidate in batch.candidates)
        return self.client.build_many(replace(batch, candidates=candidates))

    def measure_many(self, batch: MeasureBatch) -> tuple[MeasureOutcome, ...]:
        return self.client.measure_many(batch)

    def compile_many(self, batch: Any, told: Any) -> Any:
        return self.client.compile_many(batch, told)

    def turn(self) -> AbstractContextManager[None]:
        return self.client.turn()

    def spoil(self, candidate: BuildCandidate) -> BuildCandidate:
        if next(self.numbers) % 3 != 2:
            return candidate
        module = tvm.IRModule({"main": aborts.with_attr("global_symbol", "main")})
        return replace(
            candidate, payload=pickle.dumps(partial(build_library, module, compile_target(HOST).llvm))
        )


@dataclass
class Told(JobObserver):
    """What a stage reported."""

    steps: list[tuple[int, int, str]] = field(default_factory=list)
    estimates: list[ModelEstimate | None] = field(default_factory=list)

    def progress(self, stage: Stage, done: int, total: int, detail: str, estimate: Any = None) -> None:
        assert stage is Stage.TUNE
        self.steps.append((done, total, detail))
        self.estimates.append(estimate)

    @property
    def rounds(self) -> list[tuple[int, int, str]]:
        """The steps since the first round."""
        return [step for step in self.steps if not step[2].startswith(("timing", "reading"))]


def two_layers(rows: int | tirx.Var = 32) -> tvm.IRModule:
    """Two multiplications of different shapes, the first called twice, and an addition between them."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 48), "float32"))
    w = relax.Var("w", relax.TensorType((48, 48), "float32"))
    v = relax.Var("v", relax.TensorType((48, 17), "float32"))
    with builder.function("main", [x, w, v]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.matmul(builder.emit(relax.op.matmul(x, w)), w))
            result = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.matmul(hidden, v))))
        builder.emit_func_output(result)
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    return tvm.ir.transform.Sequential(passes)(builder.get())


def make_inputs(rows: int = 32) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(0)
    return tuple(generator.standard_normal(shape, "float32") for shape in ((rows, 48), (48, 48), (48, 17)))


def run_tune(
    candidates: Any,
    scratch: Path,
    options: TuneOptions,
    module: tvm.IRModule | None = None,
    rows: int = 32,
    records: tuple[Path, ...] = (),
) -> tuple[Tuned, Told]:
    told = Told()
    request = SimpleNamespace(tune=options, benchmark=BenchmarkOptions())
    upload = SimpleNamespace(target=compile_target(HOST), request=request)
    captured = cast(Any, SimpleNamespace(upload=upload, inputs=make_inputs(rows)))
    optimized = Optimized(captured=captured, operators={}, module=module or two_layers(rows), passes=())
    context = replace(make_context(candidates, scratch, told), records=records)
    return tune(optimized, context), told


def make_context(candidates: Any, scratch: Path, told: Told) -> StageContext:
    return StageContext(
        scratch=scratch,
        output=scratch,
        candidates=candidates,
        sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
        finished_stages=tuple,
        left_seconds=lambda: 1800.0,
        observer=told,
    )


def scheduled_functions(module: tvm.IRModule) -> list[bool]:
    functions = module.functions.values()
    return [is_scheduled(function) for function in functions if not isinstance(function, relax.Function)]


def check_outputs(server: CandidateClient, module: tvm.IRModule, folder: Path, rows: int = 32) -> None:
    path = folder / "model.so"
    executable = tvm.compile(module, compile_target(HOST).llvm)
    executable.export_library(str(path), fcompile=link_shared, workspace_dir=str(folder))
    x, w, v = make_inputs(rows)
    with server.open_library(path, threads=2) as library:
        (y,) = library.run((x, w, v))
    np.testing.assert_allclose(y, np.maximum(x @ w @ w @ v, 0), rtol=1e-4, atol=1e-3)


def test_without_trials_every_function_is_scheduled_and_nothing_measured(
    server: CandidateClient, tmp_path: Path
) -> None:
    tuned, told = run_tune(server, tmp_path, TuneOptions(trials=0))
    assert scheduled_functions(tuned.module) == [True, True]
    assert tuned.records is None
    assert not told.steps
    assert tuned.result.trials == 0
    check_outputs(server, tuned.module, tmp_path)


def test_trials_are_measured_recorded_reported_and_applied(server: CandidateClient, tmp_path: Path) -> None:
    tuned, told = run_tune(server, tmp_path, TuneOptions(trials=10, seed=3))

    assert tuned.result.trials == 10
    assert tuned.result.kept is not None
    assert sum(task.trials for task in tuned.result.tasks) == 10
    assert {task.weight for task in tuned.result.tasks} == {1, 2}
    assert tuned.result.ended_by is SearchEnd.TRIALS
    assert told.steps[-1][:2] == (10, 10)
    assert [detail for *_, detail in told.steps if detail.startswith("timing")] == [
        "timing the default schedules, 0 of 2 functions",
        "timing the whole model with the default schedules",
    ]
    for _, _, detail in told.rounds:
        assert re.match(r"model \S+ ms, untuned \S+ ms; ", detail)
    assert told.steps[-1][2].endswith("; ended by tune.trials=10")

    assert tuned.records is not None
    lines = (tuned.records / "database_tuning_record.json").read_text().splitlines()
    failed = sum(task.failed for task in tuned.result.tasks)
    assert len(lines) == 10 - failed
    assert all(len(json.loads(line)) == 2 for line in lines)

    assert scheduled_functions(tuned.module) == [True, True]
    assert not list((tmp_path / "candidates").iterdir())
    check_outputs(server, tuned.module, tmp_path)


def computing(module: tvm.IRModule, body: tvm.tirx.Stmt) -> int:
    """How many functions of a module have this very body."""
    functions = [each for each in module.functions.values() if isinstance(each, tvm.tirx.PrimFunc)]
    return [tvm_ffi.structural_equal(each.body, body, map_free_vars=True) for each in functions].count(True)


def test_a_record_is_applied_as_it_was_measured(server: CandidateClient, tmp_path: Path) -> None:
    tuned, _ = run_tune(server, tmp_path, TuneOptions(trials=4))
    assert tuned.records is not None
    target = compile_target(HOST).llvm
    records = open_database(tuned.records).get_all_tuning_records()
    measured = [follow_plans(each.as_measure_candidate().sch.mod, target)["main"].body for each in records]
    default = apply_records(two_layers(), [], target)
    (record, body), *_ = [
        pair for pair in zip(records, measured, strict=True) if computing(default, pair[1]) == 0
    ]

    assert computing(apply_records(two_layers(), [record], target), body) == 1


@dataclass
class CrashesWithSchedules:
    """The candidate server, whose libraries with some schedules crash when they are timed."""

    client: CandidateClient
    crashing: Schedules

    def open_library(self, path: Path, threads: int, parameters: ParameterFile | None = None) -> Any:
        if path.parent.name == self.crashing.value:
            raise LibraryCrashedError(6, "was ended by SIGABRT")
        return self.client.open_library(path, threads, parameters)

    def compile_many(self, batch: Any, told: Any) -> Any:
        return self.client.compile_many(batch, told)


@pytest.mark.parametrize(
    ("crashing", "kept"),
    [(Schedules.SEARCH, Schedules.DEFAULT), (Schedules.DEFAULT, Schedules.SEARCH)],
)
def test_the_model_that_crashes_has_lost(
    crashing: Schedules, kept: Schedules, server: CandidateClient, tmp_path: Path
) -> None:
    comparison = compare(CrashesWithSchedules(server, crashing), tmp_path)
    assert comparison == ModelComparison(kept=kept, crashed=crashing)


def test_a_contest_tells_both_latencies(server: CandidateClient, tmp_path: Path) -> None:
    comparison = compare(server, tmp_path)
    assert comparison.search_ms is not None
    assert comparison.default_ms is not None


def compare(candidates: Any, scratch: Path) -> ModelComparison:
    upload = SimpleNamespace(target=compile_target(HOST))
    captured = cast(Any, SimpleNamespace(upload=upload, inputs=make_inputs()))
    module = schedule_rest(two_layers(), compile_target(HOST).llvm)
    finalists = Finalists(module, module, module, compile_target(HOST).llvm, captured)
    return compare_finalists(finalists, make_context(candidates, scratch, Told()), seconds=0.05)


def test_candidates_that_crash_are_counted_and_the_search_goes_on(
    server: CandidateClient, tmp_path: Path
) -> None:
    tuned, _ = run_tune(EveryThirdCrashes(server), tmp_path, TuneOptions(trials=9))
    failed = sum(task.failed for task in tuned.result.tasks)
    assert tuned.result.trials == 9
    assert failed == 3
    assert all(len(task.history_ms) <= task.trials for task in tuned.result.tasks)
    assert scheduled_functions(tuned.module) == [True, True]
    check_outputs(server, tuned.module, tmp_path)


def test_the_search_stops_when_its_seconds_are_used_up(server: CandidateClient, tmp_path: Path) -> None:
    tuned, told = run_tune(server, tmp_path, TuneOptions(trials=10_000, seconds=0.001))
    assert tuned.result.trials == 0
    assert tuned.result.ended_by is SearchEnd.SECONDS
    assert [step[:2] for step in told.rounds] == [(0, 0)]
    assert told.steps[-1][2].endswith("; ended by tune.seconds=0.001")
    assert scheduled_functions(tuned.module) == [True, True]


def test_seconds_alone_search_without_a_limit_on_trials(
    server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = itertools.chain((0.0,), itertools.repeat(60.0))  # time is up after the first round
    monkeypatch.setattr("worker.compiler.tuning.rounds.seconds_since", lambda _started: next(readings))
    tuned, told = run_tune(server, tmp_path, TuneOptions(seconds=60.0))
    assert tuned.result.trials > 0
    assert tuned.result.ended_by is SearchEnd.SECONDS
    assert [step[:2] for step in told.rounds] == [(0, 0), (tuned.result.trials, 0)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("options", "end"),
    [
        (TuneOptions(until_ms=1e6), SearchEnd.UNTIL_MS),
        (TuneOptions(gain_below=0.999), SearchEnd.GAIN_BELOW),
    ],
)
def test_a_search_ends_when_the_model_is_fast_enough_or_gains_too_little(
    options: TuneOptions, end: SearchEnd, server: CandidateClient, tmp_path: Path
) -> None:
    tuned, told = run_tune(server, tmp_path, options)
    result = tuned.result
    assert result.ended_by is end
    assert result.estimate is not None
    assert result.estimate.untuned_ms is not None
    assert (result.curve[0].trials, result.curve[-1].trials) == (0, result.trials)
    assert result.curve[-1].latency_ms == result.estimate.latency_ms <= result.curve[0].latency_ms
    assert told.estimates[-1] == result.estimate
    assert all(total == 0 for _, total, _ in told.steps)


def test_a_model_of_dynamic_sizes_is_not_searched_and_progress_says_so_at_once(
    server: CandidateClient, tmp_path: Path
) -> None:
    module = two_layers(rows=tirx.Var("rows", "int64"))
    tuned, told = run_tune(server, tmp_path, TuneOptions(trials=8), module)
    assert told.steps == [(0, 0, "nothing to search, 2 functions skipped: dynamic sizes")]
    assert (tuned.result.trials, tuned.result.unsearched) == (0, 2)


def test_a_target_that_cannot_run_here_is_refused() -> None:
    target = HOST.model_copy(update={"mcpu": "generic-rv64", "triple": "riscv64-unknown-linux-musl"})
    with pytest.raises(JobError) as caught:
        refuse_unrunnable(compile_target(target))
    assert caught.value.code is ErrorCode.TARGET_NOT_RUNNABLE
    assert "riscv64" in caught.value.detail


@pytest.mark.parametrize(
    "change",
    [
        {"mcpu": "pentium9000"},
        {"triple": "foo-unknown-linux-gnu"},
        {"features": ("+nosuch",)},
    ],
)
def test_a_target_that_llvm_does_not_know_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(JobError) as caught:
        compile_target(HOST.model_copy(update=change))
    assert caught.value.code is ErrorCode.BUILD_FAILED
