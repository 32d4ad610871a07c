"""What MetaSchedule's builder asks the candidate server for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from worker.candidates.requests import BuildBatch
from worker.compiler.tuning.meta_schedule import BuilderSettings, library_builder


@pytest.mark.parametrize(("left_seconds", "expected"), [(None, float("inf")), (3.0, 3.0)])
def test_a_builder_has_as_long_as_its_search(left_seconds: float | None, expected: float) -> None:
    asked: list[BuildBatch] = []
    candidates: Any = SimpleNamespace(build_many=lambda batch: asked.append(batch) or ())
    builder = library_builder(candidates, BuilderSettings(Path("/nowhere"), workers=2))
    if left_seconds is not None:
        builder.left_seconds = left_seconds
    builder.build([])
    assert [(batch.left_seconds, batch.workers) for batch in asked] == [(expected, 2)]
