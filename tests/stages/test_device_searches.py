"""Searches whose candidates a device times: here, the device's own code runs them on this machine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from own_device import OwnDevice, unpacked
from platform_samples import perceptron
from stage_samples import TARGET, capture_module, optimized

from bessemer.contract.options import SearchEnd
from bessemer.contract.report import Schedules
from bessemer.contract.target import ResolvedTarget
from bessemer.figures.words import decision, measured_where
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.platforms import launcher_of
from worker.compiler.schedules.default import is_scheduled
from worker.compiler.values import StageContext, Tuned
from worker.protocol.messages import CandidatesBuilt
from worker.protocol.order import CandidatesTimed

pytestmark = pytest.mark.usefixtures("warm")

ARM = TARGET.model_copy(update={"mcpu": "generic", "triple": "aarch64-unknown-linux-gnu"})
LATE = "the build took longer than"
"""How one of the candidates may fail on a busy machine."""
NEEDS_EMULATOR = pytest.mark.skipif(
    launcher_of(ARM.triple) is None, reason="qemu-user-static or libc6-arm64-cross is missing"
)


@contextmanager
def searched(
    context: StageContext, target: ResolvedTarget = TARGET, lost_after: int = 1000, **options: Any
) -> Iterator[tuple[Tuned, OwnDevice, StageContext]]:
    """A small network after a search on a device."""
    launcher = () if target is TARGET else launcher_of(target.triple)
    own = OwnDevice(
        context.scratch / "device",
        context.output / "candidates.tar.zst",
        () if not launcher else launcher.command,
        lost_after,
    )
    captured = capture_module(
        perceptron(), torch.randn(4, 64), target=target, tune={"trials": 4, **options}, device="board"
    )
    on_device = replace(context, devices=own)
    yield tune(optimized(captured, context), on_device), own, on_device


@pytest.mark.sampled
@pytest.mark.parametrize("target", [TARGET, pytest.param(ARM, marks=NEEDS_EMULATOR)])
def test_a_device_times_what_a_search_proposes_and_the_library_is_right(
    context: StageContext, target: ResolvedTarget
) -> None:
    with searched(context, target, search="metaschedule") as (tuned, own, on_device):
        result = tuned.result
        assert (result.trials, result.ended_by, result.device_failure) == (4, SearchEnd.TRIALS, None)
        assert [(each.name, each.emulated) for each in result.devices] == [("board", target is ARM)]
        assert all(task.default_ms is not None for task in result.tasks)
        failures = [task.failure for task in result.tasks if task.failed]
        assert [failure for failure in failures if not str(failure).startswith(LATE)] == []
        assert sum(task.failed for task in result.tasks) <= 1
        assert own.batches[0].count == len(result.tasks)
        assert own.batches[0].platform == ("aarch64" if target is ARM else "x86_64")
        assert not own.archive.exists()
        assert [*(on_device.scratch / "candidates").glob("*/candidate.so")] == []
        assert ("Ranked under emulation" in measured_where(result)) is (target is ARM)
        verify(build(tuned, on_device), on_device)


@pytest.mark.sampled
@pytest.mark.parametrize(("lost_after", "trials"), [(0, 0), (1, 0), (2, 1)])
def test_a_search_that_loses_its_devices_ends_with_what_it_has(
    context: StageContext, lost_after: int, trials: int
) -> None:
    with searched(context, lost_after=lost_after, max_trials_per_task=2) as (tuned, own, _):
        result = tuned.result
    assert (result.trials, result.ended_by) == (trials, SearchEnd.DEVICE)
    assert len(own.batches) == lost_after
    assert result.device_failure == "3 attempts were lost with their devices (a, a, a)"
    assert "The measurements ended: 3 attempts were lost" in measured_where(result)
    assert len(result.devices) == min(lost_after, 1)
    functions = [function for function in tuned.module.functions.values() if hasattr(function, "buffer_map")]
    assert all(map(is_scheduled, functions))
    if result.kept is Schedules.SEARCH:
        assert "the whole model was not compared" in decision(result).lower()


def test_the_whole_model_is_compared_on_the_device(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.compiler.tuning.record_selection.beats", lambda _ours, _theirs: True)
    monkeypatch.setattr(
        "worker.compiler.tuning.record_selection.may_beat", lambda ours, _theirs: ours is not None
    )
    with searched(context) as (tuned, own, _):
        result = tuned.result
    assert (own.batches[-1].count, own.batches[-1].rounds) == (2, 8)
    assert result.search_ms is not None
    assert result.default_ms is not None
    assert result.crashed is None


def test_a_batch_has_the_programs_and_their_commands(context: StageContext) -> None:
    names: list[str] = []

    @dataclass
    class Reader(OwnDevice):
        def time(self, built: CandidatesBuilt) -> CandidatesTimed:
            with tarfile.open(fileobj=io.BytesIO(unpacked(self.archive))) as tar:
                names.extend(tar.getnames())
            return CandidatesTimed(reason="away")

    captured = capture_module(perceptron(), torch.randn(4, 64), tune={"trials": 4}, device="board")
    reader = Reader(context.scratch / "device", context.output / "candidates.tar.zst")
    tune(optimized(captured, context), replace(context, devices=reader))
    assert sorted(names) == [
        "0/candidate",
        "0/candidate.so",
        "1/candidate",
        "1/candidate.so",
        "candidates.json",
    ]
