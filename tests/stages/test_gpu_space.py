"""A search for a GPU in a space by hand, on a driver that makes times up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_driver import build_driver
from stage_samples import make_context

from bessemer.contract.capability import Gpu
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import PresetTarget, resolve_target
from examples.course.search_for_gpu import PROGRAM
from examples.extensions import gpu_tiles
from worker.candidates import gpu_timing
from worker.candidates.client import CandidateClient
from worker.candidates.server import fork_server
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.tune import tune
from worker.compiler.spaces.registry import SpaceBook
from worker.compiler.target import compile_target
from worker.compiler.values import Upload
from worker.job.warmup import import_everything

SM_90 = resolve_target(PresetTarget(preset="cuda-sm_90"), "x86-64-v3", 2)
FAKE = Gpu(name="Fake GPU", arch="sm_90", memory_bytes=8 << 20, cuda="13.0", driver="")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CandidateClient]:
    """A candidate server whose processes have the driver."""
    import_everything()
    driver = build_driver(tmp_path)
    monkeypatch.setattr(gpu_timing, "LIBRARIES", (str(driver / "libcuda.so.1"),))
    monkeypatch.setattr("worker.compiler.target.gpus_here", lambda: (FAKE,))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("FAKE_CUDA_STILL", "1")
    with fork_server(tmp_path) as client:
        yield client


@pytest.mark.slow
def test_a_space_by_hand_is_searched_for_a_gpu(
    server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = {space.name: space for space in gpu_tiles.SPACES}
    monkeypatch.setattr("worker.compiler.tuning.search.space_book", lambda: SpaceBook(spaces, {}))
    asked = {"trials": 4, "spaces": {"product": "gpu-tiles"}, "force": True}
    document = {"model": "0" * 64, "target": "cuda-sm_90", "verification": "none", "tune": asked}
    request, context = CompilationRequest.model_validate(document), make_context(tmp_path, server)
    captured = capture(Upload(PROGRAM, request, compile_target(SM_90)), context)
    tuned = tune(optimize(translate(captured, context), context), context)
    (task,) = tuned.result.tasks
    assert (task.name, task.space, task.trials, task.kept) == ("product", "gpu-tiles", 4, True)
    assert task.failed == 0, task.failure
