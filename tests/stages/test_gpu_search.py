"""Searches for a GPU on a driver that makes times up: candidates, their checks and their failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from stage_samples import Perceptron, capture_module, make_context, optimized
from tvm import tirx

from bessemer.contract.capability import Gpu
from bessemer.contract.options import SearchEnd
from bessemer.contract.report import Schedules
from bessemer.contract.target import PresetTarget, resolve_target
from bessemer.figures.words import decision
from worker.candidates.client import CandidateClient
from worker.candidates.gpu_timing import GpuCandidate, GpuLaunch, write_gpu_candidate
from worker.candidates.requests import Evaluation, MeasureBatch, MeasureCandidate, TensorArgument
from worker.candidates.server import fork_server
from worker.compiler.codegen.cuda.kernels import lower_for_gpu
from worker.compiler.pipeline.tune import tune
from worker.compiler.schedules.default import is_scheduled
from worker.compiler.schedules.gpu.chips import gpu_of
from worker.compiler.values import Tuned

pytestmark = pytest.mark.usefixtures("warm")

SM_90 = resolve_target(PresetTarget(preset="cuda-sm_90"), "x86-64-v3", 2)
FAKE = Gpu(name="Fake GPU", arch="sm_90", memory_bytes=8 << 20, cuda="13.0", driver="")


@pytest.fixture
def server(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CandidateClient]:
    """A candidate server whose processes have the driver."""
    monkeypatch.setattr("worker.compiler.target.gpus_here", lambda: (FAKE,))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("FAKE_CUDA_STILL", "1")
    with fork_server(tmp_path) as client:
        yield client


def candidate(folder: Path, kernel: str) -> str:
    """A candidate of one kernel, whose name tells the driver how it behaves."""
    folder.mkdir()
    (folder / "image").write_bytes(b"code")
    launch = GpuLaunch(kernel, (2, 1, 1), (32, 1, 1), 0, (1, 0))
    write_gpu_candidate(folder / "candidate.json", GpuCandidate("image", (launch,), (16,), (1,)))
    return str(folder / "candidate.json")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kernel", "error"),
    [
        ("right", None),
        ("wrong", "argument 1 differs from the default schedule's: 4 of 64 elements, the first"),
        ("crashes", "the measuring process was ended by SIGABRT"),
        ("hangs", "the run took longer than 5 s"),
        ("fails", "cuLaunchKernel failed: CUDA error 700, an access outside its memory"),
    ],
)
def test_a_candidate_that_fails_does_not_keep_the_next_from_its_turn(
    kernel: str, error: str | None, server: CandidateClient, tmp_path: Path
) -> None:
    reference = candidate(tmp_path / "reference", "right")
    arguments = (TensorArgument("float32", (8,)), TensorArgument("float32", (8, 8)))
    named = {"first": "right", "second": kernel, "last": "right"}
    paths = [candidate(tmp_path / name, kind) for name, kind in named.items()]
    candidates = tuple(MeasureCandidate(path, arguments, reference) for path in paths)
    first, second, last = server.measure_many(MeasureBatch(candidates, 1, Evaluation(), 5.0, on_gpu=True))
    assert (first.error, last.error) == (None, None)
    assert first.seconds == last.seconds == pytest.approx((65e-6,))
    if error is None:
        assert second == first
    else:
        assert error in str(second.error)


def searched(folder: Path, server: CandidateClient | None, **options: Any) -> Tuned:
    """Two linear layers after a search."""
    context = make_context(folder, server)
    captured = capture_module(Perceptron(), torch.randn(64, 16), target=SM_90, tune=options)
    return tune(optimized(captured, context), context)


@pytest.mark.sampled
@pytest.mark.parametrize("search", ["plans", "metaschedule"])
def test_a_search_measures_candidates_on_the_gpu(
    search: str, server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.compiler.tuning.record_selection.beats", lambda _ours, _theirs: True)
    monkeypatch.setattr(
        "worker.compiler.tuning.record_selection.may_beat", lambda ours, _theirs: ours is not None
    )
    tuned = searched(tmp_path, server, trials=4, search=search, strategy="replay-trace")
    result = tuned.result
    assert (result.trials, result.ended_by) == (4, SearchEnd.TRIALS)
    assert [task.default_ms is None for task in result.tasks] == [False] * len(result.tasks)
    assert sum(task.failed for task in result.tasks) == 0, [task.failure for task in result.tasks]
    assert {space.name for task in result.tasks for space in task.spaces} == {search}
    assert result.search_ms is not None
    assert result.default_ms is not None
    assert tuned.records is not None
    assert (tuned.records / "database_tuning_record.json").read_text().count("\n") == 4
    functions = {
        str(name.name_hint): function
        for name, function in tuned.module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    assert all(map(is_scheduled, functions.values()))
    assert "__global__" in lower_for_gpu(functions, gpu_of("sm_90")).source


def test_without_a_gpu_the_cost_model_ranks_the_plans(tmp_path: Path) -> None:
    result = searched(tmp_path, None, trials=4).result
    assert (result.trials, result.ended_by, result.kept) == (0, SearchEnd.NO_GPU, Schedules.DEFAULT)
    assert "ranked by the cost model: no GPU measured them" in decision(result)
