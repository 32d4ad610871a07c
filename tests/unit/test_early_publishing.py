"""When a search publishes what it has found."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bessemer.contract.options import TuneOptions
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from worker.compiler.pipeline.early import publish_verified
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
        (True, ["benchmark: no early bundle: this worker does not measure libraries for the target"]),
        (False, []),
    ],
)
def test_a_library_that_is_not_measured_here_is_not_published_early(early: bool, said: list[str]) -> None:
    request = CompilationRequest(
        model="0" * 64, target=PresetTarget(preset="aarch64"), tune=TuneOptions(publish_early=early)
    )
    upload = SimpleNamespace(request=request, target=SimpleNamespace(is_native=False, gpu=None))
    verified, notes = SimpleNamespace(ran=True, captured=SimpleNamespace(upload=upload)), Notes()
    publish_verified(cast(Any, verified), cast(Any, SimpleNamespace(observer=notes)))
    assert notes.said == said
