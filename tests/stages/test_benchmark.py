from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from stage_samples import CORES, Perceptron, capture_module, make_workshop, untuned

from bessemer.contract.problem import ErrorCode
from worker.candidates.server import fork_server
from worker.errors import JobError
from worker.measure.rounds import MIN_ROUNDS
from worker.pipeline.benchmark import benchmark
from worker.pipeline.build import build
from worker.pipeline.types import Captured, Verified, Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with fork_server(tmp_path) as candidates:
        torch.set_num_threads(CORES)
        yield make_workshop(tmp_path, candidates)


def captured(**benchmark_options: Any) -> Captured:
    return capture_module(Perceptron(), torch.randn(1, 16), benchmark=benchmark_options)


def verified(capture: Captured, workshop: Workshop) -> Verified:
    return Verified(built=build(untuned(capture, workshop), workshop), comparisons=())


def test_the_library_is_measured_beside_torch_eager_with_as_many_threads(workshop: Workshop) -> None:
    result = benchmark(verified(captured(seconds=0.1), workshop), workshop).result

    assert result.threads == CORES
    assert result.latency.runs >= MIN_ROUNDS
    assert result.latency.min_ms <= result.latency.p50_ms <= result.latency.p99_ms
    (eager,) = result.baselines
    assert (eager.name, eager.threads) == ("torch-eager", CORES)
    assert eager.ratio_p10 <= eager.ratio <= eager.ratio_p90


def test_size_memory_and_functions_are_reported(workshop: Workshop) -> None:
    subject = verified(captured(seconds=0.05), workshop)

    result = benchmark(subject, workshop).result

    assert result.library_bytes == subject.built.library.stat().st_size
    assert result.peak_memory_bytes > 0
    assert {function.name for function in result.functions} == {
        "runtime",
        "fused_linear_add_relu",
        "fused_linear1_add1",
    }
    assert sum(function.share for function in result.functions) == pytest.approx(1)


def test_without_baselines_there_are_none(workshop: Workshop) -> None:
    result = benchmark(verified(captured(seconds=0.05, baselines=[]), workshop), workshop).result

    assert result.baselines == ()
    assert result.latency.runs >= MIN_ROUNDS


def test_a_baseline_that_raises_has_its_own_code(workshop: Workshop) -> None:
    def raises(*_: torch.Tensor) -> None:
        raise ValueError("not twice")

    subject = verified(replace(captured(seconds=0.05), eager=raises), workshop)

    with pytest.raises(JobError, match="torch eager: ValueError: not twice") as raised:
        benchmark(subject, workshop)

    assert raised.value.code is ErrorCode.BENCHMARK_FAILED
