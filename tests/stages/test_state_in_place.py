"""State that a run writes a part of, such as a cache, is not copied."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_samples import capture_file, exported
from stage_samples import optimized
from torch import nn

from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.values import Optimized, StageContext

HEADS, LENGTH, FEATURES = 2, 8, 4
WIDTH = HEADS * FEATURES


class Caching(nn.Module):
    """Attention of one token to those before it, whose keys and values it keeps."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, LENGTH, FEATURES))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(x).view(1, -1, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, place, key)
        self.values.index_copy_(2, place, value)
        mask = torch.arange(LENGTH)[None] <= place[:, None]
        return nn.functional.scaled_dot_product_attention(query, self.keys, self.values, mask)


class ReadingOld(Caching):
    """Also returns the keys from before the run."""

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        before = self.keys.sum()
        return super().forward(x, place) + before


class Delaying(nn.Module):
    """Returns what it got two runs before."""

    newer: torch.Tensor
    older: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("newer", "older"):
            self.register_buffer(name, torch.zeros(1, 1, WIDTH))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        delayed = self.older + place
        self.older.copy_(self.newer)
        self.newer.copy_(x * 2)
        return delayed


def compiled(model: nn.Module, path: Path, context: StageContext, **request: object) -> Optimized:
    torch.manual_seed(0)
    inputs = torch.randn(1, 1, WIDTH), torch.zeros(1, dtype=torch.int64)
    return optimized(capture_file(exported(model.eval(), path, *inputs), **request), context)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("model", "request_fields", "writes"),
    [
        (Caching, {}, 2),
        (ReadingOld, {}, 1),
        (Caching, {"stateless": True}, 0),
    ],
    ids=["a cache", "a cache whose old value is read", "a cache that the caller passes"],
)
def test_a_cache_is_written_in_place_where_the_runner_keeps_it(
    tmp_path: Path,
    context: StageContext,
    model: Callable[[], nn.Module],
    request_fields: dict[str, object],
    writes: int,
) -> None:
    found = compiled(model(), tmp_path / "model", context, **request_fields)
    assert found.module["main"].script().count("call_tir_inplace(") == writes
    verified = verify(build(tune(found, context), context), context)
    assert sum(comparison.mismatches for comparison in verified.comparisons) == 0


def test_a_state_that_becomes_another_is_not_overwritten_before(
    tmp_path: Path, context: StageContext
) -> None:
    ready = compiled(Delaying(), tmp_path / "model", context)
    library = build(tune(ready, context), context).library
    model, place = Delaying(), torch.zeros(1, dtype=torch.int64)
    states = (model.newer.numpy().copy(), model.older.numpy().copy())

    with context.candidates.open_library(library, 1) as loaded:
        for step in range(1, 4):
            x = torch.full((1, 1, WIDTH), float(step))
            found, *states = loaded.run((x.numpy(), place.numpy(), *states))

            np.testing.assert_array_equal(found, model(x, place).numpy())
