"""When a search publishes what it has found."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bessemer.contract.options import TuneOptions
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from worker.compiler.pipeline.early import publish_verified
from worker.compiler.pipeline.tune import _open_early
from worker.compiler.tuning.early_bundles import MAX_BUNDLES, EarlyBundles, is_due
from worker.protocol.observer import JobObserver


@pytest.mark.parametrize(
    ("latency_ms", "published_ms", "elapsed", "spent", "due"),
    [
        (9.0, 10.0, 100.0, 10.0, True),
        (9.6, 10.0, 100.0, 10.0, False),
        (9.0, 10.0, 100.0, 21.0, False),
        (None, 10.0, 100.0, 10.0, False),
        (9.0, None, 100.0, 10.0, False),
    ],
)
def test_a_bundle_is_due_if_it_is_clearly_faster_and_costs_little_of_the_search(
    latency_ms: float | None, published_ms: float | None, elapsed: float, spent: float, due: bool
) -> None:
    assert is_due(latency_ms, published_ms, elapsed, spent) is due


@pytest.mark.parametrize(
    ("made", "left", "due"), [(1, 50.0, True), (1, 5.0, False), (MAX_BUNDLES, 50.0, False)]
)
def test_a_bundle_must_fit_into_the_time_that_is_left(made: int, left: float, due: bool) -> None:
    early = EarlyBundles(cast(Any, None), published_ms=10.0, last_seconds=10.0, made=made)
    assert early.is_due(9.0, 100.0, left) is due


class Notes(JobObserver):
    """What the pipeline says of its progress."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def progress(self, stage: Stage, done: int, total: int, detail: str, estimate: Any = None) -> None:
        self.said.append(f"{stage}: {detail}")


@pytest.mark.parametrize(
    ("early", "said"),
    [
        (True, "no early bundle: the worker publishes one only for its own processor"),
        (False, ""),
    ],
)
@pytest.mark.parametrize("searches", [False, True], ids=["verified", "search"])
def test_a_library_for_another_processor_is_not_published_early(
    early: bool, said: str, searches: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "worker")
    options = TuneOptions(publish_early=early, trials=8) if searches else TuneOptions(publish_early=early)
    request = CompilationRequest(model="0" * 64, target=PresetTarget(preset="aarch64"), tune=options)
    upload = SimpleNamespace(request=request, target=SimpleNamespace(is_native=False, gpu=None))
    captured, notes = SimpleNamespace(upload=upload), Notes()
    context = cast(Any, SimpleNamespace(observer=notes))
    if searches:
        session = SimpleNamespace(options=options, is_local=False)
        model = SimpleNamespace(session=session, optimized=SimpleNamespace(captured=captured))
        assert _open_early((), cast(Any, model), context) is None
    else:
        publish_verified(cast(Any, SimpleNamespace(ran=True, captured=captured)), context)
    stage = Stage.TUNE if searches else Stage.BENCHMARK
    assert notes.said == ([f"{stage}: {said}"] if said else [])
    assert caplog.messages == ([said] if said else [])
