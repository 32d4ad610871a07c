from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stage_samples import CORES, Perceptron, capture_module, make_context, untuned

from bessemer.contract.model import ModelFormat
from bessemer.contract.options import Baseline
from bessemer.contract.problem import ErrorCode
from worker.candidates.client import LibraryCrashedError
from worker.candidates.requests import OpenLibrary, OpenOriginal
from worker.candidates.server import fork_server
from worker.compiler.pipeline.benchmark import (
    BaselineSide,
    OriginalModel,
    begin_baselines,
    benchmark,
    describe_baseline,
)
from worker.compiler.pipeline.build import build
from worker.compiler.values import Captured, Selection, StageContext, Verified
from worker.errors import JobError
from worker.measure.rounds import MIN_ROUNDS, Rounds
from worker.measure.samples import LEAST_RUNS


@pytest.fixture
def context(tmp_path: Path) -> Iterator[StageContext]:
    with fork_server(tmp_path) as candidates:
        torch.set_num_threads(CORES)
        yield make_context(tmp_path, candidates)


def captured(**benchmark_options: Any) -> Captured:
    return capture_module(Perceptron(), torch.randn(1, 16), benchmark=benchmark_options)


def verified(capture: Captured, context: StageContext) -> Verified:
    """The capture's library and its model file."""
    path = context.scratch / "model.pt2"
    torch.export.save(capture.program, path)
    filed = replace(capture, upload=replace(capture.upload, path=path))
    return Verified(built=build(untuned(filed, context), context), captured=filed, comparisons=())


def test_the_library_is_measured_beside_torch_eager(context: StageContext) -> None:
    result = benchmark(verified(captured(seconds=0.1), context), context).result

    assert result.threads == CORES
    assert result.latency.min_ms <= result.latency.p50_ms
    (eager,) = result.baselines
    assert eager.name == "torch-eager"
    assert eager.ratio_p10 <= eager.ratio <= eager.ratio_p90
    assert eager.second_look_ms is not None


def test_torch_eager_is_tried_with_one_thread_and_with_all(
    context: StageContext,
) -> None:
    (eager,) = benchmark(verified(captured(seconds=0.05), context), context).result.baselines

    assert [trial.threads for trial in eager.trials] == [1, CORES]
    assert eager.threads in (1, CORES)
    assert min(trial.runs for trial in eager.trials) >= LEAST_RUNS


def test_the_original_is_loaded_once(context: StageContext) -> None:
    opened: list[object] = []

    class Watched:
        """A candidate client that records what was opened."""

        def __getattr__(self, name: str) -> Any:
            return getattr(context.candidates, name)

        def open_original(self, load: Any) -> Any:
            opened.append(load)
            return context.candidates.open_original(load)

    subject = verified(captured(seconds=0.05), context)
    watched: Any = Watched()
    benchmark(subject, replace(context, candidates=watched))

    assert len(opened) == 1


def test_an_original_that_has_begun_to_load_is_not_loaded_again(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[type] = []
    ask = context.candidates.ask

    def record(request: Any) -> Any:
        asked.append(type(request))
        return ask(request)

    monkeypatch.setattr(context.candidates, "ask", record)
    model = captured(seconds=0.05, baselines=(Baseline.TORCH_EAGER, Baseline.TORCH_EAGER))
    subject = verified(model, context)
    begin_baselines(subject.captured, context)
    benchmark(subject, context)

    assert asked.count(OpenOriginal) == 1
    assert asked.index(OpenOriginal) < asked.index(OpenLibrary)


def test_a_model_that_cannot_be_loaded_fails_when_it_is_opened(context: StageContext) -> None:
    load = partial(OriginalModel, Path("missing"), Selection(), ModelFormat.PT2)
    context.candidates.begin_original(load)
    with pytest.raises(LibraryCrashedError, match="missing"):
        context.candidates.open_original(load)


FAST, SLOW = (0.0003,) * 3, (0.026,) * 3


@pytest.mark.parametrize("theirs", [(SLOW,) * 4, (FAST, FAST, SLOW, SLOW), ((0.026,),) * 3])
def test_figures_that_change_in_another_sample_are_left_out_of_the_headline(
    theirs: tuple[tuple[float, ...], ...],
) -> None:
    side: Any = SimpleNamespace(name="torch eager")
    baseline = BaselineSide("torch-eager", side, 1, {1: (0.0003,) * 20})
    ours = ((0.00005,) * 5,) * len(theirs)

    result = describe_baseline(baseline, "", Rounds((ours, theirs)), 1)

    assert not result.is_steady
    assert result.doubt == "torch eager took 0.3 ms in one sample and 26 ms in another"


def test_one_interrupted_run_of_three_does_not_make_figures_unsteady() -> None:
    side: Any = SimpleNamespace(name="torch eager")
    baseline = BaselineSide("torch-eager", side, 1, {1: (0.3,) * 3})
    rounds = Rounds((((0.1,),) * 3, ((0.6,), (0.3,), (0.3,))))

    assert describe_baseline(baseline, "", rounds, 1).is_steady


def test_a_library_that_is_unsteady_leaves_no_ratio_steady() -> None:
    side: Any = SimpleNamespace(name="torch eager")
    baseline = BaselineSide("torch-eager", side, 1, {1: (0.0003,) * 20})
    rounds = Rounds((((0.0001,) * 5,) * 4, ((0.0003,) * 5,) * 4))

    assert describe_baseline(baseline, "", rounds, 1).is_steady
    assert describe_baseline(baseline, "the library stalled", rounds, 1).doubt


def test_size_memory_and_functions_are_reported(context: StageContext) -> None:
    subject = verified(captured(seconds=0.05), context)

    result = benchmark(subject, context).result

    assert result.library_bytes == subject.built.library.stat().st_size
    assert result.peak_memory_bytes > 0
    assert {function.name for function in result.functions} == {
        "runtime",
        "fused_linear_add_relu",
        "fused_linear1_add1",
    }
    assert sum(function.share for function in result.functions) == pytest.approx(1)


def test_without_baselines_there_are_none(context: StageContext) -> None:
    result = benchmark(verified(captured(seconds=0.05, baselines=[]), context), context).result

    assert result.baselines == ()
    assert result.latency.runs >= MIN_ROUNDS


def test_a_baseline_that_raises_has_its_own_code(context: StageContext) -> None:
    subject = verified(captured(seconds=0.05), context)
    subject.captured.upload.path.write_bytes(b"no model any more")

    with pytest.raises(JobError, match="torch eager: ") as raised:
        benchmark(subject, context)

    assert raised.value.code is ErrorCode.BENCHMARK_FAILED


def test_the_report_tells_how_single_runs_are_distributed(context: StageContext) -> None:
    result = benchmark(verified(captured(seconds=0.1), context), context).result

    assert [each.name for each in result.distributions] == ["library", "torch-eager"]
    ours = result.distributions[0].quantiles_ms
    assert list(ours) == sorted(ours)
    assert ours[0] == pytest.approx(result.latency.min_ms)
    assert ours[20] == pytest.approx(result.latency.p50_ms)


def test_functions_name_the_operators_that_they_compute(context: StageContext) -> None:
    functions = benchmark(verified(captured(seconds=0.05), context), context).result.functions

    places = {place.operator for function in functions for place in function.places}
    assert {"aten.linear.default", "aten.relu.default"} <= places
    assert all(place.file and place.line for function in functions for place in function.places)
